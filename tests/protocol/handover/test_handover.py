"""The handover of a subtree: no record that changes meanwhile is lost (§5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.handover.phases import (
    DISK_WAIT,
    DRAIN_WAIT,
    MOVING_WAIT,
    NO_ROOM_PAUSE,
    PACKETS_PER_ITERATION,
    SOURCE_TRANSITIONS,
    TARGET_TRANSITIONS,
    HandoverSource,
    HandoverTarget,
    SourceState,
    TargetState,
)
from hbroker.protocol.handover.subtree_state import CHUNK, ReceivedState, Record, SubtreeState, cut_record
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import body_of
from hbroker.protocol.sessions.subscription_store import Key, Subscription, record_of
from tests.protocol.fake_network import Network
from tests.protocol.fakes import FakeCore


class RecordingCore(FakeCore):
    """A core that records what it sends, as long as it has room."""

    def __init__(self) -> None:
        super().__init__(Network(), ("10.0.0.1", 1), 1)
        self.sent: list[pb.Transfer] = []
        self.sizes: list[int] = []
        self.room = 1_000_000

    def send(self, link: int, packet: bytes) -> bool:
        if not self.room:
            return False
        self.room -= 1
        body = body_of(packet)
        assert isinstance(body, pb.Transfer)
        self.sent.append(body)
        self.sizes.append(len(packet))
        return True


class FakeParts:
    """The other parts of a node, as far as a handover that failed needs them."""

    def __init__(self) -> None:
        self.withdrawn: list[Key] = []

    def withdraw(self, session: int, key: Key) -> None:
        self.withdrawn.append(key)

    def lookup(self, subtree: str) -> None:
        """Nobody serves it."""

    def subtrees_expected_below(self, subtree: str) -> list[str]:
        return ["a/expected"]


class FakeSubtreeState(SubtreeState):
    """The state of the subtree that is handed over. `target`: the core of the new owner."""

    def __init__(self, target: RecordingCore) -> None:
        self.parts = FakeParts()
        self._core: Any = target
        self._jurisdiction = self._owner_subscriptions = cast(Any, self.parts)
        self._receiving = []
        self.subscriptions: list[Subscription] = []
        self.cuts: dict[str, Delegation] = {}
        self.sessions: list[pb.SessionRecord] = []
        self.held: list[str] = []
        self.replaying: list[pb.ReplayRecord] = []

    def subscription_records(self, subtree: str) -> Iterator[Record]:
        return map(record_of, self.subscriptions)

    def prepare(self, transfer: pb.Transfer, received: ReceivedState) -> None: ...

    def subtrees_granted_below(self, subtree: str) -> list[str]:
        return self.held

    def replays(self, subtree: str) -> Iterator[pb.ReplayRecord]:
        return iter(self.replaying)

    def other_records(
        self, subtree: str, *, is_former_owner: bool = False
    ) -> dict[tuple[str, str | int], Record]:
        found: dict[tuple[str, str | int], Record] = {
            ("cut", cut.subtree): cut_record(cut) for cut in self.cuts.values()
        }
        return found | {("SessionRecord", record.session): record for record in self.sessions}


class MovingChildren:
    def __init__(self) -> None:
        self.count = 0

    def moving_below(self, subtree: str) -> list[int]:
        return list(range(self.count))

    def overtake_below(self, subtree: str) -> None:
        self.count = 0


class Handover:
    """The source and the target of one handover, and the clock."""

    def __init__(self) -> None:
        self.old, self.new = RecordingCore(), RecordingCore()
        self.state, self.children_handing_back = FakeSubtreeState(self.new), MovingChildren()
        self.handover_source = HandoverSource(self.old, self.state, "a", 5, 1, self.children_handing_back)
        self.handover_target = HandoverTarget(self.new, self.state, "a", 5, 1)
        self.now = 0

    def deliver(self) -> TargetState | None:
        """Delivers everything that the source has sent so far to the target."""
        state = None
        for transfer in self.old.sent:
            state = self.handover_target.handle(transfer)
            assert state is not None
        self.old.sent.clear()
        return state

    def run_next_deadline(self) -> bool:
        """Runs the next deadline. Returns False if there is none."""
        due = self.handover_source.poll_timeout()
        if due is None:
            return False
        self.now = max(self.now, due)
        self.handover_source.handle_timeout(self.now)
        return True

    def begin(self) -> None:
        """Sends the snapshot and all copies, and delivers them."""
        self.handover_source.begin(self.now)
        while self.run_next_deadline():
            pass
        assert self.deliver() is TargetState.AWAIT_COMMIT

    @property
    def received_messages(self) -> tuple[list[bytes], list[bytes]]:
        """The queued messages and the seen ids that the target holds."""
        (held,) = self.handover_target.received.held
        return self.new.held[held]

    def stop_serving(self) -> None:
        assert self.handover_source.handle(self.now, self.new.sent.pop()) is SourceState.DRAINING

    def commit(self) -> None:
        while self.run_next_deadline():
            pass
        assert self.deliver() is TargetState.COMPLETE


def subscription(filter: str, session: int = 1) -> Subscription:
    return Subscription(session, ("10.0.0.9", 9), filter, 1, True, True, "alice")


def cut(subtree: str, node: str, epoch: int = 1) -> Delegation:
    return Delegation(subtree, node, ("10.0.0.7", 7), 70, epoch, LeasePolicy.SERVE, 3, 99)


def queued(number: int) -> bytes:
    publish = pb.Publish(topic="a/x", publisher=1, sequence=number, payload=b"p" * 100).SerializeToString()
    return pb.QueuedRecord(session=1, publish=publish, qos="QOS_AT_LEAST_ONCE").SerializeToString()


def test_unfinished_replays_are_transferred_before_commit() -> None:
    handover = Handover()
    handover.begin()
    handover.state.replaying = [
        pb.ReplayRecord(session=1, filter="a/#", qos="QOS_AT_LEAST_ONCE", listener=2, first="a/m"),
        pb.ReplayRecord(session=1, filter="a/#", listener=3),
        pb.ReplayRecord(session=1, filter="a/#/b", listener=3),
    ]
    handover.stop_serving()
    handover.commit()
    assert list(handover.handover_target.received.replays.values()) == handover.state.replaying[:2]


def test_changes_during_the_handover_are_transferred_before_commit() -> None:
    handover = Handover()
    old, new, handover_source = handover.old, handover.new, handover.handover_source
    for topic in ("a/kept", "a/changed", "a/cleared"):
        old.publish(topic, b"before", 0, True)
    handover.state.subscriptions = [subscription("a/#"), subscription("a/x")]
    handover.begin()

    handover_source.handle_subscription_changed(subscription("a/new"), False)
    handover_source.handle_subscription_changed(subscription("a/x"), True)
    handover_source.handle_subscription_changed(subscription("elsewhere"), False)
    old.publish("a/changed", b"after", 0, True)
    old.publish("a/cleared", b"", 0, True)
    handover.stop_serving()
    handover.commit()

    found = list(handover.handover_target.received.subscriptions.values())
    assert {s.filter for s in found} == {"a/#", "a/new"}
    assert found[0] == subscription("a/#")
    assert not new.messages, "they have no effect before COMMIT"
    new.take_retained(handover.handover_target.received.retained)
    payloads = {t: pb.Publish.FromString(m).payload for t, m in new.messages.items()}
    assert payloads == {"a/kept": b"before", "a/changed": b"after"}
    assert set(old.messages) == {"a/kept", "a/changed"}, "the source has them until DONE"
    handover.handover_target.send_done()
    assert handover_source.handle(handover.now, new.sent.pop()) is SourceState.COMPLETE


def test_cuts_go_along_as_they_are_at_commit() -> None:
    handover = Handover()
    handover.state.cuts = {s: cut(s, "child") for s in ("a/kept", "a/changed", "a/gone")}
    handover.begin()
    assert set(handover.handover_target.received.cuts) == {"a/kept", "a/changed", "a/gone"}
    handover.state.cuts = {"a/kept": cut("a/kept", "child"), "a/changed": cut("a/changed", "other", 2)}
    handover.state.cuts["a/new"] = cut("a/new", "child")
    handover.stop_serving()
    handover.commit()
    found = {d.subtree: d for d in handover.handover_target.received.delegations("a")}
    assert set(found) == {"a/kept", "a/changed", "a/new"}
    changed = found["a/changed"]
    assert (changed.node, changed.epoch, changed.incarnation) == ("other", 2, 70)
    assert (changed.policy, changed.link) == (LeasePolicy.SERVE, None)


def test_a_session_that_began_anew_is_sent_again_only_if_something_else_changed() -> None:
    handover = Handover()
    handover.state.sessions = [pb.SessionRecord(session=n, begun_us=5, begun_by=7) for n in (1, 2)]
    handover.begin()
    handover.state.sessions = [pb.SessionRecord(session=n, begun_us=90, begun_by=6 + n) for n in (1, 2)]
    handover.stop_serving()
    handover.commit()
    found = handover.handover_target.received.sessions
    assert {n: (found[n].begun_us, found[n].begun_by) for n in (1, 2)} == {1: (5, 7), 2: (90, 8)}


def test_a_cut_outside_of_the_subtree_is_ignored() -> None:
    handover = Handover()
    handover.state.cuts = {s: cut(s, "child") for s in ("a", "b/c", "ab", "a/b")}
    handover.begin()
    assert [d.subtree for d in handover.handover_target.received.delegations("a")] == ["a/b"]


def test_the_source_commits_once_all_messages_are_distributed() -> None:
    handover = Handover()
    handover.begin()
    handover.old.open_messages = 2
    handover.stop_serving()
    handover.handover_source.handle_timeout(handover.now)
    assert not handover.handover_source.has_committed
    handover.old.open_messages = 0
    began = handover.now
    handover.commit()
    assert handover.now - began < DRAIN_WAIT


def test_the_source_commits_after_the_drain_wait_even_if_messages_are_not_distributed() -> None:
    handover = Handover()
    handover.begin()
    handover.old.open_messages = 2
    began = handover.now
    handover.stop_serving()
    handover.commit()
    assert DRAIN_WAIT <= handover.now - began < 2 * DRAIN_WAIT


@pytest.mark.parametrize("reason", ["handing_on", "reads_store"])
def test_the_source_waits_without_a_limit_for_messages_between_its_workers_and_in_its_store(
    reason: str,
) -> None:
    handover = Handover()
    handover.begin()
    setattr(handover.old, reason, True)
    handover.old.waiting = ([queued(1)], [])
    handover.stop_serving()
    while handover.now < 10 * DRAIN_WAIT:
        handover.run_next_deadline()
    assert not handover.handover_source.has_committed
    setattr(handover.old, reason, False)
    handover.commit()
    assert handover.received_messages == ([queued(1)], [])


def test_the_source_waits_one_second_for_a_child_below_that_hands_back() -> None:
    handover = Handover()
    handover.begin()
    handover.children_handing_back.count = 1
    began = handover.now
    handover.stop_serving()
    handover.commit()
    assert MOVING_WAIT <= handover.now - began < 2 * MOVING_WAIT
    assert not handover.children_handing_back.count


def test_queued_messages_are_copied_while_the_source_serves_and_kept_until_it_discards_them() -> None:
    handover = Handover()
    seen = pb.SeenRecord(publisher=4, floor=2, words=[0, 1]).SerializeToString()
    waiting = [queued(number) for number in range(20)]
    handover.old.waiting = (waiting[:], [seen])
    handover.begin()
    assert handover.received_messages == (waiting, [])
    assert handover.old.waiting[0] == waiting, "it serves them still"
    handover.old.waiting[0].append(queued(20))
    handover.stop_serving()
    before = len(handover.old.sizes)
    handover.commit()
    assert len(handover.old.sizes) == before + 3, "one message, what was seen, and COMMIT"
    assert handover.received_messages == ([*waiting, queued(20)], [seen])
    assert handover.old.waiting == ([], [])
    assert handover.old.held[handover.handover_source.abandon()] == handover.received_messages


def test_messages_of_a_handover_that_failed_after_commit_go_with_the_next_one() -> None:
    handover = Handover()
    handover.old.waiting = ([queued(1)], [])
    handover.begin()
    handover.stop_serving()
    handover.commit()
    held = handover.handover_source.abandon()
    handover.old.waiting = ([queued(2)], [])
    handover.handover_source = HandoverSource(
        handover.old, handover.state, "a", 5, 1, handover.children_handing_back, held
    )
    handover.handover_target = HandoverTarget(handover.new, handover.state, "a", 5, 1)
    handover.begin()
    assert handover.received_messages == ([queued(1), queued(2)], [])
    again = handover.handover_source.abandon()
    assert handover.old.held == {again: ([queued(1)], [])}, "what is not held elsewhere"
    assert not handover.old.exports
    handover.handover_target.abandon()
    assert len(handover.new.held) == 1, "that of the first"


def test_many_queued_messages_and_the_changes_after_them_are_sent_in_turns() -> None:
    handover = Handover()
    waiting = [queued(number) for number in range(1_000)]
    handover.old.waiting = (waiting[:], [])
    handover.handover_source.begin(0)
    for number in range(2_000):
        handover.handover_source.handle_subscription_changed(subscription(f"a/{number}"), False)
    handover.deliver()
    while handover.run_next_deadline():
        assert len(handover.old.sent) <= PACKETS_PER_ITERATION
        handover.deliver()
    assert handover.received_messages[0] == waiting
    assert len(handover.handover_target.received.subscriptions) == 2_000


def test_no_record_is_lost_when_the_link_has_no_room() -> None:
    handover = Handover()
    handover.state.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(500)]
    handover.old.room = 3
    handover.handover_source.begin(0)
    assert len(handover.old.sent) == 3
    assert handover.handover_source.poll_timeout() == NO_ROOM_PAUSE
    while handover.run_next_deadline() and handover.now < 60 * NO_ROOM_PAUSE:
        handover.old.room = 1
    handover.old.room = 1_000
    while handover.run_next_deadline():
        pass
    assert handover.deliver() is TargetState.AWAIT_COMMIT
    assert len(handover.handover_target.received.subscriptions) == 500


def test_many_records_are_sent_in_turns() -> None:
    handover = Handover()
    handover.state.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(5_000)]
    handover.handover_source.begin(0)
    assert len(handover.old.sent) == PACKETS_PER_ITERATION
    handover.deliver()
    while handover.run_next_deadline():
        assert len(handover.old.sent) <= PACKETS_PER_ITERATION
        handover.deliver()
    assert len(handover.handover_target.received.subscriptions) == 5_000


def test_records_are_sent_in_packets_that_fit_a_datagram() -> None:
    handover = Handover()
    handover.old.publish("a/large", b"x" * 1_000, 0, True)
    for number in range(50):
        handover.old.publish(f"a/{number}", b"y" * 100, 0, True)
    handover.state.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(200)]
    handover.begin()
    large = [size for size in handover.old.sizes if size > CHUNK + 60]
    assert len(large) == 1
    assert max(handover.old.sizes) < 1_100
    assert len(handover.old.sizes) < 60
    assert len(handover.handover_target.received.subscriptions) == 200


def test_a_packet_of_another_phase_or_epoch_is_ignored() -> None:
    handover = Handover()
    done = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_DONE)
    commit = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_COMMIT)
    stale = pb.Transfer(subtree="a", epoch=4, phase=pb.TRANSFER_PHASE_READY)
    for transfer in (done, commit, stale):
        assert handover.handover_source.handle(0, transfer) is None
    assert handover.handover_target.handle(commit) is None
    assert handover.handover_target.handle(done) is None
    assert not handover.new.sent


def test_a_failed_handover_leaves_nothing_at_the_target() -> None:
    handover = Handover()
    handover.old.publish("a/x", b"1", 0, True)
    handover.state.subscriptions = [subscription("a/#")]
    handover.new.publish("a/own", b"of an earlier lease", 0, True)
    handover.begin()
    handover.handover_target.abandon()
    assert handover.state.parts.withdrawn == [subscription("a/#").key]
    assert set(handover.new.messages) == {"a/own"}, "what it had before stays"
    assert handover.old.messages


def test_a_failed_handover_leaves_what_a_handover_around_it_has_brought() -> None:
    handover = Handover()
    handover.state.subscriptions = [subscription("a/#")]
    handover.begin()
    inner = HandoverTarget(handover.new, handover.state, "a/x", 6, 2)
    inner.handle(pb.Transfer(epoch=6, subscriptions=map(record_of, map(subscription, ["a/#", "a/x"]))))
    inner.abandon()
    assert handover.state.parts.withdrawn == [subscription("a/x").key]


def test_both_state_machines_reach_complete() -> None:
    assert SourceState.COMPLETE in SOURCE_TRANSITIONS.values()
    assert TargetState.COMPLETE in TARGET_TRANSITIONS.values()


def test_smaller_subtrees_of_either_end_that_another_node_granted_stay_as_they_are() -> None:
    handover = Handover()
    handover.state.held = ["a/mine"]
    for core in (handover.old, handover.new):
        core.publish("a/mine/x", b"mine", 0, True)
        core.publish("a/x", b"1", 0, True)
    handover.new.publish("a/expected/x", b"of an earlier lease", 0, True)
    handover.begin()
    (sent,) = handover.handover_target.received.retained
    assert pb.Publish.FromString(sent).topic == "a/x"
    handover.stop_serving()
    while handover.run_next_deadline():
        pass
    assert not any(transfer.retained for transfer in handover.old.sent)
    handover.state.drop_retained("a")  # At the source and at the target it is the same.
    assert set(handover.new.messages) == {"a/mine/x", "a/expected/x"}


def test_records_over_the_bound_are_counted_and_known_records_still_change() -> None:
    received = ReceivedState(most=2)
    sessions = [pb.SessionRecord(session=session) for session in (1, 2, 3)]
    received.add(pb.Transfer(sessions=sessions))
    assert (len(received.sessions), received.refused) == (2, 1)
    received.add(pb.Transfer(sessions=[pb.SessionRecord(session=1, offline_us=5)]))
    assert received.refused == 1
    assert received.sessions[1].offline_us == 5


def test_commit_waits_until_the_delegation_is_on_the_disk() -> None:
    handover, is_saved = Handover(), False
    handover.handover_source = HandoverSource(
        handover.old, handover.state, "a", 5, 1, handover.children_handing_back, is_saved=lambda: is_saved
    )
    handover.begin()
    handover.stop_serving()
    while handover.now < DISK_WAIT:
        assert not handover.handover_source.is_held_up(handover.now)
        assert handover.run_next_deadline()
    assert handover.handover_source.is_held_up(handover.now)
    assert not handover.handover_source.has_committed
    is_saved = True
    assert not handover.handover_source.is_held_up(handover.now)
    handover.commit()
