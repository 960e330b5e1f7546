"""The checker of losses: the messages that a queue may drop, and the expired ones that may not be sent
(§7.8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from hbroker._native import SessionStatus
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.sim.network import NodeHost
from hbroker.sim.network.actions import Overflow, Queue
from hbroker.sim.network.checks.applications import Sent
from hbroker.sim.network.checks.expiries import LONGEST_WAIT, Expiries
from hbroker.sim.network.checks.losses import Losses
from hbroker.sim.network.invariants import Invariant
from tests.network.networks import Tree

SECOND = 1_000_000
SESSION = 7
TOPIC = "home/kitchen/oven"


@pytest.fixture(scope="module")
def root() -> NodeHost:
    return Tree.grow(1).root


def status(
    *, full: int = 0, expired: int = 0, connected: bool = True, queued: int = 0, size: int = 0
) -> SessionStatus:
    told = SimpleNamespace(
        session=SESSION,
        connected=connected,
        dropped={"queue_full": full},
        expired=expired,
        queued=queued,
        queued_bytes=size,
    )
    return cast("SessionStatus", told)


def message(number: int, at: int, dies_at: int | None = None) -> Sent:
    return Sent("publisher", (1, number), TOPIC, 1, False, b"x", at, dies_at=dies_at)


def broken(losses: Losses, node: NodeHost, told: SessionStatus, now: int = 10) -> list[Invariant]:
    return [violation.invariant for violation in losses.check(node, told, now)]


def test_a_subscriber_may_lack_as_many_messages_as_were_dropped_since_they_were_published(
    root: NodeHost,
) -> None:
    losses = Losses()
    assert not broken(losses, root, status(full=1), now=10)
    assert not broken(losses, root, status(full=3), now=20)
    early, middle, late = message(1, 5), message(2, 15), message(3, 21)
    assert losses.unexplained([SESSION], []) is None
    assert losses.unexplained([SESSION], [early]) is None
    assert losses.unexplained([SESSION], [early, early, middle]) is None, "it is the same message"
    assert losses.unexplained([SESSION], [early, late]) is late, "nothing was lost since"
    assert losses.unexplained([SESSION + 1], [early]) is early
    later = [message(number, 15) for number in range(4, 7)]
    assert losses.unexplained([SESSION], later) is later[-1], "two were lost since"


def test_only_a_message_with_an_expiry_may_be_missing_because_it_expired(root: NodeHost) -> None:
    losses = Losses()
    assert not broken(losses, root, status(expired=1))
    immortal, mortal = message(1, 5), message(2, 5, 9)
    assert losses.unexplained([SESSION], [mortal]) is None
    assert losses.unexplained([SESSION], [immortal]) is immortal
    assert losses.unexplained([SESSION], [mortal, message(3, 5, 9)]) is not None


def test_the_counters_begin_anew_with_a_new_session(root: NodeHost) -> None:
    losses = Losses()
    assert not broken(losses, root, status(full=5), now=10)
    assert not broken(losses, root, status(full=1), now=20)
    assert losses.unexplained([SESSION], [message(1, 15)]) is None


@pytest.mark.parametrize(
    ("queue", "told", "is_over"),
    [
        (Queue(messages=3), status(connected=False, queued=3), False),
        (Queue(messages=3), status(connected=False, queued=4), True),
        (Queue(messages=3), status(queued=4), False),
        (Queue(bytes=100), status(connected=False, queued=1, size=101), True),
        (Queue(), status(connected=False, queued=9, size=101), False),
    ],
)
def test_the_queue_of_an_offline_session_is_bounded(
    root: NodeHost, queue: Queue, told: SessionStatus, is_over: bool
) -> None:
    losses = Losses()
    losses.subscribe(SESSION, queue)
    assert not broken(losses, root, status(), now=5)
    assert broken(losses, root, told) == [Invariant.QUEUES] * is_over


def test_what_a_run_found_in_its_store_may_be_more_but_does_not_grow(root: NodeHost) -> None:
    losses = Losses()
    losses.subscribe(SESSION, Queue(messages=3))
    assert not broken(losses, root, status(connected=False, queued=9), now=5)
    assert not broken(losses, root, status(connected=False, queued=9))
    assert broken(losses, root, status(connected=False, queued=10)) == [Invariant.QUEUES]


@pytest.mark.parametrize(
    ("policies", "may_drop", "may_end"),
    [
        ([Overflow.DROP_OLDEST], True, False),
        ([Overflow.DROP_OLDEST, Overflow.END_SESSION], True, True),
        ([Overflow.END_SESSION], False, True),
    ],
)
def test_an_overflow_ends_the_session_or_drops_messages_as_its_policies_say(
    root: NodeHost, policies: list[Overflow], may_drop: bool, may_end: bool
) -> None:
    losses = Losses()
    for policy in policies:
        losses.subscribe(SESSION, Queue(overflow=policy))
    assert not broken(losses, root, status(full=1)), "it may have been of QoS 0"
    lacking = message(1, 5)
    assert losses.unexplained([SESSION], [lacking]) is (None if may_drop else lacking)
    assert len(list(losses.end(root, SESSION, 10))) == (not may_end)


class Sender:
    """A node that sends a message which expired `late` microseconds ago."""

    def __init__(self, root: NodeHost, late: int) -> None:
        self.root = root
        self.now = root.clock()
        self.died = self.now - late
        self.published = self.died - 5 * SECOND
        self.expiries = Expiries()
        publish = pb.Publish(topic=TOPIC, publisher=1, sequence=2, published_at_us=self.published, expiry_s=5)
        self.datagram = pb.Datagram(
            header=pb.Header(session=SESSION), packets=[pb.Packet(publish=publish, delivery=3)]
        )

    def is_broken(self) -> bool:
        return bool(list(self.expiries.check(self.root, self.datagram, self.now)))


def test_an_expired_message_is_not_sent_to_a_session_that_was_offline(root: NodeHost) -> None:
    sender = Sender(root, SECOND)
    sender.expiries.gain_link(SESSION, root.address, sender.died + 1)
    assert sender.is_broken()
    assert not sender.is_broken(), "it is sent again, and was complained about"


@pytest.mark.parametrize(("linked_for", "is_broken"), [(SECOND, False), (SECOND - 1, True)])
def test_expiry_follows_the_clock_of_the_node_although_it_is_fast(
    root: NodeHost, linked_for: int, is_broken: bool
) -> None:
    """Seed 10370: what the node's clock measures as 1.1 s takes 1 s."""
    root.drift_ppm = 100_000
    sender = Sender(root, SECOND * 11 // 10)
    now = root.world.now
    sender.expiries.gain_link(SESSION, root.address, now - linked_for)
    assert bool(list(sender.expiries.check(root, sender.datagram, now))) == is_broken


@pytest.mark.parametrize(
    ("late", "is_short", "is_broken"),
    [(LONGEST_WAIT - 1, True, False), (LONGEST_WAIT, True, True), (LONGEST_WAIT, False, False)],
)
def test_an_expired_message_leaves_within_a_bound_if_the_link_has_little_credit(
    root: NodeHost, late: int, is_short: bool, is_broken: bool
) -> None:
    sender = Sender(root, late)
    if is_short:
        sender.expiries.limit_wait(SESSION)
    sender.expiries.gain_link(SESSION, root.address, sender.published)
    assert sender.is_broken() == is_broken


def test_the_time_that_a_node_was_stopped_does_not_count_for_that_bound(root: NodeHost) -> None:
    """Seed 2128: a node that does not run ends no link."""
    root.stop()
    root.world.now += SECOND
    root.resume()
    sender = Sender(root, LONGEST_WAIT + SECOND // 2)
    sender.expiries.limit_wait(SESSION)
    sender.expiries.gain_link(SESSION, root.address, sender.published)
    assert not sender.is_broken()
    root.world.now += SECOND
    late = Sender(root, LONGEST_WAIT + SECOND * 3 // 2 + 1)
    late.expiries.limit_wait(SESSION)
    late.expiries.gain_link(SESSION, root.address, late.published)
    assert late.is_broken()


def test_a_message_that_was_in_flight_is_sent_again_whenever_the_client_returns(root: NodeHost) -> None:
    sender = Sender(root, 100 * SECOND)
    sender.expiries.gain_link(SESSION, root.address, sender.published)
    sender.expiries.lose_link(SESSION, root.address, sender.died - SECOND)
    sender.expiries.gain_link(SESSION, root.address, sender.now)
    assert not sender.is_broken()


def test_a_message_that_has_not_expired_is_sent(root: NodeHost) -> None:
    assert not Sender(root, -1).is_broken()
    assert Sender(root, 0).is_broken()


def test_a_message_that_expired_before_a_handover_is_counted_at_the_new_owner() -> None:
    """§7.8: the session is at the new owner then."""
    tree = Tree.grow(2, ["home/kitchen"])
    session_options = SessionOptions("subscriber", SESSION, 3_600)
    subscriber, publisher = tree.client(session_options=session_options), tree.client("publisher")
    subscriber.catch_up()
    subscriber.control.subscribe(subscriber.clock(), TOPIC, Options(qos=1))
    tree.world.drive(subscriber)
    tree.world.run_until(lambda: bool(subscriber.results))
    subscriber.kill()
    kitchen = tree.nodes["home/kitchen"]
    tree.world.run_until(lambda: not any(s.connected for s in kitchen.engine.sessions(10)))
    for expiry in (2, None):
        publisher.catch_up()
        published_at = publisher.clock() if expiry else 0
        publisher.engine.publish(TOPIC, b"x", 1, published_at_us=published_at, expiry_s=expiry)
        tree.world.drive(publisher)
    tree.world.run_until(lambda: len(publisher.results) == 2)
    tree.world.run(3 * SECOND)
    tree.leave(kitchen)
    told = next(s for s in tree.root.engine.sessions(10) if s.session == SESSION)
    assert (told.accepted, told.expired, told.queued) == (2, 1, 1)
