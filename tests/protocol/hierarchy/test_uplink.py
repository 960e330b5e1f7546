"""A node as a child, alone with what it hears (§5.1, §5.6)."""

from __future__ import annotations

from random import Random

import pytest

from hbroker._native import ControlEvent, LinkDownEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.events import LeaseLost, Refused, TookBack
from hbroker.protocol.node import Node
from hbroker.protocol.packets import Address, Body, Reason, address_of, body_of, pack
from hbroker.protocol.storage import Storage
from tests.protocol.fake_network import Network
from tests.protocol.fakes import FakeCore
from tests.protocol.test_after_sync import Notes

ROOT: Address = ("10.0.0.1", 7700)
PARENT: Address = ("10.0.0.2", 7700)
LINK = 7
BELOW: Address = ("10.0.0.4", 7700)
BELOW_LINK = 8
DONE = pb.TRANSFER_PHASE_DONE


class Recorder(FakeCore):
    """Sends nothing, and keeps what it was to send."""

    def __init__(self) -> None:
        super().__init__(Network(), ("10.0.0.3", 7700), 1)
        self.cast: list[tuple[Address, Body, bytes]] = []
        self.sent: list[Body] = []

    def connect(self, address: Address, token: bytes = b"") -> int:
        return LINK

    def send(self, link: int, packet: bytes) -> bool:
        body = body_of(packet)
        assert body is not None
        self.sent.append(body)
        return True

    def send_to(self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0) -> None:
        body = body_of(packet)
        assert body is not None
        self.cast.append((address, body, token))


class Child:
    """A node that claims `a`, and has its name: only the claim to `a` is answered from then on."""

    def __init__(self, policy: LeasePolicy = LeasePolicy.FENCE, storage: Storage | None = None) -> None:
        self.core = Recorder()
        settings = NodeSettings("n", "a", self.core.address, ROOT, policy=policy)
        self.node = Node(settings, self.core, Random(1), incarnation=5, unix_offset_us=0, storage=storage)
        self.node.start(0)
        self._be_named()

    def _be_named(self) -> None:
        own, forever = "$SYS/nodes/n", 10**8
        for link, sent, fields in (
            (None, self.core.cast, {}),
            (LINK, self.core.sent, {"epoch": 8, "lease_ms": forever}),
        ):
            bodies = [entry[1] if isinstance(entry, tuple) else entry for entry in sent]
            (join,) = [body for body in bodies if isinstance(body, pb.Join) and body.subtree == own]
            ack = self.ack(join, **fields)
            ack.subtree = own
            self.hear(0, ack, link, ROOT if link is None else PARENT)
        for phase, last in ((pb.TRANSFER_PHASE_RECORDS, True), (pb.TRANSFER_PHASE_COMMIT, False)):
            self.hear(0, pb.Transfer(subtree=own, epoch=8, phase=phase, last=last), LINK, PARENT)
        self.core.sent.clear()
        self.events()

    def hear(self, now: int, body: Body, link: int | None = None, source: Address = ROOT) -> None:
        self.node.handle_event(now, ControlEvent(link, source, pack(body), False))

    def joins(self, sent: list[Body]) -> list[pb.Join]:
        return [join for join in sent if isinstance(join, pb.Join) and join.subtree == "a"]

    def join(self) -> pb.Join:
        return self.joins([body for _, body, _ in self.core.cast])[-1]

    def ack(self, join: pb.Join, **fields: int) -> pb.JoinAck:
        ack = pb.JoinAck(request=join.request, node="p", address=address_of(PARENT), subtree="a")
        for name, value in fields.items():
            setattr(ack, name, value)
        return ack

    def serve(self, now: int = 0, lease_ms: int = 15_000) -> None:
        """Goes through the whole of a join, in no time."""
        self.hear(now, self.ack(self.join()))
        (asked,) = self.joins(self.core.sent)
        granted = self.ack(asked, epoch=9, lease_ms=lease_ms, policy=asked.policy)
        self.hear(now, granted, LINK, PARENT)
        for phase, last in ((pb.TRANSFER_PHASE_RECORDS, True), (pb.TRANSFER_PHASE_COMMIT, False)):
            self.hear(now, pb.Transfer(subtree="a", epoch=9, phase=phase, last=last), LINK, PARENT)
        assert self.core.serves("a")

    def delegate(self, now: int) -> None:
        """Another node joins below, for as long as it may."""
        join = pb.Join(request=1, node="below", subtree="a/b", address=address_of(BELOW), incarnation=6)
        self.hear(now, join, BELOW_LINK, BELOW)
        epoch = next(body.epoch for body in reversed(self.core.sent) if isinstance(body, pb.JoinAck))
        for phase in (pb.TRANSFER_PHASE_READY, pb.TRANSFER_PHASE_DONE):
            self.hear(now, pb.Transfer(subtree="a/b", epoch=epoch, phase=phase), BELOW_LINK, BELOW)

    def run(self, start: int, end: int) -> None:
        """Every deadline from start to end."""
        while (deadline := self.node.poll_timeout()) is not None and deadline <= end:
            self.node.handle_timeout(max(start, deadline))

    def events(self) -> list[object]:
        return list(iter(self.node.poll_event, None))


def test_a_challenge_of_the_root_is_met_at_once_and_only_once() -> None:
    child = Child()
    before = len(child.core.cast)
    child.hear(10, pb.Challenge(token=b"forged"), source=("10.6.6.6", 1))
    assert len(child.core.cast) == before
    child.hear(20, pb.Challenge(token=b"proof"))
    assert [token for _, _, token in child.core.cast[before:]] == [b"proof"]
    child.hear(30, pb.Challenge(token=b"proof"))
    assert len(child.core.cast) == before + 1


def test_no_more_than_three_challenges_are_met_in_one_try() -> None:
    """§4.1, §9: somebody who forges them has a joiner send no more."""
    child = Child()
    child.core.cast.clear()
    for number in range(100):
        child.hear(1_000 + number, pb.Challenge(token=b"forged %d" % number))
    assert len(child.core.cast) == 3
    child.run(1_100, 5 * timers.SECOND)
    before = len(child.core.cast)
    child.hear(5 * timers.SECOND, pb.Challenge(token=b"proof"))
    assert [token for _, _, token in child.core.cast[before:]] == [b"proof"]


def test_without_an_answer_it_asks_less_often_but_never_seldom() -> None:
    """Of its tries two in five are in vain where a fifth of all datagrams is lost, and a subtree waits."""
    child = Child()
    child.run(0, 60 * timers.SECOND)
    joins = len(child.joins([body for _, body, _ in child.core.cast]))
    assert 50 <= joins <= 80


def test_an_answer_that_was_not_asked_for_is_dropped() -> None:
    child = Child()
    child.hear(10, pb.JoinAck(request=1, subtree="a", address=address_of(PARENT)))
    assert not child.core.sent
    assert child.node.status(10)["drops"] == {"unexpected_packet": 1}


def test_an_answer_counts_once() -> None:
    child = Child()
    invitation = child.ack(child.join())
    child.hear(10, invitation)
    child.hear(20, invitation)
    assert len(child.joins(child.core.sent)) == 1


@pytest.mark.parametrize("policy", LeasePolicy)
def test_it_stops_a_drift_allowance_before_the_lease_that_it_asked_for_ends(policy: LeasePolicy) -> None:
    child = Child(policy)
    child.serve()
    child.node.handle_event(1, LinkDownEvent(LINK, PARENT, 1, False, "timeout"))
    child.run(1, 14 * timers.SECOND - 1)
    assert child.core.serves("a")
    child.run(1, 14 * timers.SECOND)
    assert child.core.serves("a") == (policy is LeasePolicy.SERVE)
    assert (LeaseLost("a") in child.events()) == (policy is LeasePolicy.FENCE)


def test_who_leaves_without_its_silent_parent_says_that_it_serves_no_more() -> None:
    child = Child()
    child.serve()
    child.node.leave(10)
    child.run(10, 3 * timers.SECOND + 9)
    assert child.core.serves("a")
    child.run(10, 3 * timers.SECOND + 10)
    assert not child.core.serves("a")
    assert LeaseLost("a") in child.events()


def test_who_hands_back_before_its_disk_has_what_it_took_says_done_first() -> None:
    """§5.10: late, behind LEAVE, its parent would expect it no more."""
    notes = Notes()
    child = Child(storage=notes)
    notes.written = 1
    child.serve()
    child.core.sent.clear()
    child.node.leave(10)
    notes.durable = 1
    child.run(10, 20)
    said = [
        body for body in child.core.sent if isinstance(body, pb.Leave) or getattr(body, "phase", 0) == DONE
    ]
    assert [type(body) for body in said if body.subtree == "a"] == [pb.Transfer, pb.Leave]


def test_a_packet_that_comes_after_the_lease_ended_does_not_prolong_it() -> None:
    child = Child()
    child.serve()
    child.run(0, 6 * timers.SECOND)
    renewal = child.joins(child.core.sent)[-1]
    assert renewal.epoch == 9
    late = child.ack(renewal, epoch=9, lease_ms=15_000)
    child.hear(14 * timers.SECOND, late, LINK, PARENT)
    assert not child.core.serves("a")


def test_a_lease_is_renewed_five_times_in_its_length() -> None:
    child = Child()
    child.serve(lease_ms=15_000)
    child.run(0, 3 * timers.SECOND - 1)
    assert len(child.joins(child.core.sent)) == 1
    child.run(0, 3 * timers.SECOND)
    assert len(child.joins(child.core.sent)) == 2


@pytest.mark.parametrize("reason", ["STALE_EPOCH", "OVERLAP"])
def test_a_node_that_was_fenced_stops_at_once_and_joins_anew(reason: str) -> None:
    child = Child()
    child.serve()
    child.run(0, 5 * timers.SECOND)
    renewal = child.joins(child.core.sent)[-1]
    child.hear(5 * timers.SECOND, child.ack(renewal, reason=Reason.Value(f"REASON_{reason}")), LINK, PARENT)
    assert not child.core.serves("a")
    child.run(5 * timers.SECOND, 12 * timers.SECOND)
    assert child.join().epoch == 0


def test_who_lost_a_lease_joins_again_though_what_it_delegated_is_held_still() -> None:
    child = Child()
    child.serve(lease_ms=15_000)
    child.delegate(timers.SECOND)
    child.run(timers.SECOND, 14 * timers.SECOND - 2)
    child.node.handle_event(14 * timers.SECOND - 1, LinkDownEvent(LINK, PARENT, 1, False, "timeout"))
    child.run(timers.SECOND, 14 * timers.SECOND)
    assert LeaseLost("a") in child.events()
    asked = len(child.core.cast)
    child.run(14 * timers.SECOND, 16 * timers.SECOND - 1)
    assert child.joins([body for _, body, _ in child.core.cast[asked:]])
    assert child.node.jurisdiction.delegation_of("a/b") is not None
    child.run(16 * timers.SECOND, 17 * timers.SECOND)
    assert child.events()[0] == TookBack("a/b", "below")


def refuse(child: Child, now: int) -> None:
    """The parent has too many sessions."""
    child.node.handle_event(now, LinkDownEvent(LINK, PARENT, 1, False, "refused"))


def test_a_parent_that_opens_no_session_is_asked_seldom_and_that_is_told() -> None:
    child = Child()
    answered: set[int] = set()
    for now in range(timers.SECOND, 61 * timers.SECOND, timers.SECOND // 20):
        child.run(now, now)
        join = child.join()
        if join.request not in answered:
            answered.add(join.request)
            child.hear(now, child.ack(join))
            refuse(child, now)
    assert 60 / 6 <= len(answered) <= 60 / 3 + 1
    assert child.events().count(Refused("a", Reason.REASON_QUOTA_EXCEEDED, "", False)) == len(answered)


def test_a_parent_that_opens_no_session_any_more_is_asked_seldom_while_the_lease_lasts() -> None:
    child = Child()
    child.serve(lease_ms=100_000)
    tries = 0
    child.core.sent.clear()
    refuse(child, timers.SECOND)
    for now in range(timers.SECOND, 61 * timers.SECOND, timers.SECOND // 20):
        child.run(now, now)
        if child.joins(child.core.sent):
            tries += 1
            child.core.sent.clear()
            refuse(child, now)
    assert child.core.serves("a")
    assert 4 <= tries <= 60 / 3


def test_a_wrong_credential_is_not_tried_again() -> None:
    child = Child()
    child.hear(10, child.ack(child.join(), reason=Reason.REASON_NOT_AUTHORIZED))
    asked = len(child.joins([body for _, body, _ in child.core.cast]))
    child.run(10, 60 * timers.SECOND)
    assert len(child.joins([body for _, body, _ in child.core.cast])) == asked
    assert Refused("a", Reason.REASON_NOT_AUTHORIZED, "", True) in child.events()
