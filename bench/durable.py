"""What it costs to keep messages for sessions that are offline: `python -m bench.durable`.

Eight persistent sessions subscribe at QoS 1 and leave. Eight publishers then publish 64 bytes at QoS 1, one
topic for each session, so that every message waits. Counted are the acknowledgements, the CPU time of all
processes of the broker, and the bytes on its disk. Then one publisher publishes message by message, and the
time until each acknowledgement is measured. Rounds of the brokers alternate.

At last the bytes on disk are measured of a message for which 1 to 1,000 sessions wait at a node.

They promise different things with an acknowledgement:

- hbroker `fsync`, and nats-server with `sync_interval: always`: the message survives a loss of power.
- hbroker `none`, mosquitto, and nats-server by default: it does not. mosquitto writes its database once a
  second here, nats-server syncs every two minutes.

All but hbroker's node get MQTT 3.1.1, because nats-server has no MQTT 5. The node gets its messages from a
native client.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import click
from rich.console import Console
from rich.table import Table

from bench.command import broker_and_load_cpus
from bench.contestants.brokers import Broker
from bench.contestants.networks import Gateway, Node
from bench.contestants.peers import Mosquitto, Nats
from hbroker import sync
from hbroker.addresses import format_address
from hbroker.bench.brokers import running
from hbroker.bench.chain import Topology
from hbroker.bench.launching import NoAnswer, on_cpus
from hbroker.bench.plan import Address
from hbroker.bench.process import cpu_seconds

_SESSIONS: Final = 8
_PAYLOAD: Final = bytes(64)
_WINDOW: Final = 512
"""Messages in flight of each MQTT publisher."""
_IDS: Final = range(1, _WINDOW + 1)
_BATCH: Final = 20_000
"""Messages of one call of the native client."""
_WAITING: Final = (1, 10, 100, 1_000)
"""Sessions that wait for each message."""
_STORED: Final = 2_000
"""Messages that are stored for all of them."""
_ALONE: Final = 300
"""Messages that are published one by one."""
_EXPIRY_S: Final = 3_600
_SILENCE_S: Final = 30.0
_LIMITS: Final = {"queue_messages": 100_000_000, "queue_bytes": 1 << 32}
_CONNACK, _SUBACK, _PUBACK = 2, 9, 4


@dataclass(frozen=True, slots=True)
class Measured:
    """One round. `latencies_s`: of the messages that were published one by one."""

    messages: int
    seconds: float
    cpu_s: float
    disk_bytes: int
    latencies_s: list[float]


class _Load(Protocol):
    """Persistent sessions that are offline, and publishers for them."""

    def publish_for(self, seconds: float) -> int:
        """Publishes for so long. Returns how many messages were acknowledged, which are all."""

    def publish_one(self) -> None:
        """Publishes a message, and waits for its acknowledgement."""

    def close(self) -> None: ...


class StoredNode(Node):
    """A node with a store."""

    def __init__(self, durability: str) -> None:
        self._durability = durability
        self.name = f"hbroker, {durability}"

    def flags(self, directory: Path) -> list[str]:
        bounds = [
            word for name, bound in _LIMITS.items() for word in (f"--{name.replace('_', '-')}", str(bound))
        ]
        return ["--memory", str(directory / "state"), "--durability", self._durability, *bounds]


class StoredGateway(Gateway):
    """A gateway, and the owner of every topic, which has a store."""

    name = "hbroker, fsync, by the gateway"

    def topology(self) -> Topology:
        return {**super().topology(), "limits": _LIMITS}


class StoringMosquitto(Mosquitto):
    """mosquitto with its database on disk."""

    name = "mosquitto, persistence"

    def _settings(self, port: int, directory: Path) -> str:
        kept = f"persistence true\npersistence_location {directory}/\nautosave_interval 1\nuser root\n"
        return super()._settings(port, directory).replace("persistence false\n", kept)


class SyncingNats(Nats):
    """nats-server, which syncs each message. It can do so from version 2.10 on."""

    name = "nats-server, sync always"

    def version(self) -> str | None:
        version = super().version()
        found = None if version is None else re.match(r"(\d+)\.(\d+)", version)
        return version if found and (int(found[1]), int(found[2])) >= (2, 10) else None

    def _settings(self, port: int, directory: Path) -> str:
        settings = json.loads(super()._settings(port, directory))
        settings["jetstream"]["sync_interval"] = "always"
        return json.dumps(settings)


class NativeLoad:
    """hbroker's own clients."""

    def __init__(self, address: Address) -> None:
        root = f"{address[0]}:{address[1]}"
        for number in range(_SESSIONS):
            name = f"away{number}"
            with sync.connect(root, client_id=name, session_expiry=_EXPIRY_S, session_key="k") as client:
                client.subscribe(f"t/{number}", qos=1)
        self._client = sync.connect(root)

    def publish_for(self, seconds: float) -> int:
        until, count = time.monotonic() + seconds, 0
        messages = [(f"t/{number % _SESSIONS}", _PAYLOAD) for number in range(_BATCH)]
        while time.monotonic() < until:
            self._client.publish_many(messages, qos=1, timeout=_SILENCE_S)
            count += len(messages)
        return count

    def publish_one(self) -> None:
        self._client.publish("t/0", _PAYLOAD, qos=1, timeout=_SILENCE_S)

    def close(self) -> None:
        self._client.close()


class MqttLoad:
    """MQTT clients, in one loop."""

    def __init__(self, address: Address) -> None:
        for number in range(_SESSIONS):
            away = _Connection(address, f"away{number}", is_clean=False)
            away.send(_packet(0x82, b"\x00\x01" + _text(f"t/{number}") + b"\x01"))
            away.wait_for(_SUBACK)
            away.close()
        self._connections = [_Connection(address, f"p{number}") for number in range(_SESSIONS)]
        for number, each in enumerate(self._connections):
            topic = _text(f"t/{number}")
            each.packets = [_packet(0x32, topic + id.to_bytes(2) + _PAYLOAD) for id in _IDS]

    def publish_for(self, seconds: float) -> int:
        until = time.monotonic() + seconds
        by_descriptor = {each.fileno(): each for each in self._connections}
        poll = select.epoll()
        for each in self._connections:
            poll.register(each.fileno(), select.EPOLLIN)
            each.send(b"".join(each.packets))
            each.in_flight = _WINDOW
        count = 0
        while any(each.in_flight for each in self._connections):
            ready = poll.poll(_SILENCE_S)
            if not ready:
                raise NoAnswer("no PUBACK comes")
            is_over = time.monotonic() >= until
            for descriptor, _ in ready:
                each = by_descriptor[descriptor]
                answered = each.take(_PUBACK)
                count += len(answered)
                each.in_flight -= len(answered)
                if not is_over:
                    each.in_flight += len(answered)
                    each.send(b"".join(each.packets[id - 1] for id in answered))
        poll.close()
        return count

    def publish_one(self) -> None:
        first = self._connections[0]
        first.send(first.packets[0])
        first.wait_for(_PUBACK)

    def close(self) -> None:
        for each in self._connections:
            each.close()


class _Connection:
    """One MQTT client. `packets`: its PUBLISH packets, by packet id from 1 on."""

    def __init__(self, address: Address, client_id: str, *, is_clean: bool = True) -> None:
        self._socket = socket.create_connection(address, _SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self.in_flight = 0
        self.packets: list[bytes] = []
        head = _text("MQTT") + bytes([4, is_clean << 1, 0, 0])
        self.send(_packet(0x10, head + _text(client_id)))
        self.wait_for(_CONNACK)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, packets: bytes) -> None:
        self._socket.sendall(packets)

    def take(self, kind: int) -> list[int]:
        """Reads what has arrived. Returns the packet ids of the packets of this kind. Raises NoAnswer."""
        got = self._socket.recv(1 << 16)
        if not got:
            raise NoAnswer("the broker ended a connection")
        data, at, ids = self._received + got, 0, []
        while at + 2 <= len(data) and at + 2 + data[at + 1] <= len(data):
            if data[at] >> 4 == kind:
                ids.append(int.from_bytes(data[at + 2 : at + 4]))
            at += 2 + data[at + 1]
        self._received = data[at:]
        return ids

    def wait_for(self, kind: int) -> None:
        """Returns when a packet of this kind has come."""
        while not self.take(kind):
            pass

    def close(self) -> None:
        self._socket.close()


def _packet(first: int, body: bytes) -> bytes:
    """A short packet of MQTT 3.1.1 (§2)."""
    assert len(body) < 1 << 7
    return bytes([first, len(body)]) + body


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def measure(
    broker: Broker, seconds: float, cpus: tuple[frozenset[int] | None, frozenset[int] | None]
) -> Measured:
    """Runs one round. Raises NoAnswer."""
    with TemporaryDirectory(prefix="hbroker-bench-") as name, on_cpus(cpus[1]):
        directory = Path(name)
        with running(broker.start, directory, cpus[0]) as started:
            load: _Load = (NativeLoad if broker.transport == "hbroker" else MqttLoad)(started.address)
            before, began = cpu_seconds(started.pids), time.monotonic()
            messages = load.publish_for(seconds)
            took, cpu_s = time.monotonic() - began, cpu_seconds(started.pids) - before
            size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
            latencies = []
            for _ in range(_ALONE):
                sent = time.perf_counter()
                load.publish_one()
                latencies.append(time.perf_counter() - sent)
            load.close()
            return Measured(messages, took, cpu_s, size, sorted(latencies))


def sync_latencies() -> list[float]:
    """How long the disk of the temporary folder takes to sync 4 KiB (fdatasync), in seconds, sorted."""
    found = []
    with TemporaryDirectory(prefix="hbroker-bench-") as name:
        file = os.open(Path(name) / "sync", os.O_CREAT | os.O_WRONLY)
        for number in range(200):
            os.pwrite(file, bytes(4_096), number * 4_096)
            began = time.perf_counter()
            os.fdatasync(file)
            found.append(time.perf_counter() - began)
        os.close(file)
    return sorted(found)


def bytes_of_message(sessions: int) -> float:
    """The bytes in a node's log of a message of 64 bytes for which so many sessions wait."""
    with TemporaryDirectory(prefix="hbroker-bench-") as name:
        directory = Path(name)
        with running(StoredNode("fsync").start, directory, None) as started:
            root = format_address(started.address)
            for number in range(sessions):
                client_id = f"away{number}"
                with sync.connect(
                    root, client_id=client_id, session_expiry=_EXPIRY_S, session_key="k"
                ) as client:
                    client.subscribe("t/#", qos=1)
            before = _log_bytes(directory)
            with sync.connect(root) as client:
                client.publish_many([("t/0", _PAYLOAD)] * _STORED, qos=1, timeout=_SILENCE_S)
            return (_log_bytes(directory) - before) / _STORED


def _log_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.rglob("*.store/log/*.log"))


_BROKERS: Final[tuple[Callable[[], Broker], ...]] = (
    lambda: StoredNode("fsync"),
    lambda: StoredNode("none"),
    StoredGateway,
    StoringMosquitto,
    SyncingNats,
    Nats,
)
_COLUMNS: Final = ("acknowledged/s", "for each CPU-second", "bytes each", "p50 ms", "p99 ms")


@click.command
@click.option("--rounds", default=3, show_default=True, help="Of each broker.")
@click.option("--duration", default=3.0, show_default=True, help="Seconds of each round.")
def main(rounds: int, duration: float) -> None:
    """Measure what it costs to keep messages on disk, beside other brokers."""
    made = [make() for make in _BROKERS]
    brokers = [broker for broker in made if broker.version() is not None]
    results: dict[str, list[Measured]] = {broker.name: [] for broker in brokers}
    cpus = broker_and_load_cpus()
    console = Console(stderr=True)
    for broker in made:
        if broker not in brokers:
            console.print(f"{broker.name}: not installed, or too old")
    for number in range(rounds):
        for broker in brokers:
            console.print(f"round {number + 1} of {rounds}: {broker.name}", style="dim")
            try:
                results[broker.name].append(measure(broker, duration, cpus))
            except (NoAnswer, OSError) as failed:
                console.print(f"{broker.name}: {failed}")
    disk = sync_latencies()
    table = Table("", *_COLUMNS)
    for name, found in results.items():
        if found:
            table.add_row(name, *_row(found))
    Console().print(table)
    for sessions in _WAITING:
        print(f"{sessions:5,} sessions wait: {bytes_of_message(sessions):6,.0f} bytes on disk for a message")
    print(f"fdatasync of this disk: p50 {disk[len(disk) // 2] * 1e3:.2f} ms, p99 {_p99(disk) * 1e3:.2f} ms")


def _row(found: list[Measured]) -> list[str]:
    return [
        f"{median(each.messages / each.seconds for each in found):,.0f}",
        f"{median(each.messages / each.cpu_s for each in found):,.0f}",
        f"{median(each.disk_bytes / each.messages for each in found):,.0f}",
        f"{median(each.latencies_s[_ALONE // 2] for each in found) * 1e3:.2f}",
        f"{median(_p99(each.latencies_s) for each in found) * 1e3:.2f}",
    ]


def _p99(ordered: list[float]) -> float:
    return ordered[len(ordered) * 99 // 100]


if __name__ == "__main__":
    sys.exit(main())
