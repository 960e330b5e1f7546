"""Completion in shells, as the functions ask for it that the shells get from click."""

from __future__ import annotations

from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.commands import COMMANDS
from hbroker.cli.exits import DONE

Capture = pytest.CaptureFixture[str]


class Shell:
    """A shell that asks for completions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def answer(self, instruction: str, words: str = "") -> str:
        """What `hbroker` prints when it is asked about a line. The word after the last space is completed."""
        self._monkeypatch.setenv("_HBROKER_COMPLETE", instruction)
        self._monkeypatch.setenv("COMP_WORDS", words)
        self._monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        with pytest.raises(SystemExit) as caught:
            main([])
        assert caught.value.code == DONE
        return self._capsys.readouterr().out

    def completions(self, words: str) -> list[str]:
        """The completions in bash, each as `type,value`."""
        return self.answer("bash_complete", words).split()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Shell:
    return Shell(monkeypatch, capsys)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory with two networks, and a directory of something else."""
    for name in ("campus", "home", "other"):
        (tmp_path / name).mkdir()
    for name in ("campus", "home"):
        (tmp_path / name / "state.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_function(name: str, shell: Shell) -> None:
    function = shell.answer(f"{name}_source")
    assert f"_HBROKER_COMPLETE={name}_complete" in function


def test_commands_are_completed(shell: Shell) -> None:
    assert shell.completions("hbroker ") == [f"plain,{name}" for name in COMMANDS]
    assert shell.completions("hbroker c") == [
        "plain,check",
        "plain,clients",
        "plain,capture",
        "plain,context",
    ]


def test_flags_are_completed(shell: Shell) -> None:
    assert shell.completions("hbroker tree --") == [
        "plain,--root",
        "plain,--timeout",
        "plain,--watch",
        "plain,--url",
        "plain,--json",
        "plain,--help",
    ]
    assert shell.completions("hbroker --v") == ["plain,--version"]


@pytest.mark.parametrize(
    ("line", "choices"),
    [
        ("up --log-level ", "debug info warning error"),
        ("node --log-format j", "json"),
        ("bench --transport mq", "mqtt mqtt5"),
        ("bench --qos ", "0 1 2"),
        ("bench s", "sessions"),
    ],
)
def test_choices_are_completed(line: str, choices: str, shell: Shell) -> None:
    assert shell.completions(f"hbroker {line}") == [f"plain,{choice}" for choice in choices.split()]


@pytest.mark.parametrize("command", ["status", "down"])
def test_networks_of_the_state_directory_are_completed(command: str, state: Path, shell: Shell) -> None:
    line = f"hbroker {command} --state-dir {state}"
    assert shell.completions(f"{line} ") == ["plain,campus", "plain,home"]
    assert shell.completions(f"{line} h") == ["plain,home"]


def test_the_state_directory_is_the_default_one(
    state: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / ".hbroker").symlink_to(state)
    monkeypatch.chdir(place)
    assert shell.completions("hbroker status ") == ["plain,campus", "plain,home"]


def test_a_file_is_completed_where_no_network_has_the_name(state: Path, shell: Shell) -> None:
    assert shell.completions(f"hbroker status --state-dir {state} top") == ["file,top"]
    assert shell.completions("hbroker check top") == ["file,top"]
