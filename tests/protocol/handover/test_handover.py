"""A subtree moves without losing what changes on the way (§5.4)."""

from __future__ import annotations

from collections.abc import Iterator

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.handover.handover import (
    DISK_WAIT,
    DRAIN_WAIT,
    GIVING,
    NO_ROOM_PAUSE,
    PACKETS_PER_ITERATION,
    RETURNING_WAIT,
    TAKING,
    HandoverSource,
    HandoverTarget,
    SourceState,
    TargetState,
)
from hbroker.protocol.handover.subtree_state import SubtreeState
from hbroker.protocol.handover.transfer import CHUNK, ReceivedState, Record, cut_record
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import body_of
from hbroker.protocol.sessions.subscription_store import Subscription, record_of
from tests.protocol.fake_network import Network
from tests.protocol.fakes import FakeCore


class Wire(FakeCore):
    """Keeps what is sent, as long as there is room."""

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


class Things(SubtreeState):
    """What there is to give."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.cuts: dict[str, Delegation] = {}
        self.held: list[str] = []
        self.replaying: list[pb.ReplayRecord] = []

    def slow(self, subtree: str) -> Iterator[Record]:
        return map(record_of, self.subscriptions)

    def prepare(self, transfer: pb.Transfer, received: ReceivedState) -> None: ...

    def withdraw(self, received: ReceivedState) -> None: ...

    def held_below(self, subtree: str) -> list[str]:
        return self.held

    def replays(self, subtree: str) -> Iterator[pb.ReplayRecord]:
        return iter(self.replaying)

    def quick(self, subtree: str, *, is_heirs: bool = False) -> dict[tuple[str, str | int], Record]:
        return {("cut", cut.subtree): cut_record(cut) for cut in self.cuts.values()}


class ReturningChildren:
    def __init__(self) -> None:
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def overtake(self) -> None:
        self.count = 0


class Ends:
    """Both ends of one handover, and the time."""

    def __init__(self) -> None:
        self.old, self.new = Wire(), Wire()
        self.things, self.returning_children = Things(), ReturningChildren()
        self.handover_source = HandoverSource(self.old, self.things, "a", 5, 1, self.returning_children)
        self.handover_target = HandoverTarget(self.new, self.things, "a", 5, 1)
        self.now = 0

    def deliver(self) -> TargetState | None:
        """Takes what was sent so far to the new owner."""
        state = None
        for transfer in self.old.sent:
            state = self.handover_target.handle(transfer)
            assert state is not None
        self.old.sent.clear()
        return state

    def turn(self) -> bool:
        """The next deadline; False: there is none."""
        due = self.handover_source.poll_timeout()
        if due is None:
            return False
        self.now = max(self.now, due)
        self.handover_source.handle_timeout(self.now)
        return True

    def begin(self) -> None:
        """All that there is arrives."""
        self.handover_source.begin(self.now)
        while self.turn():
            pass
        assert self.deliver() is TargetState.AWAIT_COMMIT

    @property
    def came(self) -> tuple[list[bytes], list[bytes]]:
        """What waits and what was seen, as the new owner holds it."""
        (held,) = self.handover_target.received.held
        return self.new.held[held]

    def stop_serving(self) -> None:
        assert self.handover_source.handle(self.now, self.new.sent.pop()) is SourceState.DRAINING

    def commit(self) -> None:
        while self.turn():
            pass
        assert self.deliver() is TargetState.COMPLETE


def subscription(filter: str, session: int = 1) -> Subscription:
    return Subscription(session, ("10.0.0.9", 9), filter, 1, True, True, "alice")


def cut(subtree: str, node: str, epoch: int = 1) -> Delegation:
    return Delegation(subtree, node, ("10.0.0.7", 7), 70, epoch, LeasePolicy.SERVE, 3, 99)


def queued(number: int) -> bytes:
    publish = pb.Publish(topic="a/x", publisher=1, sequence=number, payload=b"p" * 100).SerializeToString()
    return pb.QueuedRecord(session=1, publish=publish, qos="QOS_AT_LEAST_ONCE").SerializeToString()


def test_what_is_left_of_a_replay_arrives_before_the_right_to_serve() -> None:
    ends = Ends()
    ends.begin()
    ends.things.replaying = [
        pb.ReplayRecord(session=1, filter="a/#", qos="QOS_AT_LEAST_ONCE", listener=2, first="a/m"),
        pb.ReplayRecord(session=1, filter="a/#", listener=3),
        pb.ReplayRecord(session=1, filter="a/#/b", listener=3),
    ]
    ends.stop_serving()
    ends.commit()
    assert list(ends.handover_target.received.replays.values()) == ends.things.replaying[:2]


def test_what_changes_during_the_handover_arrives_before_the_right_to_serve() -> None:
    ends = Ends()
    old, new, handover_source = ends.old, ends.new, ends.handover_source
    for topic in ("a/kept", "a/changed", "a/cleared"):
        old.publish(topic, b"before", 0, True)
    ends.things.subscriptions = [subscription("a/#"), subscription("a/x")]
    ends.begin()

    handover_source.follow(subscription("a/new"), False)
    handover_source.follow(subscription("a/x"), True)
    handover_source.follow(subscription("elsewhere"), False)
    old.publish("a/changed", b"after", 0, True)
    old.publish("a/cleared", b"", 0, True)
    ends.stop_serving()
    ends.commit()

    found = list(ends.handover_target.received.subscriptions.values())
    assert {s.filter for s in found} == {"a/#", "a/new"}
    assert found[0] == subscription("a/#")
    payloads = {t: pb.Publish.FromString(m).payload for t, m in new.messages.items()}
    assert payloads == {"a/kept": b"before", "a/changed": b"after"}
    assert not old.messages
    ends.handover_target.done()
    assert handover_source.handle(ends.now, new.sent.pop()) is SourceState.COMPLETE


def test_cuts_go_along_as_they_are_when_it_commits() -> None:
    ends = Ends()
    ends.things.cuts = {s: cut(s, "child") for s in ("a/kept", "a/changed", "a/gone")}
    ends.begin()
    assert set(ends.handover_target.received.cuts) == {"a/kept", "a/changed", "a/gone"}
    ends.things.cuts = {"a/kept": cut("a/kept", "child"), "a/changed": cut("a/changed", "other", 2)}
    ends.things.cuts["a/new"] = cut("a/new", "child")
    ends.stop_serving()
    ends.commit()
    found = {d.subtree: d for d in ends.handover_target.received.delegations("a")}
    assert set(found) == {"a/kept", "a/changed", "a/new"}
    changed = found["a/changed"]
    assert (changed.node, changed.epoch, changed.incarnation) == ("other", 2, 70)
    assert (changed.policy, changed.link) == (LeasePolicy.SERVE, None)


def test_a_cut_that_does_not_lie_below_is_not_taken() -> None:
    ends = Ends()
    ends.things.cuts = {s: cut(s, "child") for s in ("a", "b/c", "ab", "a/b")}
    ends.begin()
    assert [d.subtree for d in ends.handover_target.received.delegations("a")] == ["a/b"]


def test_it_commits_once_everything_is_distributed() -> None:
    ends = Ends()
    ends.begin()
    ends.old.open_messages = 2
    ends.stop_serving()
    ends.handover_source.handle_timeout(ends.now)
    assert not ends.handover_source.has_committed
    ends.old.open_messages = 0
    began = ends.now
    ends.commit()
    assert ends.now - began < DRAIN_WAIT


def test_what_is_not_distributed_in_time_does_not_hold_it_up() -> None:
    ends = Ends()
    ends.begin()
    ends.old.open_messages = 2
    began = ends.now
    ends.stop_serving()
    ends.commit()
    assert DRAIN_WAIT <= ends.now - began < 2 * DRAIN_WAIT


def test_what_is_on_its_way_between_workers_is_waited_for_however_long_it_takes() -> None:
    ends = Ends()
    ends.begin()
    ends.old.handing_on = True
    ends.old.waiting = ([queued(1)], [])
    ends.stop_serving()
    while ends.now < 10 * DRAIN_WAIT:
        ends.turn()
    assert not ends.handover_source.has_committed
    ends.old.handing_on = False
    ends.commit()
    assert ends.came == ([queued(1)], [])


def test_a_child_that_hands_back_below_is_waited_for_and_then_overtaken() -> None:
    ends = Ends()
    ends.begin()
    ends.returning_children.count = 1
    began = ends.now
    ends.stop_serving()
    ends.commit()
    assert RETURNING_WAIT <= ends.now - began < 2 * RETURNING_WAIT
    assert not ends.returning_children


def test_what_waits_for_subscribers_is_copied_before_and_kept_until_it_is_served() -> None:
    ends = Ends()
    seen = pb.SeenRecord(publisher=4, floor=2, words=[0, 1]).SerializeToString()
    waiting = [queued(number) for number in range(20)]
    ends.old.waiting = (waiting[:], [seen])
    ends.begin()
    assert ends.came == (waiting, [])
    assert ends.old.waiting[0] == waiting, "it serves them still"
    ends.old.waiting[0].append(queued(20))
    ends.stop_serving()
    before = len(ends.old.sizes)
    ends.commit()
    assert len(ends.old.sizes) == before + 3, "one message, what was seen, and COMMIT"
    assert ends.came == ([*waiting, queued(20)], [seen])
    assert ends.old.waiting == ([], [])
    assert ends.old.held[ends.handover_source.abandon()] == ends.came


def test_what_is_held_of_a_handover_that_failed_after_commit_goes_with_the_next_one() -> None:
    ends = Ends()
    ends.old.waiting = ([queued(1)], [])
    ends.begin()
    ends.stop_serving()
    ends.commit()
    held = ends.handover_source.abandon()
    ends.old.waiting = ([queued(2)], [])
    ends.handover_source = HandoverSource(ends.old, ends.things, "a", 5, 1, ends.returning_children, held)
    ends.handover_target = HandoverTarget(ends.new, ends.things, "a", 5, 1)
    ends.begin()
    assert ends.came == ([queued(1), queued(2)], [])
    again = ends.handover_source.abandon()
    assert ends.old.held == {again: ([queued(1)], [])}, "what is not held elsewhere"
    assert not ends.old.exports
    ends.handover_target.abandon()
    assert len(ends.new.held) == 1, "that of the first"


def test_much_that_waits_leaves_by_turns_and_changes_of_subscriptions_after_it() -> None:
    ends = Ends()
    waiting = [queued(number) for number in range(1_000)]
    ends.old.waiting = (waiting[:], [])
    ends.handover_source.begin(0)
    for number in range(2_000):
        ends.handover_source.follow(subscription(f"a/{number}"), False)
    ends.deliver()
    while ends.turn():
        assert len(ends.old.sent) <= PACKETS_PER_ITERATION
        ends.deliver()
    assert ends.came[0] == waiting
    assert len(ends.handover_target.received.subscriptions) == 2_000


def test_nothing_is_lost_where_the_link_has_no_room() -> None:
    ends = Ends()
    ends.things.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(500)]
    ends.old.room = 3
    ends.handover_source.begin(0)
    assert len(ends.old.sent) == 3
    assert ends.handover_source.poll_timeout() == NO_ROOM_PAUSE
    while ends.turn() and ends.now < 60 * NO_ROOM_PAUSE:
        ends.old.room = 1
    ends.old.room = 1_000
    while ends.turn():
        pass
    assert ends.deliver() is TargetState.AWAIT_COMMIT
    assert len(ends.handover_target.received.subscriptions) == 500


def test_much_leaves_by_turns() -> None:
    ends = Ends()
    ends.things.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(5_000)]
    ends.handover_source.begin(0)
    assert len(ends.old.sent) == PACKETS_PER_ITERATION
    ends.deliver()
    while ends.turn():
        assert len(ends.old.sent) <= PACKETS_PER_ITERATION
        ends.deliver()
    assert len(ends.handover_target.received.subscriptions) == 5_000


def test_records_travel_in_packets_that_fit_a_datagram() -> None:
    ends = Ends()
    ends.old.publish("a/large", b"x" * 1_000, 0, True)
    for number in range(50):
        ends.old.publish(f"a/{number}", b"y" * 100, 0, True)
    ends.things.subscriptions = [subscription(f"a/{n}/" + "f" * 60) for n in range(200)]
    ends.begin()
    large = [size for size in ends.old.sizes if size > CHUNK + 60]
    assert len(large) == 1
    assert max(ends.old.sizes) < 1_100
    assert len(ends.old.sizes) < 60
    assert len(ends.handover_target.received.subscriptions) == 200


def test_what_is_not_due_changes_nothing() -> None:
    ends = Ends()
    done = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_DONE)
    commit = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_COMMIT)
    stale = pb.Transfer(subtree="a", epoch=4, phase=pb.TRANSFER_PHASE_READY)
    for transfer in (done, commit, stale):
        assert ends.handover_source.handle(0, transfer) is None
    assert ends.handover_target.handle(commit) is None
    assert ends.handover_target.handle(done) is None
    assert not ends.new.sent


def test_a_handover_that_fails_leaves_nothing_behind() -> None:
    ends = Ends()
    ends.old.publish("a/x", b"1", 0, True)
    ends.things.subscriptions = [subscription("a/#")]
    ends.begin()
    ends.handover_target.abandon()
    assert not ends.handover_target.received.subscriptions
    assert not ends.new.messages
    assert ends.old.messages


def test_both_ends_reach_their_end() -> None:
    assert SourceState.COMPLETE in GIVING.values()
    assert TargetState.COMPLETE in TAKING.values()


def test_what_either_end_has_of_others_below_is_left_as_it_is() -> None:
    ends = Ends()
    ends.things.held = ["a/mine"]
    for core in (ends.old, ends.new):
        core.publish("a/mine/x", b"mine", 0, True)
    ends.old.publish("a/x", b"1", 0, True)
    ends.begin()
    assert set(ends.new.messages) == {"a/mine/x", "a/x"}
    ends.handover_target.abandon()
    assert set(ends.new.messages) == {"a/mine/x"}
    ends.stop_serving()
    while ends.turn():
        pass
    assert set(ends.old.messages) == {"a/mine/x"}
    assert not any(transfer.retained for transfer in ends.old.sent)


def test_records_over_the_bound_are_counted_and_those_that_are_known_still_change() -> None:
    received = ReceivedState(most=2)
    sessions = [pb.SessionRecord(session=session) for session in (1, 2, 3)]
    received.take(pb.Transfer(sessions=sessions))
    assert (len(received.sessions), received.refused) == (2, 1)
    received.take(pb.Transfer(sessions=[pb.SessionRecord(session=1, away_us=5)]))
    assert received.refused == 1
    assert received.sessions[1].away_us == 5


def test_the_right_to_serve_waits_until_it_is_written_down_to_whom_it_went() -> None:
    ends, is_noted = Ends(), False
    ends.handover_source = HandoverSource(
        ends.old, ends.things, "a", 5, 1, ends.returning_children, is_noted=lambda: is_noted
    )
    ends.begin()
    ends.stop_serving()
    while ends.now < DISK_WAIT:
        assert not ends.handover_source.is_held_up(ends.now)
        assert ends.turn()
    assert ends.handover_source.is_held_up(ends.now)
    assert not ends.handover_source.has_committed
    is_noted = True
    assert not ends.handover_source.is_held_up(ends.now)
    ends.commit()
