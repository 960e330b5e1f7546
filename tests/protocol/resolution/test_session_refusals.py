"""An owner refuses a session for the client, because it has too many (§3.6). The client tries again,
seldom, and reports the reason in the end."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from hbroker._native import LinkDownEvent, UnresolvedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address
from hbroker.protocol.resolution.resolver import SESSION_REFUSAL_TIMEOUT, SessionRefusals
from hbroker.protocol.results import Resolved, Subscribed, SubscriptionFailed, WillRefused
from hbroker.protocol.timers import RETRY_MOST
from hbroker.protocol.wills.client_will import Will
from tests.protocol.client_world import SECOND, World

QUOTA = pb.REASON_QUOTA_EXCEEDED
OWNER: Address = ("10.0.0.1", 7000)


class FullWorld(World):
    """A world whose root refuses sessions while it is full. The core sends the waiting messages once a
    zone is known."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = True
        self.tried: list[int] = []
        """The times at which a link was begun."""
        self.delivered: set[str] = set()

    def connect(self, address: Address, token: bytes = b"") -> int:
        if not self.is_full or address in self.links:
            return super().connect(address, token)
        self.tried.append(self.now)
        link = self.links[address] = next(self._link_ids)
        self.later(lambda: self._refuse(address, link))
        return link

    def send(self, link: int, packet: bytes) -> bool:
        return True if self.is_full and link in self.links.values() else super().send(link, packet)

    def install_zone(self, scope: str, cuts: object, owner: Address, token: bytes, ttl_us: int) -> None:
        waiting = set(self.waiting)
        super().install_zone(scope, cuts, owner, token, ttl_us)
        self.delivered |= waiting - self.waiting
        if self.delivered:
            self.connect(owner)

    def _refuse(self, address: Address, link: int) -> None:
        del self.links[address]
        self.forget_zones(address)
        self.waiting |= self.delivered
        self.delivered.clear()
        for topic in sorted(self.waiting):
            self.event(UnresolvedEvent(topic, None))
        self.event(LinkDownEvent(link, address, 1, False, "refused"))


def pauses(times: list[int]) -> list[float]:
    return [(later - earlier) / SECOND for earlier, later in pairwise(times)]


def test_messages_wait_while_the_owner_is_full_and_then_fail_with_the_reason() -> None:
    world = FullWorld()
    for topic in ("a", "b", "c"):
        world.publish_waits_for(topic)
    began = world.now
    assert world.run(lambda: len(world.rejected) == 3, seconds=20)
    assert world.rejected == dict.fromkeys("abc", QUOTA)
    assert SESSION_REFUSAL_TIMEOUT <= world.now - began <= SESSION_REFUSAL_TIMEOUT + 2 * SECOND
    assert 3 <= len(world.tried) <= 7
    assert pauses(world.tried)[-1] > 4 * pauses(world.tried)[0]


def test_messages_that_waited_are_sent_once_the_owner_has_room() -> None:
    world = FullWorld()
    world.publish_waits_for("a")
    world.run(seconds=2)
    assert world.waiting
    world.is_full = False
    assert world.run(lambda: not world.waiting, seconds=5)
    assert (world.delivered, world.rejected) == ({"a"}, {})


def test_later_messages_fail_at_once_and_the_full_owner_is_seldom_asked() -> None:
    """A full node has enough to do."""
    world = FullWorld()
    world.publish_waits_for("a")
    assert world.run(lambda: world.rejected, seconds=20)
    tried, asked, began = len(world.tried), world.root.asked["PubConnect"], world.now
    while world.now < began + 40 * SECOND:
        world.rejected.clear()
        world.publish_waits_for("a")
        assert world.run(lambda: world.rejected == {"a": QUOTA}, seconds=1), "nobody waits for the next try"
        world.run(seconds=0.05)
    assert len(world.tried) - tried <= 40 * SECOND / (RETRY_MOST / 2)
    assert world.root.asked["PubConnect"] - asked <= 2 * 40 * SECOND / (RETRY_MOST / 2)


def test_a_look_up_of_a_full_owner_succeeds() -> None:
    world = FullWorld()
    world.publish_waits_for("a")
    world.run(seconds=1)
    world.resolve("b")
    assert isinstance(world.result(Resolved, seconds=1), Resolved)


def test_a_subscription_at_a_full_owner_fails_with_the_reason_and_is_tried_seldom() -> None:
    world = FullWorld()
    world.subscribe("a/#")
    failed = world.result(SubscriptionFailed, seconds=11)
    assert (failed.reason, failed.answered) == (QUOTA, True)
    assert 3 <= len(world.tried) <= 8
    assert pauses(world.tried)[-1] > 1


def test_a_subscription_is_made_once_the_owner_has_room() -> None:
    world = FullWorld()
    world.subscribe("a/#")
    world.run(seconds=3)
    world.is_full = False
    assert world.result(Subscribed, seconds=7).owners == ("root",)


def test_a_will_at_a_full_owner_fails_with_the_reason() -> None:
    world = FullWorld()
    world.control.set_will(world.now, Will(pb.Publish(topic="a", payload=b"gone")))
    refused = world.result(WillRefused, seconds=11)
    assert (refused.reason, refused.answered) == (QUOTA, True)
    assert len(world.tried) <= 8


@pytest.mark.parametrize("quiet", [RETRY_MOST + SECOND, 3_600 * SECOND])
def test_a_refusal_long_after_the_last_one_begins_a_new_row(quiet: int) -> None:
    refusals, now = SessionRefusals(Random(1)), 5
    for _ in range(9):
        refusals.add(now, OWNER)
        last = refusals.find(now, OWNER)
        assert last is not None
        now = last.until
        assert refusals.find(now, OWNER) is None
    assert (last.tries, last.since) == (9, 5)
    now += quiet
    refusals.add(now, OWNER)
    first = refusals.find(now, OWNER)
    assert first is not None
    assert (first.tries, first.since, first.fails_at) == (1, now, now + SESSION_REFUSAL_TIMEOUT)
    refusals.forget(OWNER)
    assert refusals.find(now, OWNER) is None
