"""The checker of deliveries: what it accepts and what it reports as a violation, in small plans."""

from __future__ import annotations

import pytest

from hbroker.protocol.subscriptions.client.subscription import ClientSubscription
from hbroker.sim.network import CLEAR, ClientHost
from hbroker.sim.network.actions import Action, Crash, Heal, Part, Publish, Restart, Subscribe
from hbroker.sim.network.checks.deliveries import Deliveries
from hbroker.sim.network.invariants import Invariant, Violation
from hbroker.sim.network.plan import ROOT, SECOND, NodePlan, Plan
from hbroker.sim.network.trial import Trial

TOPIC = "garden/c"
KEPT = 3_600


def violation(*actions: Action, subscribers: str = "s") -> Violation | None:
    """The violation, if any, in a network of one node, a publisher `p` and subscribers (one letter each) with
    persistent sessions."""
    subscribe: list[Action] = [Subscribe(0, subscriber, TOPIC, 1) for subscriber in subscribers]
    begin = *subscribe, publish(0.5)
    nodes, expiries = (NodePlan(ROOT, ""),), dict.fromkeys(subscribers, KEPT)
    clients = ("p", *subscribers)
    plan = Plan(1, nodes, (ROOT,), clients, expiries, (TOPIC,), CLEAR, None, (*begin, *actions))
    return Trial(plan).run().violation


def at(seconds: float) -> int:
    return round(seconds * SECOND)


def publish(seconds: float) -> Publish:
    return Publish(at(seconds), "p", TOPIC, 1, 20)


def part(seconds: float, client: str) -> Part:
    return Part(at(seconds), frozenset({client}))


def heal(seconds: float, client: str) -> Heal:
    return Heal(at(seconds), frozenset({client}))


def test_a_message_that_an_earlier_run_received_may_arrive_after_newer_ones() -> None:
    """A datagram takes 200 µs. The first message arrives at a run that is killed before the second one.
    Its PUBACK does not reach the publisher, which sends the message again over its next link."""
    messages = publish(1), publish(1.00015)
    faults = part(1.00041, "p"), Crash(at(1.0005), "s"), Restart(at(5), "s")
    assert violation(*messages, *faults, heal(25, "p")) is None


def test_messages_that_no_run_received_arrive_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    process_events = ClientHost.process_events

    def process_backwards(self: ClientHost) -> None:
        before = len(self.messages)
        process_events(self)
        self.messages[before:] = reversed(self.messages[before:])

    actions = Crash(at(1), "s"), publish(2), publish(2), Restart(at(5), "s")
    assert violation(*actions) is None
    monkeypatch.setattr(ClientHost, "process_events", process_backwards)
    found = violation(*actions)
    assert found is not None
    assert found.invariant is Invariant.ORDER


def restarts_without_its_files() -> tuple[Action, ...]:
    """The owner forgets a subscriber that is cut off, and accepts a message without a known subscriber."""
    return part(1, "s"), Crash(at(2), ROOT), Restart(at(3), ROOT, remembers=False), publish(4)


def test_a_message_from_before_a_session_was_made_again_may_arrive_after_newer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The owner has forgotten `s`, and accepts a message that waits for `t` before `s` is back. Its next run
    has both sessions, and its publisher sends the message again."""
    forgets = part(1, "s"), Crash(at(2), ROOT), Restart(at(3), ROOT, remembers=False)
    waits = part(6, "t"), publish(6.1), heal(7, "s"), publish(8)
    actions = *forgets, *waits, Crash(at(8.1), ROOT), Restart(at(8.5), ROOT), heal(8.6, "t")
    assert violation(*actions, subscribers="st") is None
    monkeypatch.setattr(Deliveries, "handle_suback", lambda *_: None)
    found = violation(*actions, subscribers="st")
    assert found is not None
    assert found.invariant is Invariant.ORDER


def test_a_message_that_a_run_missed_and_was_told_of_is_not_expected_by_the_next_run() -> None:
    later = heal(8, "s"), Crash(at(20), "s"), Restart(at(22), "s")
    assert violation(*restarts_without_its_files(), *later) is None


@pytest.mark.parametrize("killed", [0.9, 6], ids=["before it", "before it was told"])
def test_a_missed_message_that_no_run_was_told_of_must_arrive_at_a_resumed_run(
    killed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = Crash(at(killed), "s"), heal(8, "s"), Restart(at(22), "s")
    actions = sorted((*restarts_without_its_files(), *later), key=lambda action: action.at)
    assert violation(*actions) is None
    monkeypatch.setattr(ClientSubscription, "is_resumed", True)
    found = violation(*actions)
    assert found is not None
    assert found.invariant is Invariant.RESUMED
