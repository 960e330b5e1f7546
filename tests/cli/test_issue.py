"""`hbroker issue`: what a node on another host needs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.identity.authority import Authority
from hbroker.identity.node_identity import Identity


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of a network with an authority."""
    Authority.create("house", time.time()).save(tmp_path / "state" / "house" / "authority")
    return tmp_path / "state"


def issue(state: Path, out: Path, *arguments: str) -> int:
    return main(["issue", *arguments, "--out", str(out), "--state-dir", str(state)])


def test_the_folder_has_what_a_node_needs(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cellar"
    assert issue(state, out, "cellar", "home/cellar", "home/attic", "--days", "30") == 0
    assert capsys.readouterr().out == f"{out}: cellar may own home/cellar, home/attic in house for 30 days\n"
    assert {file.name for file in out.iterdir()} == {"cellar.crt", "cellar.key", "authority.crt"}
    found = Authority.load(state / "house" / "authority").verify(
        Identity.load(out, "cellar").chain[0], time.time()
    )
    assert (found.name, found.subtrees) == ("cellar", ("home/cellar", "home/attic"))
    assert 29 < (found.not_after - time.time()) / 86_400 <= 30


def test_a_second_certificate_is_for_the_same_key(state: Path, tmp_path: Path) -> None:
    assert issue(state, tmp_path / "out", "cellar", "home/cellar") == 0
    before = Identity.load(tmp_path / "out", "cellar")
    assert issue(state, tmp_path / "out", "cellar", "home/attic") == 0
    after = Identity.load(tmp_path / "out", "cellar")
    assert (after.key, after.certificate.subtrees) == (before.key, ("home/attic",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("cellar", "home/+"), "'home/+' is not a subtree"),
        (("a name", "home"), "'a name' is not a valid name of a node"),
        (("cellar", "home", "--network", "office"), "the network 'office' has no authority here"),
    ],
)
def test_what_is_wrong_is_said(
    state: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
) -> None:
    assert issue(state, tmp_path / "out", *arguments) != 0
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_one_of_several_authorities_has_to_be_named(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert issue(tmp_path / "nothing", tmp_path / "out", "cellar", "home") != 0
    assert "no network has an authority here" in capsys.readouterr().err
    Authority.create("office", time.time()).save(state / "office" / "authority")
    assert issue(state, tmp_path / "out", "cellar", "home") != 0
    assert "name one of house, office with --network" in capsys.readouterr().err
    assert issue(state, tmp_path / "out", "cellar", "home", "--network", "office") == 0
