"""Every combination of subscription options (MQTT 5 §3.8.3.1), with every way to resume a session: the
number of copies is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import NamedTuple, TypeAlias

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.interop.clients import PATIENCE_S
from tests.interop.home import PLACES, HomeNetwork
from tests.interop.peer import Peer, connected, fields_of, properties_of
from tests.product.network import tree
from tests.waiting import until

SEND, SEND_IF_NEW, DO_NOT_SEND = range(3)
WAYS = ("drop", "disconnect", "takeover", "other gateway", "killed gateway")

Copy: TypeAlias = tuple[str, bytes, int, bool, tuple[int, ...]]
"""Topic, payload, QoS, retain flag, and subscription identifiers."""


class Row(NamedTuple):
    """One subscription. `identifier`: 0 means none."""

    topic: str
    qos: int
    no_local: bool
    as_published: bool
    handling: int
    identifier: int

    def copy(self, text: bytes, *, retained: bool) -> Copy:
        """The copy that the subscriber gets of a message with QoS 2."""
        return self.topic, text, self.qos, retained, (self.identifier,) if self.identifier else ()


def rows(stem: str) -> list[Row]:
    options = product(range(3), (False, True), (False, True), range(3), (False, True))
    return [
        Row(_topic(stem, n), qos, no_local, as_published, handling, n if is_known else 0)
        for n, (qos, no_local, as_published, handling, is_known) in enumerate(options, 1)
    ]


def _topic(stem: str, number: int) -> str:
    return f"{PLACES[number % len(PLACES)]}/options/{stem}/{number}"


def subscribe(peer: Peer, table: list[Row]) -> None:
    before = peer.subacks
    for row in table:
        options = SubscribeOptions(row.qos, row.no_local, row.as_published, row.handling)
        known = properties_of("SUBSCRIBE", SubscriptionIdentifier=row.identifier) if row.identifier else None
        peer.client.subscribe(row.topic, options=options, properties=known)
    until(lambda: peer.subacks == before + len(table), "every SUBACK", PATIENCE_S)


def publish(peer: Peer, table: list[Row], text: bytes, *, retained: bool = True) -> None:
    for message in [peer.client.publish(row.topic, text, 2, retain=retained) for row in table]:
        message.wait_for_publish(PATIENCE_S)


def copy_of(message: MQTTMessage) -> Copy:
    identifiers = tuple(fields_of(message).get("SubscriptionIdentifier", ()))
    return message.topic, bytes(message.payload), message.qos, message.retain, identifiers


def assert_received(peer: Peer, expected: list[Copy]) -> None:
    """The peer has received the expected copies once, and no others. An unexpected copy would come with
    the rest."""
    until(
        lambda: not Counter(expected) - Counter(map(copy_of, list(peer.received))),
        "every copy",
        PATIENCE_S,
        found=lambda: sorted((Counter(expected) - Counter(map(copy_of, list(peer.received)))).items())[:8],
    )
    assert Counter(map(copy_of, peer.received)) == Counter(expected)
    peer.received.clear()


def queued(home: HomeNetwork, name: str) -> list[int]:
    """The number of messages queued for a client, or in flight to it, at each owner that has its session."""
    nodes = tree(home.root).values()
    return [client["queued"] for node in nodes for client in node["clients"] if client["client"] == name]


@contextmanager
def resumed(home: HomeNetwork, former: Peer, name: str, way: str) -> Iterator[Peer]:
    """The session of `former`, on another connection."""
    if way == "disconnect":
        former.close()
    else:
        former.client.loop_stop()  # The client would reconnect by itself.
        socket = former.client.socket()
        assert socket is not None
        if way == "drop":
            socket.close()
    if way == "killed gateway":
        # Unacknowledged messages are sent again, also at QoS 2 (docs/gateway.md).
        until(
            lambda: queued(home, name) == [0] * len(PLACES), "every acknowledgement at its owner", PATIENCE_S
        )
        home.kill("one")
    gateway = "two" if way in ("other gateway", "killed gateway") else "one"
    with connected(home.place(gateway, name, kept=True)) as peer:
        assert peer.is_session_present == [True]
        yield peer


@pytest.mark.parametrize("way", WAYS)
def test_subscription_options_survive_the_resumption_of_a_session(home: HomeNetwork, way: str) -> None:
    name = way.replace(" ", "-")
    table = rows(name)
    with connected(home.place("two", f"{name}-other")) as other:
        publish(other, table, b"before")
        former = Peer(home.place("one", name, kept=True))
        former.connect()
        subscribe(former, table)
        assert_received(
            former, [row.copy(b"before", retained=True) for row in table if row.handling != DO_NOT_SEND]
        )
        with resumed(home, former, name, way) as peer:
            publish(peer, table, b"own")
            publish(other, table, b"others'")
            publish(other, table, b"passing", retained=False)
            local = [row.copy(b"own", retained=row.as_published) for row in table if not row.no_local]
            others = [row.copy(b"others'", retained=row.as_published) for row in table]
            assert_received(peer, local + others + [row.copy(b"passing", retained=False) for row in table])
            subscribe(peer, table)
            assert_received(
                peer, [row.copy(b"others'", retained=True) for row in table if row.handling == SEND]
            )
