"""An attacker records a gateway's records of sessions, replays them, and clears them (§5.5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count

import pytest

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from hbroker.gateway.records.client_id_claims import Stamp
from hbroker.gateway.records.record_authentication import SESSIONS, client_hash, sign
from hbroker.gateway.records.session_records import SessionEnd
from tests.gateway_native import wire
from tests.product.hostile.sniffed import SniffedRoot, sniffed_root
from tests.product.network import PATIENCE
from tests.product.node import started
from tests.product.peer import Intruder
from tests.waiting import until

CLIENT_IDS = (f"kept-{number}" for number in count(1))
AN_HOUR = b"\x11" + (3_600).to_bytes(4, "big")
"""Session Expiry Interval (MQTT 5 §3.1.2.11.2)"""


class Gate:
    """A root with a join key, a gateway, and a record of what passes between them."""

    def __init__(self, sniffed: SniffedRoot, port: int) -> None:
        self.root, self.target = sniffed.node.root, sniffed.target
        self._path, self._port = sniffed.path, port

    def connect(self, client: str) -> tuple[wire.Raw, bool]:
        """A client with a persistent session, and Session Present of its CONNACK."""
        connection = wire.Raw(self._port)
        connection.send(wire.connect(client, clean=False, properties=AN_HOUR))
        present, code = connection.expect(wire.CONNACK)[:2]
        assert code == 0
        return connection, bool(present)

    def written(self, client: str) -> list[pb.Publish]:
        """The records of the client's session that have passed, in order."""
        packets = (packet for recorded in list(self._path.recorded) for packet in recorded.datagram.packets)
        messages = (packet.publish for packet in packets if packet.HasField("publish"))
        return [message for message in messages if message.topic == SESSIONS + client_hash(client)]

    def leave_session(self, client: str) -> None:
        """The client subscribes twice and disconnects. Each step writes a record."""

        def write(step: Callable[[], object]) -> None:
            before = len(self.written(client))
            step()
            until(lambda: len(self.written(client)) > before, "a record is written", PATIENCE)

        connection, is_present = self.connect(client)
        assert not is_present
        for number, filter in enumerate(("home/oven", "home/lamp"), start=1):
            write(lambda: connection.send(wire.subscribe(number, (filter, 1))))  # noqa: B023
            connection.expect(wire.SUBACK)
        write(connection.socket.close)


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    with sniffed_root(tmp_path_factory.mktemp("keyed")) as sniffed:
        flags = ("--name", "gate", "--root", sniffed.node.root, "--join-key-file", str(sniffed.key))
        with started("gateway", *flags, "--listener", "127.0.0.1:0", "--workers", "1") as (_, ready):
            yield Gate(sniffed, int(ready.split()[-1].rpartition(":")[2]))


def verify_resumed(gate: Gate, client: str) -> None:
    """Checks that the client resumes its session, with both subscriptions and the queued message."""
    with sync.connect(gate.root) as publisher:
        publisher.publish("home/lamp", b"while it was offline", qos=1)
    connection, is_present = gate.connect(client)
    with connection:
        assert is_present
        assert connection.message()[:2] == ("home/lamp", b"while it was offline")


@pytest.mark.parametrize("kind", ["nothing", "an ending under another key", "an older record"])
def test_the_gateway_restores_a_record_that_another_client_overwrites(gate: Gate, kind: str) -> None:
    client = next(CLIENT_IDS)
    gate.leave_session(client)
    records = gate.written(client)
    true = records[-1]
    ending = sign(
        b"another key", true.topic, SessionEnd(client, Stamp(time.time_ns() // 1_000 + 1_000_000, 1)).body()
    )
    written = {"nothing": b"", "an ending under another key": ending, "an older record": records[0].payload}[
        kind
    ]
    assert records[0].payload != true.payload
    with sync.connect(gate.root) as attacker, attacker.subscribe(true.topic, qos=1) as retained_record:
        receipt = attacker.publish(true.topic, written, qos=1, retain=True)
        assert receipt.reason == pb.REASON_SUCCESS
        until(lambda: is_retained(retained_record, written), "it stands there", PATIENCE, glance_s=0)
        until(
            lambda: is_retained(retained_record, true.payload),
            "the gateway has put it right",
            PATIENCE,
            glance_s=0,
        )
    verify_resumed(gate, client)


def is_retained(retained_record: sync.Subscription, payload: bytes) -> bool:
    """Whether the next message that is retained there has this payload."""
    message = retained_record.next(timeout=1)
    return message is not None and message.payload == payload


def test_a_record_is_accepted_only_from_the_session_of_its_gateway(gate: Gate) -> None:
    """The recorded messages, under the gateway's publisher id, from a session of the attacker."""
    client = next(CLIENT_IDS)
    gate.leave_session(client)
    records = gate.written(client)
    dropped = gate.target.drops().get("foreign_publisher", 0)
    with closing(Intruder(gate.target, "127.0.0.9")) as attacker:
        attacker.send_deliveries(*(pb.Packet(publish=record) for record in records))
        attacker.await_answer()
        until(
            lambda: gate.target.drops().get("foreign_publisher", 0) >= dropped + len(records),
            "refused",
            PATIENCE,
        )
    with sync.connect(gate.root) as reader, reader.subscribe(records[0].topic, qos=1) as retained_record:
        message = retained_record.next(timeout=PATIENCE)
        assert message is not None
        assert message.payload == records[-1].payload
    verify_resumed(gate, client)
