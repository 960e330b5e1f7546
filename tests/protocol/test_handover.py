"""A subtree moves without losing what changes on the way (§5.4)."""

from __future__ import annotations

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.handover import CHUNK, GIVING, TAKING, Giving, GivingState, Taking, TakingState
from hbroker.protocol.packets import body_of
from hbroker.protocol.subscribers import Subscription
from tests.protocol.fakes import FakeCore, Network


class Wire(FakeCore):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__(Network(), ("10.0.0.1", 1), 1)
        self.sent: list[pb.Transfer] = []
        self.sizes: list[int] = []

    def send(self, link: int, packet: bytes) -> bool:
        body = body_of(packet)
        assert isinstance(body, pb.Transfer)
        self.sent.append(body)
        self.sizes.append(len(packet))
        return True


def subscription(filter: str, session: int = 1) -> Subscription:
    return Subscription(session, ("10.0.0.9", 9), filter, 1, True, True, "alice")


def ends() -> tuple[Wire, Wire, Giving, Taking]:
    old, new = Wire(), Wire()
    return old, new, Giving(old, "a", 5, 1), Taking(new, "a", 5, 1)


def deliver(wire: Wire, taking: Taking) -> TakingState | None:
    state = None
    for transfer in wire.sent:
        state = taking.handle(transfer)
        assert state is not None
    wire.sent.clear()
    return state


def test_what_changes_during_the_handover_arrives_before_the_right_to_serve() -> None:
    old, new, giving, taking = ends()
    for topic in ("a/kept", "a/changed", "a/cleared"):
        old.publish(topic, b"before", 0, True)
    giving.begin([subscription("a/#"), subscription("a/x")])
    assert deliver(old, taking) is TakingState.AWAIT_COMMIT

    giving.follow(subscription("a/new"), False)
    giving.follow(subscription("a/x"), True)
    giving.follow(subscription("elsewhere"), False)
    old.publish("a/changed", b"after", 0, True)
    old.publish("a/cleared", b"", 0, True)
    assert giving.handle(new.sent.pop()) is GivingState.AWAIT_DONE
    giving.commit()
    assert deliver(old, taking) is TakingState.COMPLETE

    assert {s.filter for s in taking.subscriptions} == {"a/#", "a/new"}
    assert taking.subscriptions[0] == subscription("a/#")
    payloads = {t: pb.Publish.FromString(m).payload for t, m in new.messages.items()}
    assert payloads == {"a/kept": b"before", "a/changed": b"after"}
    assert not old.messages
    taking.done()
    assert giving.handle(new.sent.pop()) is GivingState.COMPLETE


def test_records_travel_in_packets_that_fit_a_datagram() -> None:
    old, _, giving, taking = ends()
    old.publish("a/large", b"x" * 1_000, 0, True)
    for number in range(50):
        old.publish(f"a/{number}", b"y" * 100, 0, True)
    giving.begin([subscription(f"a/{n}/" + "f" * 60) for n in range(200)])
    large = [size for size in old.sizes if size > CHUNK + 60]
    assert len(large) == 1
    assert max(old.sizes) < 1_100
    assert len(old.sizes) < 60
    deliver(old, taking)
    assert len(taking.subscriptions) == 200


def test_what_is_not_due_changes_nothing() -> None:
    _, new, giving, taking = ends()
    done = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_DONE)
    commit = pb.Transfer(subtree="a", epoch=5, phase=pb.TRANSFER_PHASE_COMMIT)
    stale = pb.Transfer(subtree="a", epoch=4, phase=pb.TRANSFER_PHASE_READY)
    assert giving.handle(done) is None
    assert giving.handle(commit) is None
    assert giving.handle(stale) is None
    assert taking.handle(commit) is None
    assert taking.handle(done) is None
    assert not new.sent


def test_a_handover_that_fails_leaves_nothing_behind() -> None:
    old, new, giving, taking = ends()
    old.publish("a/x", b"1", 0, True)
    giving.begin([subscription("a/#")])
    deliver(old, taking)
    taking.abandon()
    assert not taking.subscriptions
    assert not new.messages
    assert old.messages


def test_both_ends_reach_their_end() -> None:
    assert GivingState.COMPLETE in GIVING.values()
    assert TakingState.COMPLETE in TAKING.values()
