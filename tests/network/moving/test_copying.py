"""The messages queued in a subtree are copied while the source still serves it (§5.4)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.events import LeaseLost
from hbroker.protocol.handover import phases
from hbroker.protocol.results import Published
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.sim.network import ClientHost, Faults
from tests.defects.variants import COPYING, Variant
from tests.network.networks import Tree

MILLISECOND = timers.SECOND // 1_000
SESSION_OPTIONS = SessionOptions("lamp", session_id("lamp"), expiry_s=300)
LOSSY = Faults(loss=0.05, delay_us=2_000, jitter_us=1_000, reordering=0.05, duplication=0.05)


class OfflineSession:
    """An offline session with many messages queued at `kitchen`. Its client connects for a while in the
    middle of a handover."""

    TOPIC = "home/kitchen/oven"

    def __init__(self, seed: int, faults: Faults) -> None:
        self.tree = tree = Tree.grow(seed, ["home", "home/kitchen", "home/bedroom"], faults)
        self.world = tree.world
        self.publisher = tree.client("publisher")
        self.received: list[int] = []
        self.sent = 0
        self.client = self._connect()
        self._leave()
        self.publish(1_500)
        self.world.run_until(lambda: self.acknowledged == self.sent)

    @property
    def acknowledged(self) -> int:
        return sum(isinstance(o, Published) and o.reason == 0 for o in self.publisher.results)

    def publish(self, messages: int) -> None:
        for _ in range(messages):
            self.sent += 1
            self.publisher.publish(self.TOPIC, b"%d " % self.sent + bytes(500), qos=2)

    def connect_for_a_while(self, stays: int) -> None:
        """The client connects and reads for `stays` microseconds."""
        self.client = self._connect()
        self.world.run(stays)
        self._leave()

    def read(self) -> None:
        """The client receives every message once and in order."""
        self.client = self._connect()
        self.world.run_until(lambda: len(self.client.messages) + len(self.received) >= self.sent)
        self.world.run(timers.SECOND)
        self._leave()
        assert self.received == list(range(1, self.sent + 1))

    def _connect(self) -> ClientHost:
        client = self.tree.client(session_options=SESSION_OPTIONS)
        client.subscribe("home/#", qos=2)
        self.world.run_until(lambda: bool(client.results))
        return client

    def _leave(self) -> None:
        self.client.leave()
        self.world.run(timers.SECOND // 2)
        self.received += [int(message.payload.split()[0]) for message in self.client.messages]
        self.client.kill()


def test_queued_messages_are_copied_while_the_source_serves_and_only_the_later_ones_after_the_stop() -> None:
    offline_session = OfflineSession(31, Faults(delay_us=1_000))
    world, tree = offline_session.world, offline_session.tree
    kitchen = tree.nodes["home/kitchen"]
    tree.order(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen", wait=False)
    while kitchen.owns(offline_session.TOPIC):
        offline_session.publish(1)
        world.run(MILLISECOND)
    since = offline_session.sent - 1_500
    counters = kitchen.engine.counters()
    assert since > 20
    assert counters["handover_copied"] >= 1_500 + since // 2
    assert counters["handover_rest"] < since // 2
    world.run_until(lambda: tree.nodes["home"].owns(offline_session.TOPIC))
    offline_session.read()


def move_with_a_visit(seed: int) -> None:
    """Messages arrive until the source stops. Meanwhile the session acknowledges some of them."""
    offline_session = OfflineSession(seed, LOSSY if seed % 2 else Faults(delay_us=1_000))
    kitchen = offline_session.tree.nodes["home/kitchen"]
    offline_session.tree.order(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen", wait=False)
    offline_session.publish(100)
    offline_session.connect_for_a_while((3 + 20 * seed) * MILLISECOND)
    while kitchen.owns(offline_session.TOPIC):  # so that some are queued behind the last that is copied
        offline_session.publish(1)
        offline_session.world.run(10 * MILLISECOND)
    offline_session.read()


@pytest.mark.parametrize("seed", range(6))
def test_a_message_that_is_acknowledged_during_the_copying_does_not_arrive_again(seed: int) -> None:
    move_with_a_visit(seed)


@pytest.mark.parametrize("variant", COPYING, ids=lambda variant: variant.name)
def test_defects_of_the_copying_are_found(variant: Variant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*variant.patch())
    found = 0
    for seed in range(4):
        with suppress(AssertionError, TimeoutError):
            move_with_a_visit(seed)
            continue
        found += 1
    assert found


def test_the_lease_is_renewed_while_the_subtree_is_handed_back(monkeypatch: pytest.MonkeyPatch) -> None:
    offline_session = OfflineSession(33, Faults(delay_us=1_000))
    kitchen = offline_session.tree.nodes["home/kitchen"]
    monkeypatch.setattr(phases, "PACKETS_PER_ITERATION", 1)
    monkeypatch.setattr(phases, "PAUSE", 2 * timers.LEASE // 1_500)
    offline_session.tree.order(kitchen, pb.ORDER_KIND_HAND_BACK, "home/kitchen", wait=False)
    began = offline_session.world.now
    while kitchen.owns(offline_session.TOPIC):
        offline_session.publish(1)
        offline_session.world.run(timers.SECOND)
    assert offline_session.world.now - began > 3 * timers.LEASE // 2
    assert not any(isinstance(node_event, LeaseLost) for node_event in kitchen.events)
    offline_session.read()
