"""The invariant checkers of the simulator: the cases in which they expect less than every message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hbroker.protocol.ownership import ended_leases
from hbroker.sim.network import World
from hbroker.sim.network.actions import (
    Continue,
    Crash,
    Depart,
    Heal,
    Join,
    Part,
    Publish,
    Restart,
    Stop,
    Subscribe,
    Unsubscribe,
)
from hbroker.sim.network.checks.applications import PART_WAIT, Application, Sent
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.invariants import Invariant, Ownership
from hbroker.sim.network.paths import CLEAR
from hbroker.sim.network.plan import ROOT, NodePlan, Plan
from hbroker.sim.network.trial import Trial
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "camera"
LATE = 6
"""After a time limit, a subscriber has noticed that it is over within this many seconds."""


def interrupted(seconds: int) -> tuple[Application, Sent]:
    """A subscriber, and a message whose publisher was stopped for this long after half of the message had
    left."""
    tree = Tree.grow(1)
    world: World = tree.world
    subscriber, publisher = tree.client("subscriber"), tree.client("publisher")
    subscriber.subscribe(TOPIC, qos=2)
    world.run_until(lambda: bool(subscriber.results))
    began = world.now
    payload = bytes(20_000)
    sequence = publisher.publish(TOPIC, payload, qos=2)
    assert sequence is not None
    world.run_until(lambda: publisher.engine.counters()["datagrams_out"] > 3)
    publisher.stop()
    world.run(seconds * SECOND)
    publisher.resume()
    world.run_until(lambda: bool(publisher.results))
    application = Application("subscriber", subscriber, 0)
    application.received_qos = {(m.publisher, m.sequence): {m.qos} for m in subscriber.messages}
    sent = Sent("publisher", (publisher.publisher, sequence), TOPIC, 2, False, payload, began, world.now)
    return application, sent


def test_a_message_may_be_missing_if_its_fragments_stopped_arriving_for_too_long() -> None:
    """docs/guarantees.md, large messages: the publisher is told that the message was distributed."""
    application, sent = interrupted(PART_WAIT // SECOND + LATE)
    assert not application.has_received(sent.id)
    assert application.may_lack(sent)
    other = replace(sent, id=(sent.id[0], sent.id[1] + 100))
    assert not application.may_lack(other), "it has given up one alone"


@pytest.mark.parametrize("seconds", [1, PART_WAIT // SECOND - 1])
def test_a_message_whose_publisher_goes_on_in_time_must_arrive(seconds: int) -> None:
    application, sent = interrupted(seconds)
    assert application.has_received(sent.id)
    application.received_qos.clear()
    assert not application.may_lack(sent), "had it not come"


def test_a_message_of_a_group_member_that_left_may_arrive_late_at_another_member() -> None:
    """docs/guarantees.md, shared groups: the order holds for each member, and not for messages that were
    first meant for another member."""
    apart = frozenset({"leaver"})
    messages = (Publish(3 * SECOND + number * 10_000, "p", TOPIC, 1, 20) for number in range(40))
    plan = replace(
        draw(1),
        nodes=(NodePlan(ROOT, ""),),
        first=(ROOT,),
        clients=("p", "stayer", "leaver"),
        expiries={},
        topics=(TOPIC,),
        paths=CLEAR,
        bandwidth_bps=None,
        actions=(
            Subscribe(0, "stayer", TOPIC, 1, "g"),
            Subscribe(0, "leaver", TOPIC, 1, "g"),
            Part(1 * SECOND, apart),
            Unsubscribe(2 * SECOND, "leaver", TOPIC),
            *messages,
            Heal(4 * SECOND, apart),
        ),
    )
    verdict = Trial(plan).run()
    assert verdict.violation is None, verdict.violation


def test_messages_at_an_owner_that_its_parent_forgot_may_arrive_after_the_parents_own() -> None:
    """docs/protocol.md §5.1: until that owner renews its lease, the topic has two owners."""
    below, above = "c/t", "other"
    asleep = [Publish(3 * SECOND + number * 10_000, "p", below, 1, 20) for number in range(5)]
    apart = frozenset({"n"})
    plan = replace(
        draw(2),
        nodes=(NodePlan(ROOT, ""), NodePlan("n", "c")),
        first=(ROOT, "n"),
        clients=("p", "s"),
        expiries={"s": 3_600},
        credits={},
        topics=(below, above),
        paths=CLEAR,
        bandwidth_bps=None,
        actions=(
            Subscribe(0, "s", below, 1),
            Publish(1 * SECOND, "p", above, 1, 20),
            Publish(1 * SECOND, "p", below, 1, 20),
            Depart(2 * SECOND, "s", False),
            *asleep,
            Part(4 * SECOND, apart),
            Crash(4 * SECOND, ROOT),
            Restart(5 * SECOND, ROOT, False),
            Restart(6 * SECOND, "s"),
            Publish(7 * SECOND, "p", above, 1, 20),
            Publish(8 * SECOND, "p", below, 1, 20),
            Heal(10 * SECOND, apart),
        ),
    )
    verdict = Trial(plan).run()
    assert verdict.violation is None, verdict.violation


def stopped(seconds: int, *, back: bool = True) -> Plan:
    """Ten messages are queued at an owner that is stopped for this long. With `back` it may own its
    subtree again."""
    return replace(
        draw(2),
        nodes=(NodePlan(ROOT, ""), NodePlan("n", "c"), NodePlan("m", "c")),
        first=(ROOT, "n"),
        clients=("p", "s"),
        expiries={"s": 3_600},
        credits={},
        topics=("c/t",),
        paths=CLEAR,
        bandwidth_bps=None,
        actions=(
            Subscribe(0, "s", "c/t", 1),
            Depart(2 * SECOND, "s", False),
            *(Publish(3 * SECOND + number * 10_000, "p", "c/t", 1, 20) for number in range(10)),
            Stop(5 * SECOND, "n"),
            *(() if back else [Join(30 * SECOND, "m")]),
            Continue((5 + seconds) * SECOND, "n"),
            Restart((20 + seconds) * SECOND, "s"),
        ),
    )


@pytest.mark.parametrize("seconds", [5, 40])
def test_messages_at_an_owner_that_serves_again_must_arrive(
    monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    assert Trial(stopped(seconds)).run().violation is None
    monkeypatch.setattr(ended_leases.EndedLeases, "touches", lambda self, filter: False)
    violation = Trial(stopped(seconds)).run().violation
    assert (violation and violation.invariant) == (Invariant.NOTHING_LOST if seconds == 40 else None)


def test_messages_at_an_owner_that_does_not_serve_the_topic_again_may_be_missing() -> None:
    """docs/guarantees.md, sessions."""
    verdict = Trial(stopped(40, back=False)).run()
    assert verdict.violation is None, verdict.violation


@pytest.mark.parametrize(("published_at", "may_lack"), [(4, True), (5, True), (6, False)])
def test_a_later_run_may_lack_fragments_that_an_earlier_run_may_have_received(
    published_at: int, may_lack: bool
) -> None:
    host = Tree.grow(1).client("subscriber")
    former = Application("subscriber", host, 0, ended_at=5)
    application = Application("subscriber", host, 9, former=former)
    large = Sent("publisher", (1, 1), TOPIC, 1, False, bytes(20_000), published_at)
    assert application.may_lack(large) == may_lack
    assert not application.may_lack(replace(large, payload=b"small"))


@pytest.mark.parametrize("step_s", [-3_600, 0, 3_600])
def test_an_epoch_may_not_fall_although_no_node_remembers_it_and_a_clock_was_set(step_s: int) -> None:
    tree = Tree.grow(1, ["home/kitchen"])
    kitchen, ownership = tree.nodes["home/kitchen"], Ownership(tree.world, (TOPIC,))
    assert not [*ownership.check(tree.root), *ownership.check(kitchen)]
    tree.leave(kitchen)
    tree.root.kill()
    tree.root.restart(remembers=True, clock_step_us=step_s * SECOND)
    again = tree.join("home/kitchen")
    assert not [*ownership.check(again)]
