"""A network as `hbroker up` starts it: all commands work, and nobody reads along or takes part in clear."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from hbroker import ConfigError, Message, Unreachable, sync
from hbroker._proto import packet_pb2 as pb
from hbroker.addresses import parse_address
from hbroker.identity.authority import Authority
from hbroker.identity.node_identity import Identity
from tests.needs import need_mosquitto
from tests.product.hostile.sniffed import SniffedPath
from tests.product.network import (
    PATIENCE,
    PROJECT,
    Network,
    environment,
    hbroker,
    network_of,
    network_up,
    run_hbroker,
)
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:1883"}]}
"""
SECRET = b"nobody reads this on the way"


class SecureNetwork:
    """A running network with security, and what a client on this host needs."""

    def __init__(self, network: Network, root: str) -> None:
        self.network, self.root = network, root
        self.folder = network.directory / "house"
        self.authority = self.folder / "authority" / "authority.crt"
        self.token = self.folder / "operator.token"

    def connect(self) -> sync.Client:
        return sync.connect(self.root, authority=self.authority, token=self.token)

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs a command that must succeed, with the credentials in its environment."""
        credentials = {"HBROKER_AUTHORITY": str(self.authority), "HBROKER_TOKEN": str(self.token)}
        env = {**environment(), **credentials, "HBROKER_ROOT": self.root}
        return subprocess.run(
            [sys.executable, "-m", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
            cwd=PROJECT,
            env=env,
        )


def two(messages: sync.Subscription) -> list[Message]:
    """The next two messages."""
    return [message for _ in range(2) if (message := messages.next(timeout=PATIENCE)) is not None]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNetwork]:
    with network_of(FILE, tmp_path_factory.mktemp("secure")) as (network, root):
        yield SecureNetwork(network, root)


def test_clients_and_commands_work_with_the_authority(secure: SecureNetwork) -> None:
    with secure.connect() as client, client.subscribe("home/#", qos=1) as messages:
        secure.run("hbroker.clients.hpub", "-t", "home/kitchen/oven", "-m", "180", "-q", "2")
        secure.run("hbroker.clients.hpub", "--cafile", secure.authority, "-t", "home/attic", "-m", "19")
        received = {message.topic: message.payload for message in two(messages)}
    assert received == {"home/kitchen/oven": b"180", "home/attic": b"19"}
    assert {node["name"] for node in json.loads(secure.run("hbroker", "tree", "--json").stdout)["nodes"]} == {
        "root",
        "kitchen",
    }
    moved = secure.run("hbroker", "move", "home/attic", "kitchen", "--state-dir", secure.network.directory)
    assert "went from root to kitchen" in moved.stdout
    with secure.connect() as client:
        assert client.resolve("home/attic").owner == "kitchen"


def test_mqtt_clients_reach_the_network_through_the_gateway(secure: SecureNetwork) -> None:
    need_mosquitto()
    port = secure.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    with secure.connect() as client, client.subscribe("mqtt/#", qos=1) as messages:
        command = ["mosquitto_pub", "-p", port, "-t", "mqtt/topic", "-m", "stock", "-q", "1"]
        subprocess.run(command, timeout=PATIENCE, check=True)
        message = messages.next(timeout=PATIENCE)
    assert message is not None
    assert message.payload == b"stock"


def test_a_node_that_was_killed_is_back_with_its_clients(secure: SecureNetwork) -> None:
    with secure.connect() as client, client.subscribe("home/kitchen/#", qos=1) as messages:
        client.publish("home/kitchen/oven", "before", qos=1)
        secure.network.kill_node("kitchen")
        client.publish("home/kitchen/oven", "after", qos=1, timeout=PATIENCE)
        received = [message.payload for message in two(messages)]
    assert received == [b"before", b"after"]


@pytest.fixture
def another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process is started with finds no network of this host."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "no_state"))


@pytest.mark.usefixtures("another_host")
def test_a_stranger_gets_no_answer(secure: SecureNetwork, tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="does HBROKER_AUTHORITY name the certificate of its authority"):
        sync.connect(secure.root, timeout=1.0)
    Authority.create("house", 1.8e9).save(tmp_path)
    with pytest.raises(Unreachable):
        sync.connect(secure.root, timeout=1.0, authority=tmp_path / "authority.crt")
    (tmp_path / "no.crt").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"no\.crt"):
        sync.connect(secure.root, authority=tmp_path / "no.crt")


@pytest.mark.usefixtures("another_host")
def test_a_node_of_another_host_joins_with_an_identity_of_the_authority(
    secure: SecureNetwork, tmp_path: Path
) -> None:
    authority = Authority.load(secure.authority.parent)
    now = secure.authority.stat().st_mtime
    authority.issue("cellar", ["home/cellar"], now).save(tmp_path)
    flags = [
        *("--name", "cellar", "--subtree", "home/cellar", "--listen", "127.0.0.1:0", "--root", secure.root),
        *("--join-key-file", str(secure.folder / "join.key"), "--state-dir", str(tmp_path / "none")),
    ]
    without = run_hbroker("node", *flags, "--authority", secure.authority)
    assert (without.returncode, "add --identity DIR" in without.stderr) == (2, True)
    log = tmp_path / "cellar.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [*hbroker("node"), *flags, "--authority", secure.authority, "--identity", tmp_path],
            stdout=said,
            stderr=said,
            cwd=PROJECT,
            env=environment(),
        )
    try:
        until(lambda: "ready cellar" in log.read_text(), "it has joined", PATIENCE, found=log.read_text)
        with secure.connect() as client:
            assert client.resolve("home/cellar/wine").owner == "cellar"
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_who_records_the_datagrams_reads_nothing_of_them(tmp_path: Path) -> None:
    with SniffedPath() as path:
        (near, port), (far, _) = path.near, path.far
        file = tmp_path / "house.yaml"
        root = f'{{name: root, subtree: "", listen: "{far}:{port}", advertise: "{near}:{port}"}}'
        file.write_text(f"nodes:\n  - {root}\n")
        with (
            network_up(file, tmp_path / "state", ()) as (network, address),
            SecureNetwork(network, address).connect() as client,
        ):
            for qos in (0, 1, 2):
                client.publish(f"secret/{qos}", SECRET, qos=qos)
            client.drain()
    recorded = [datagram.data for datagram in path.recorded]
    assert len(recorded) > 5
    assert not [data for data in recorded if SECRET in data or b"secret/" in data]


def test_a_network_keeps_its_authority(tmp_path: Path) -> None:
    authorities = []
    for _ in range(2):
        with network_of(FILE, tmp_path) as (network, root):
            secure = SecureNetwork(network, root)
            authorities.append(secure.authority.read_bytes())
            with secure.connect() as client:
                client.publish("home/kitchen/oven", "180", qos=1)
            assert os.stat(secure.authority.parent / "authority.key").st_mode & 0o777 == 0o600
    assert authorities[0] == authorities[1]


def test_sighup_renews_certificates_and_peers_stay(secure: SecureNetwork) -> None:
    file, log = secure.folder / "identities" / "kitchen.crt", secure.folder / "kitchen.log"
    authority = Authority.load(secure.authority.parent)
    now = file.stat().st_mtime
    key = Identity.load(file.parent, "kitchen").key
    with secure.connect() as client, client.subscribe("home/kitchen/#", qos=1) as messages:
        client.publish("home/kitchen/oven", "before", qos=1)
        authority.issue("kitchen", ["home/kitchen"], now, validity_s=3_600, key=key).save(file.parent)
        reloaded = log.read_text().count("reloaded")
        secure.network.process.send_signal(signal.SIGHUP)
        until(lambda: log.read_text().count("reloaded") > reloaded, "it has read its files again", PATIENCE)
        client.publish("home/kitchen/oven", "after", qos=1)
        assert [message.payload for message in two(messages)] == [b"before", b"after"]
    renewed = Identity.load(file.parent, "kitchen")
    assert renewed.key == key
    assert renewed.certificate.not_after > now + 300 * 86_400


@pytest.mark.usefixtures("another_host")
def test_who_sends_in_clear_gets_no_more_than_he_sent(secure: SecureNetwork) -> None:
    kinds = [field.name for field in pb.Packet.DESCRIPTOR.oneofs_by_name["body"].fields]
    with (
        secure.connect() as client,
        client.subscribe("#", qos=1) as messages,
        closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as stranger,
    ):
        stranger.connect(parse_address(secure.root))
        sent = sum(
            stranger.send(in_clear(kind, session)) for kind in kinds for session in (0, 1) for _ in range(20)
        )
        client.publish("home/attic", "still served", qos=1)
        message = messages.next(timeout=PATIENCE)
        assert message is not None
        assert message.payload == b"still served"
        stranger.setblocking(False)
        answers = list(iter(partial(received_by, stranger), None))
    assert sum(map(len, answers)) <= sent
    assert not [data for data in answers if b"home/" in data or b"kitchen" in data]
    until(lambda: drops_of_root(secure).get("seal_forged", 0) >= 40 * len(kinds), "all are dropped", PATIENCE)


def drops_of_root(secure: SecureNetwork) -> dict[str, int]:
    """What the root counts as dropped, by reason."""
    nodes = json.loads(secure.run("hbroker", "tree", "--json").stdout)["nodes"]
    drops: dict[str, int] = next(node["drops"] for node in nodes if node["name"] == "root")
    return drops


def in_clear(kind: str, session: int) -> bytes:
    """A datagram with an empty packet of one kind. `session`: 0: outside of any session."""
    datagram = pb.Datagram(padding=bytes(64))
    datagram.header.session, datagram.header.number = session, session
    packet = datagram.packets.add(delivery=session)
    field = pb.Packet.DESCRIPTOR.fields_by_name[kind]
    if field.message_type is None:
        packet.again = b"payload"
    else:
        getattr(packet, kind).SetInParent()
    return datagram.SerializeToString()


def received_by(peer: socket.socket) -> bytes | None:
    """The next datagram that has arrived already, if there is one."""
    try:
        return peer.recv(65_536)
    except (BlockingIOError, ConnectionRefusedError):
        return None


def test_a_network_whose_security_is_off_says_so(tmp_path: Path) -> None:
    with network_of(f"security: off\n{FILE}", tmp_path) as (network, root):
        shown = run_hbroker("tree", "--root", root, check=True)
        assert "SECURITY IS OFF at root, kitchen" in shown.stderr
        (log,) = network.directory.glob("*/kitchen.log")
        assert "security_off" in log.read_text()
        assert not list(network.directory.glob("*/authority"))


def test_a_network_whose_security_is_on_says_nothing_of_it(secure: SecureNetwork) -> None:
    assert secure.run("hbroker", "tree").stderr == ""
