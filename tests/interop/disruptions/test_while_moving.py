"""Owners hand over a subtree under the load of MQTT clients at both gateways, without an effect on the
clients."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import groupby

from tests import waiting
from tests.interop.clients import PATIENCE_S
from tests.interop.disruptions.load import Load
from tests.interop.home import GATEWAYS, HomeNetwork
from tests.interop.peer import Peer, connected
from tests.product.network import run_hbroker

SUBTREE, HOME, ELSEWHERE = "home/kitchen", "kitchen", "livingroom"
BETWEEN = 100
"""The number of acknowledged messages of each publisher between two moves, at least."""


def move(home: HomeNetwork, node: str) -> None:
    run_hbroker("move", SUBTREE, node, "--root", home.root, *home.state, check=True)


def test_no_connection_and_no_message_is_lost_while_a_subtree_moves(home: HomeNetwork) -> None:
    """Each gateway has a subscriber and a publisher; one subscriber has a kept session."""
    with ExitStack() as around:

        def peer(gateway: str, name: str, **fields: bool) -> Peer:
            return around.enter_context(connected(home.place(gateway, f"{name}-{gateway}", **fields)))

        subscribers = [peer(gateway, "hears", kept=gateway == "two") for gateway in GATEWAYS]
        publishers = [peer(gateway, "says") for gateway in GATEWAYS]
        for subscriber in subscribers:
            subscriber.subscribe((f"{SUBTREE}/load/+", 1))
        loads = [
            around.enter_context(Load(publisher, gateway, 1, [SUBTREE]))
            for publisher, gateway in zip(publishers, GATEWAYS, strict=True)
        ]
        for node in (ELSEWHERE, HOME, ELSEWHERE, HOME):
            for load in loads:
                load.await_acknowledged(len(load.acknowledged()) + BETWEEN)
            move(home, node)
        for load in loads:
            load.await_acknowledged(len(load.acknowledged()) + BETWEEN)
            load.stop()
        for load in loads:
            load.await_acknowledged(len(load.sent))
        sent = {payload for load in loads for _, payload in load.sent}
        for subscriber in subscribers:
            await_all(subscriber, sent)
            assert is_in_order(subscriber)
        assert [peer.is_session_present for peer in (*subscribers, *publishers)] == [[False]] * 4


def await_all(subscriber: Peer, sent: set[bytes]) -> None:
    waiting.until(
        lambda: subscriber.payloads() >= sent,
        "all has come",
        PATIENCE_S,
        found=lambda: sorted(sent - subscriber.payloads())[:5],
    )


def is_in_order(subscriber: Peer) -> bool:
    """Whether the messages of each publisher were received in order, apart from repeated ones (QoS 1)."""
    words = sorted((bytes(message.payload).split() for message in subscriber.received), key=lambda w: w[0])
    for _, of_one in groupby(words, key=lambda word: word[0]):
        numbers = [int(number) for _, number in of_one]
        first_times = list(dict.fromkeys(numbers))
        if first_times != sorted(first_times):
            return False
    return True
