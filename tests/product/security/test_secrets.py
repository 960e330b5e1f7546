"""No secret of a network is in what it says: logs, status, telemetry, audit, errors, and command lines."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from hbroker import Refused, sync
from hbroker.identity.authority import Authority
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, PROJECT, Network, environment, network_of

JOIN_KEY = "join-key-that-nobody-may-read-0123456789"
PASSWORD, WRONG_PASSWORD = "password-of-ann-4711", "guess-at-a-password-4712"
SESSION_KEY = "session-key-of-bob-4713"
FILE = f"""
tokens: required
auth: {{join_key: "{JOIN_KEY}", passwords: users}}
telemetry: {{interval: 1, file: 1}}
nodes:
  - {{name: root, subtree: "", listen: "127.0.0.1:7700"}}
  - {{name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}}
gateways:
  - {{name: gateway, listeners: [{{address: "127.0.0.1:1883"}}]}}
"""


@dataclass
class Said:
    """What was said somewhere, and the secrets that must not be in it."""

    secrets: dict[str, bytes]
    texts: dict[str, bytes] = field(default_factory=dict)

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Runs a program, and keeps what it says."""
        module = "hbroker" if arguments[0] == "hbroker" else f"hbroker.clients.{arguments[0]}"
        command = [sys.executable, "-m", module, *arguments[1:]]
        env = {**environment(), **variables}
        done = subprocess.run(
            command, cwd=PROJECT, env=env, capture_output=True, timeout=PATIENCE, check=False
        )
        self.texts[" ".join(arguments)] = done.stdout + done.stderr
        return done

    def leaks(self) -> list[str]:
        """Each secret that is somewhere, and where."""
        return [
            f"{secret} in {place}"
            for place, text in self.texts.items()
            for secret, value in self.secrets.items()
            if value in text
        ]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Network, str]]:
    hashed = subprocess.run(
        [sys.executable, "-m", "hbroker", "passwd", str(tmp_path / "users"), "ann"],
        input=f"{PASSWORD}\n",
        text=True,
        env=environment(),
        capture_output=True,
        timeout=PATIENCE,
        check=True,
    )
    assert PASSWORD not in hashed.stdout + hashed.stderr
    with network_of(FILE, tmp_path) as made:
        yield made


def key_lines(file: Path) -> Iterator[bytes]:
    """The content of a private key in PEM, without its frame."""
    yield from (line for line in file.read_bytes().splitlines() if line and not line.startswith(b"-"))


def secrets_of(state: Path, tokens: dict[str, str]) -> dict[str, bytes]:
    """The secrets by name. Of a token its last part: the first is of no use alone."""
    found = {
        "the join key": JOIN_KEY.encode(),
        "the password": PASSWORD.encode(),
        "the wrong password": WRONG_PASSWORD.encode(),
        "the session key": SESSION_KEY.encode(),
        "the hash of the password": (state.parent.parent / "users").read_bytes().strip().partition(b":")[2],
        "the operator's token": (state / "operator.token").read_bytes().strip()[-64:],
        **{f"the token of {name}": token.encode()[-64:] for name, token in tokens.items()},
    }
    for file in (state / "authority" / "authority.key", *(state / "identities").glob("*.key")):
        found |= {f"{file.name}, line {number}": line for number, line in enumerate(key_lines(file))}
    assert all(len(value) >= 16 for value in found.values())
    return found


def test_no_secret_is_in_what_a_network_says(running: tuple[Network, str], tmp_path: Path) -> None:
    need_mosquitto()
    network, root = running
    state = network.directory / "house"
    authority = Authority.load(state / "authority")
    stranger = Authority.create("house", time.time())
    narrow = Block(BlockRights(read=("home/#",), write=("home/#",)), None, int(time.time()) + 3_600)
    tokens = {"bob": create(authority.key, narrow), "a stranger": create(stranger.key, narrow)}
    files = {}
    for name, token in tokens.items():
        files[name] = str(tmp_path / f"{name.replace(' ', '-')}.token")
        Path(files[name]).write_text(token)
    said = Said(secrets_of(state, tokens))
    certificate = str(state / "authority" / "authority.crt")
    with (
        sync.connect(root) as operator,
        operator.subscribe("$SYS/#", qos=1) as events,
        sync.connect(
            root,
            authority=certificate,
            token=files["bob"],
            client_id="bob",
            session_key=SESSION_KEY,
            session_expiry=60,
        ) as bob,
        bob.subscribe("home/#", qos=1),
    ):
        bob.publish("home/kitchen/oven", "180", qos=1)
        with pytest.raises(Refused) as refused:
            bob.publish("attic", "no", qos=1)
        said.texts["an error of Python"] = repr(refused.value).encode()
        said.texts["what Python shows of a client"] = repr((bob, vars(bob))).encode()
        _have_mqtt_clients(network)
        _have_commands(said, network, root, files, tmp_path)
        # Of the nodes too, whatever has come by then.
        deadline = time.monotonic() + PATIENCE
        heard: list[bytes] = []
        while not any(b'"client_refused"' in each for each in heard):
            message = events.next(timeout=deadline - time.monotonic())
            assert message is not None, "the gateway tells whom it refused"
            heard.append(bytes(message.payload))
        said.texts["the audit and the status"] = b"\n".join(heard)
    _look_at_processes(said, network)
    network.close()
    for file in (*state.glob("*.log"), state / "state.json", *state.glob("telemetry/**/*.parquet")):
        said.texts[str(file.relative_to(state))] = file.read_bytes()
    assert {"root.log", "gateway.log", "state.json"} <= said.texts.keys()
    assert any(place.endswith(".parquet") for place in said.texts)
    assert b"token_refused" in said.texts["root.log"]
    assert b"client_refused" in said.texts["gateway.log"]
    assert said.leaks() == []
    said.texts["a copy"] = b"x" + said.secrets["the token of bob"]
    assert said.leaks() == ["the token of bob in a copy"], "it would be found"


def _have_mqtt_clients(network: Network) -> None:
    port = network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    base = ["mosquitto_pub", "-p", port, "-t", "home/a", "-m", "b", "-q", "1", "-u", "ann"]
    for password, is_right in ((PASSWORD, True), (WRONG_PASSWORD, False)):
        done = subprocess.run([*base, "-P", password], capture_output=True, timeout=PATIENCE, check=False)
        assert (done.returncode == 0) == is_right, done.stderr


def _have_commands(said: Said, network: Network, root: str, files: dict[str, str], folder: Path) -> None:
    host, _, port = root.rpartition(":")
    at = ("--root", root)
    where = (*at, "--state-dir", str(network.directory))
    assert said.run("hbroker", "tree", "--json", *at).returncode == 0
    assert said.run("hbroker", "clients", "--json", *where).returncode == 0
    assert said.run("hbroker", "status", "--json", "--state-dir", str(network.directory)).returncode == 0
    assert said.run("hbroker", "move", "home/kitchen", "root", *where).returncode == 0
    assert (
        said.run("hpub", "-d", "-h", host, "-p", port, "-t", "home/a", "-m", "b", "-q", "1").returncode == 0
    )
    to_attic = ("-h", host, "-p", port, "-t", "attic", "-m", "b", "-q", "1")
    for name in ("bob", "a stranger"):
        assert said.run("hpub", "-d", "--token", files[name], *to_attic).returncode == 1
        assert said.run("hbroker", "leave", "kitchen", *where, HBROKER_TOKEN=files[name]).returncode != 0
    # Files in each other's place, and a token that lacks its end.
    cut = folder / "cut.token"
    cut.write_text(Path(files["bob"]).read_text()[:-3])
    key = str(network.directory / "house" / "authority" / "authority.key")
    for flags in (("--token", str(cut)), ("--token", key), ("--cafile", key), ("--cafile", files["bob"])):
        done = said.run("hpub", *flags, "-h", host, "-p", port, "-t", "home/a", "-m", "b", "-q", "1")
        assert done.returncode == 1
    wrong = folder / "wrong.yaml"
    wrong.write_text(FILE.replace("telemetry:", "telemetri:"))
    assert said.run("hbroker", "check", str(wrong)).returncode == 2
    wrong.write_text(FILE.replace(f'"{JOIN_KEY}"', f'["{JOIN_KEY}"]'))
    assert said.run("hbroker", "check", str(wrong)).returncode == 2
    added = ("add", "house", "--root", root, "--token", files["bob"])
    config = {"XDG_CONFIG_HOME": str(folder / "config")}
    assert said.run("hbroker", "context", *added, **config).returncode == 0
    assert said.run("hbroker", "context", "show", "house", **config).returncode == 0
    said.texts["the context"] = next((folder / "config").glob("**/house.yaml")).read_bytes()


def _look_at_processes(said: Said, network: Network) -> None:
    launcher = psutil.Process(network.process.pid)
    found = [launcher, *launcher.children(recursive=True)]
    assert len(found) >= 4, "the launcher, two nodes and a gateway"
    for process in found:
        said.texts[f"the command line of {process.pid}"] = json.dumps(process.cmdline()).encode()
