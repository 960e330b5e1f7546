"""`hbroker keys`: the keys of a network that is not started yet, and of nodes on other hosts."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import FAILED, USAGE
from hbroker.identity.authority import Authority
from hbroker.runtime.hosts.join_token import JoinToken
from hbroker.runtime.launcher.run_directory import RunDirectory

JOIN_KEY = "0123456789abcdef"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of a network with an authority and a join key."""
    house = tmp_path / "state" / "house"
    Authority.create("house", time.time()).save(house / "authority")
    (house / "join.key").write_text(f"{JOIN_KEY}\n")
    return tmp_path / "state"


def init(state: Path, text: str) -> int:
    """Runs `hbroker keys init` for a topology of this text, whose network is called `flat`."""
    file = state.parent / "flat.yaml"
    file.write_text(text)
    return main(["keys", "init", str(file), "--state-dir", str(state)])


def issue(state: Path, out: Path, *arguments: str) -> int:
    return main(["keys", "issue", *arguments, "--out", str(out), "--state-dir", str(state)])


def test_the_token_has_what_a_node_needs(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "cellar.join"
    flags = ("--days", "30", "--root", "192.0.2.1")
    assert issue(state, out, "cellar", "home/cellar", "home/attic", *flags) == 0
    said = f"{out}: cellar may own home/cellar, home/attic in house for 30 days (a secret)\n"
    assert capsys.readouterr().out == f"{said}on the other host: hbroker join --token cellar.join\n"
    assert out.stat().st_mode & 0o777 == 0o600
    token = JoinToken.read(out)
    assert (token.root, token.join_key, token.requires_tokens) == ("192.0.2.1:7700", JOIN_KEY.encode(), False)
    found = token.check("", time.time())
    assert found == Authority.load(state / "house" / "authority").verify(token.identity.chain[0], time.time())
    assert (found.name, found.subtrees) == ("cellar", ("home/cellar", "home/attic"))
    assert 29 < (found.not_after - time.time()) / 86_400 <= 30


def test_a_second_certificate_is_for_the_same_key(state: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert issue(state, out, "cellar", "home/cellar") == 0
    before = JoinToken.read(out).identity
    assert issue(state, out, "cellar", "home/attic") == 0
    after = JoinToken.read(out).identity
    assert (after.key, after.certificate.subtrees) == (before.key, ("home/attic",))


def test_the_file_of_another_is_not_replaced(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert issue(state, out, "cellar", "home/cellar") == 0
    before = out.read_bytes()
    assert issue(state, out, "attic", "home/attic") == USAGE
    assert "that is for the node cellar" in capsys.readouterr().err
    assert out.read_bytes() == before
    out.write_text("something else: 1\n")
    assert issue(state, out, "cellar", "home/cellar") == USAGE
    assert "the join token has an unknown key 'something else'" in capsys.readouterr().err


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
    (state / "house" / "authority" / "authority.key").rename(tmp_path / "elsewhere")
    assert issue(state, tmp_path / "out", "cellar", "home") != 0
    assert "authority.key: the key of the authority is not here" in capsys.readouterr().err
    (tmp_path / "elsewhere").rename(state / "house" / "authority" / "authority.key")
    Authority.create("office", time.time()).save(state / "office" / "authority")
    assert issue(state, tmp_path / "out", "cellar", "home") != 0
    assert "name one of house, office with --network" in capsys.readouterr().err
    assert issue(state, tmp_path / "out", "cellar", "home", "--network", "office") != 0
    assert "office: the network has no join key; make it with" in capsys.readouterr().err
    (state / "office" / "join.key").write_text(JOIN_KEY)
    assert issue(state, tmp_path / "out", "cellar", "home", "--network", "office") == 0


NODES = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
"""


def test_the_keys_of_a_network_are_made_once(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(state, NODES) == 0
    files = [path for path in (state / "flat").rglob("*") if path.is_file() and path.name != "lock"]
    made = {path.relative_to(state / "flat"): path.read_bytes() for path in files}
    assert {str(path) for path in made} == {
        *("authority/authority.crt", "authority/authority.key", "join.key", "operator.token"),
        *(f"identities/{node}.{ending}" for node in ("root", "kitchen") for ending in ("crt", "key")),
    }
    printed = capsys.readouterr().out
    assert all(str(state / "flat" / name) in printed for name in ("join.key", "authority", "identities"))
    assert init(state, NODES) == 0
    assert {path: (state / "flat" / path).read_bytes() for path in made} == made


def test_the_operators_token_is_made_once(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(state, NODES) == 0
    file = state / "flat" / "operator.token"
    made = file.read_bytes()
    assert file.stat().st_mode & 0o777 == 0o600
    assert f"{file}: the operator's token, for gateways and commands (a secret)" in capsys.readouterr().out
    assert init(state, NODES) == 0
    assert file.read_bytes() == made


def test_no_operators_token_is_made_if_none_is_required(state: Path) -> None:
    assert init(state, f"tokens: off{NODES}") == 0
    assert not (state / "flat" / "operator.token").exists()


def test_no_keys_are_made_for_a_network_without_security(
    state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert init(state, f"security: off{NODES}") == USAGE
    assert "the network's security is off" in capsys.readouterr().err
    assert not (state / "flat").exists()


def test_a_network_that_runs_keeps_its_keys(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = RunDirectory(state, "flat").acquire()
    try:
        assert init(state, NODES) == FAILED
    finally:
        os.close(lock)
    assert "'flat' runs already" in capsys.readouterr().err
    assert not (state / "flat" / "authority").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "a.yaml", "b.yaml"),
        ("init", "a.yaml", "--out", "there"),
        ("issue", "cellar", "--out", "there"),
        ("rotate", "house", "1", "--root", "192.0.2.1"),
        ("make", "cellar"),
        ("rotate", "house"),
        ("rotate", "house", "4"),
        ("rotate", "house", "1", "--days", "3"),
        ("init",),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[str, ...]) -> None:
    assert main(["keys", *arguments]) == USAGE


def test_three_steps_replace_the_authority(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Authority.load(state / "house" / "authority").certificate
    state_dir = ["--state-dir", str(state)]
    for step in ("1", "1", "2", "3"):
        assert main(["keys", "rotate", "house", step, *state_dir]) == 0
        assert capsys.readouterr().out.startswith(f"step {step} of 3 is done: ")
    assert Authority.load(state / "house" / "authority").certificate != before
    assert main(["keys", "rotate", "house", "2", *state_dir]) == USAGE
    assert "step 1 is next" in capsys.readouterr().err
    (state / "house" / "authority" / "authority.key").unlink()
    assert main(["keys", "rotate", "house", "1", *state_dir]) == USAGE
    assert "authority.key" in capsys.readouterr().err
