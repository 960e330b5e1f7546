"""Contexts, as a user works with them: two real networks that require tokens, and nothing else in the
environment."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hbroker.identity.authority import Authority
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.product.network import PATIENCE, environment, network_of

FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
"""


@dataclass
class User:
    """A user elsewhere: nothing is known of networks but what is in the user's folder."""

    folder: Path
    roots: dict[str, str]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs `hbroker`, `hpub` or `hsub`."""
        module = {"hbroker": "hbroker"}.get(arguments[0], f"hbroker.clients.{arguments[0]}")
        kept = {key: value for key, value in environment().items() if not key.startswith("HBROKER_")}
        own = {"XDG_CONFIG_HOME": str(self.folder / "config"), "XDG_STATE_HOME": str(self.folder / "none")}
        return subprocess.run(
            [sys.executable, "-m", module, *arguments[1:]],
            cwd=self.folder,
            env={**kept, **own, **variables},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def tree(self, *flags: str, **variables: str) -> str:
        """The address of the root that `hbroker tree` shows."""
        done = self.run("hbroker", *flags, "tree", "--json", **variables)
        assert done.returncode == 0, done.stderr
        (node,) = json.loads(done.stdout)["nodes"]
        return str(node["address"])


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    folders = [tmp_path_factory.mktemp(name) for name in ("home", "office")]
    with network_of(FILE, folders[0]) as (home, at_home), network_of(FILE, folders[1]) as (work, at_work):
        made = User(tmp_path_factory.mktemp("user"), {"home": at_home, "office": at_work})
        for name, network in (("home", home), ("office", work)):
            (folder,) = network.directory.glob("*/authority")
            authority = Authority.load(folder)
            (made.folder / f"{name}.crt").write_bytes((folder / "authority.crt").read_bytes())
            rights = BlockRights(read=(f"{name}/#", "$SYS/#"), write=(f"{name}/#",), retain=True)
            token = create(authority.key, Block(rights, None, int(time.time()) + 3_600))
            (made.folder / f"{name}.token").write_text(token)
            files = ("--authority", f"{name}.crt", "--token", f"{name}.token")
            added = made.run("hbroker", "context", "add", name, "--root", made.roots[name], *files)
            assert added.returncode == 0, added.stderr
            assert token not in added.stdout
        yield made


def test_commands_and_clients_reach_the_network_of_the_context(user: User) -> None:
    assert user.run("hbroker", "context", "use", "home").returncode == 0
    assert user.tree() == user.roots["home"]
    assert user.tree("--context", "office") == user.roots["office"]
    assert user.tree(HBROKER_CONTEXT="office") == user.roots["office"]
    topic = ("-t", "home/kitchen/oven")
    done = user.run("hpub", *topic, "-m", "180", "-q", "1", "-r")
    assert done.returncode == 0, done.stderr
    found = user.run("hsub", *topic, "-C", "1", "-W", "30")
    assert (found.returncode, found.stdout) == (0, "180\n"), found.stderr
    refused = user.run("hpub", "--context", "office", *topic, "-m", "180", "-q", "1")
    assert (refused.returncode, "NOT_AUTHORIZED" in refused.stderr) == (1, True)
    program = "import hbroker; print(hbroker.sync.connect().root[1])"
    command = [sys.executable, "-c", program]
    own = {"XDG_CONFIG_HOME": str(user.folder / "config"), "HBROKER_CONTEXT": "office"}
    python = subprocess.run(
        command,
        env={**environment(), **own},
        cwd=user.folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert python.stdout.strip() == user.roots["office"].rpartition(":")[2]


def test_flags_and_variables_are_before_the_context(user: User) -> None:
    files = {"HBROKER_AUTHORITY": "office.crt", "HBROKER_TOKEN": "office.token"}
    variables = {"HBROKER_ROOT": user.roots["office"], **files}
    assert user.run("hbroker", "context", "use", "home").returncode == 0
    assert user.tree(**variables) == user.roots["office"]
    assert user.tree("--context", "home", **variables) == user.roots["office"]
    others = ("--cafile", "office.crt", "--token", "office.token", "-h", "127.0.0.1")
    port = user.roots["office"].rpartition(":")[2]
    done = user.run("hpub", *others, "-p", port, "-t", "office/lamp", "-m", "on", "-q", "1")
    assert done.returncode == 0, done.stderr
    refused = user.run("hpub", "--token", "office.token", "-t", "home/lamp", "-m", "on", "-q", "1")
    assert (refused.returncode, "NOT_AUTHORIZED" in refused.stderr) == (1, True), "home knows no such token"


def test_the_token_of_a_context_is_shown_to_no_other_network(user: User) -> None:
    assert user.run("hbroker", "context", "use", "home").returncode == 0
    flags = ("tree", "--timeout", "2", "--root", user.roots["office"])
    silent = user.run("hbroker", *flags)
    assert silent.returncode == 3, "without the authority of the office there is no answer"
    refused = user.run("hbroker", *flags, HBROKER_AUTHORITY="office.crt")
    assert (refused.returncode, "NOT_AUTHORIZED" in refused.stderr) == (1, True), refused.stderr


def test_errors_say_what_is_wrong_with_a_context(user: User) -> None:
    for program in (
        ("hbroker", "--context", "attic", "tree"),
        ("hpub", "--context", "attic", "-t", "a", "-n"),
    ):
        done = user.run(*program)
        assert done.returncode != 0
        assert "there is no context 'attic'; known here: home, office" in done.stderr
        assert "Traceback" not in done.stderr
    done = user.run("hbroker", "tree", HBROKER_CONTEXT="../home")
    assert (done.returncode, "is no name of a context" in done.stderr) == (2, True)
    user.run("hbroker", "context", "add", "broken", "--root", "h")
    (user.folder / "config/hbroker/contexts/broken.yaml").write_text("root: [")
    for broken in (("hbroker", "--context", "broken", "tree"), ("hsub", "--context", "broken", "-t", "a")):
        done = user.run(*broken)
        assert done.returncode != 0
        assert "broken.yaml:1: not valid YAML" in done.stderr
        assert "Traceback" not in done.stderr
    assert user.run("hbroker", "context", "remove", "broken").returncode == 0
