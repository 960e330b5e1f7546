"""`hbroker context`: contexts are made, chosen, listed and removed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.identity.authority import Authority
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("HBROKER_CONTEXT", raising=False)
    authority = Authority.create("house", time.time())
    authority.save(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home.token").write_text(create(authority.key, Block(BlockRights(read=("home/#",)))))
    return tmp_path


def call(*arguments: str) -> int:
    return main(["context", *arguments])


def add(name: str, *more: str) -> int:
    return call("add", name, "--root", "192.0.2.1", *more)


def test_a_context_has_absolute_paths_and_no_secret(folder: Path, capsys: Capture) -> None:
    files = ("--authority", "authority.crt", "--token", "home.token")
    assert add("home", *files, "--workspace", "acme", "--description", "the house") == DONE
    text = (folder / "config/hbroker/contexts/home.yaml").read_text()
    assert (folder / "home.token").read_text() not in text + capsys.readouterr().out
    assert call("show", "home", "--json") == DONE
    assert json.loads(capsys.readouterr().out) == {
        "name": "home",
        "root": "192.0.2.1:7700",
        "authority": str(folder / "authority.crt"),
        "token": str(folder / "home.token"),
        "workspace": "acme",
        "description": "the house",
        "used": False,
    }


def test_the_list_marks_the_one_that_commands_use(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [add("home"), add("office"), call("use", "office")] == [DONE] * 3
    capsys.readouterr()

    def used() -> list[str]:
        assert call("list", "--json") == DONE
        return [each["name"] for each in json.loads(capsys.readouterr().out) if each["used"]]

    assert used() == ["office"]
    assert call("list") == DONE
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["home", "192.0.2.1:7700"],
        ["*", "office"],
    ]
    assert call("show") == DONE
    assert "office" in capsys.readouterr().out
    monkeypatch.setenv("HBROKER_CONTEXT", "home")
    assert used() == ["home"]
    monkeypatch.delenv("HBROKER_CONTEXT")
    assert call("use", "--none") == DONE
    capsys.readouterr()
    assert used() == []
    assert call("show") == USAGE
    assert "commands use no context; name one; known here: home, office" in capsys.readouterr().err


def test_a_malformed_context_hides_no_other_one(folder: Path, capsys: Capture) -> None:
    assert [add("home"), add("office")] == [DONE] * 2
    (folder / "config/hbroker/contexts/home.yaml").write_text("root: [")
    capsys.readouterr()
    assert call("list", "--json") == FAILED
    said = capsys.readouterr()
    assert [each["name"] for each in json.loads(said.out)] == ["office"]
    assert "home.yaml:1: not valid YAML" in said.err
    assert call("remove", "home") == DONE
    assert call("list") == DONE


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "a/b", "--root", "h"), "is no name of a context"),
        (("add", "home"), "add needs --root"),
        (("add", "--root", "h"), "add needs the name"),
        (("add", "home", "--root", "h", "--token", "missing"), "missing: cannot be read"),
        (("add", "home", "--root", "h", "--authority", "home.token"), "not a certificate of an authority"),
        (
            ("add", "home", "--root", "h", "--authority", "authority.crt", "--token", "authority.crt"),
            "not a token",
        ),
        (("add", "home", "--root", "h", "--workspace", "A"), "is no name of a workspace"),
        (("use",), "use takes the name of a context, or --none"),
        (("use", "home", "--none"), "use takes the name of a context, or --none"),
        (("use", "home", "--root", "h"), "use does not take --root"),
        (("use", "nothing"), "there is no context 'nothing'"),
        (("remove",), "remove needs the name"),
        (("remove", "nothing"), "there is no context 'nothing'"),
        (("list", "home"), "list takes no name"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    folder: Path, capsys: Capture, arguments: tuple[str, ...], why: str
) -> None:
    assert call(*arguments) == USAGE
    assert why in capsys.readouterr().err
    assert not list((folder / "config").glob("**/*.yaml"))


def test_a_command_with_an_unknown_context_does_nothing(capsys: Capture) -> None:
    assert main(["--context", "nothing", "tree"]) == USAGE
    assert "there is no context 'nothing'" in capsys.readouterr().err
