"""One node as a child, alone with the packets that it receives (§5.1, §5.6)."""

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
    """A core that sends nothing and records what it should send."""

    def __init__(self) -> None:
        super().__init__(Network(), ("10.0.0.3", 7700), 1)
        self.cast: list[tuple[Address, Body, bytes]] = []
        self.sent: list[Body] = []
        self.other_links: dict[Address, int] = {}
        self.closed: list[int] = []

    def connect(self, address: Address, token: bytes = b"") -> int:
        return self.other_links.get(address, LINK)

    def close(self, link: int) -> None:
        self.closed.append(link)

    def send(self, link: int, packet: bytes) -> bool:
        body = body_of(packet)
        assert body is not None
        self.sent.append(body)
        return True

    def send_to(
        self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        body = body_of(packet)
        assert body is not None
        self.cast.append((address, body, token))


class Child:
    """A node that claims `a` and has its name already. From then on only its JOIN for `a` is answered."""

    def __init__(self, policy: LeasePolicy = LeasePolicy.FENCE, storage: Storage | None = None) -> None:
        self.core = Recorder()
        settings = NodeSettings("n", "a", self.core.address, ROOT, policy=policy)
        self.node = Node(settings, self.core, Random(1), incarnation=5, unix_offset_us=0, storage=storage)
        self.node.start(0)
        self._take_name()

    def _take_name(self) -> None:
        own, forever = "$SYS/nodes/n", 10**8
        for link, sent, fields in (
            (None, self.core.cast, {}),
            (LINK, self.core.sent, {"epoch": 8, "lease_ms": forever}),
        ):
            bodies = [entry[1] if isinstance(entry, tuple) else entry for entry in sent]
            (join,) = [body for body in bodies if isinstance(body, pb.Join) and body.subtree == own]
            ack = self.ack(join, **fields)
            ack.subtree = own
            self.receive(0, ack, link, ROOT if link is None else PARENT)
        for phase, last in ((pb.TRANSFER_PHASE_RECORDS, True), (pb.TRANSFER_PHASE_COMMIT, False)):
            self.receive(0, pb.Transfer(subtree=own, epoch=8, phase=phase, last=last), LINK, PARENT)
        self.core.sent.clear()
        self.events()

    def receive(self, now: int, body: Body, link: int | None = None, source: Address = ROOT) -> None:
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

    def complete_join(self, now: int = 0, lease_ms: int = 15_000) -> None:
        """Completes a join, without any time passing."""
        self.receive(now, self.ack(self.join()))
        (asked,) = self.joins(self.core.sent)
        granted = self.ack(asked, epoch=9, lease_ms=lease_ms, policy=asked.policy)
        self.receive(now, granted, LINK, PARENT)
        for phase, last in ((pb.TRANSFER_PHASE_RECORDS, True), (pb.TRANSFER_PHASE_COMMIT, False)):
            self.receive(now, pb.Transfer(subtree="a", epoch=9, phase=phase, last=last), LINK, PARENT)
        assert self.core.serves("a")

    def delegate(self, now: int) -> None:
        """Lets another node join below, with the longest lease."""
        join = pb.Join(request=1, node="below", subtree="a/b", address=address_of(BELOW), incarnation=6)
        self.receive(now, join, BELOW_LINK, BELOW)
        epoch = next(body.epoch for body in reversed(self.core.sent) if isinstance(body, pb.JoinAck))
        for phase in (pb.TRANSFER_PHASE_READY, pb.TRANSFER_PHASE_DONE):
            self.receive(now, pb.Transfer(subtree="a/b", epoch=epoch, phase=phase), BELOW_LINK, BELOW)

    def run(self, start: int, end: int) -> None:
        """Runs every deadline from `start` to `end`."""
        while (deadline := self.node.poll_timeout()) is not None and deadline <= end:
            self.node.handle_timeout(max(start, deadline))

    def events(self) -> list[object]:
        return list(iter(self.node.poll_event, None))


def test_a_challenge_of_the_root_is_answered_at_once_and_only_once() -> None:
    child = Child()
    before = len(child.core.cast)
    child.receive(10, pb.Challenge(token=b"forged"), source=("10.6.6.6", 1))
    assert len(child.core.cast) == before
    child.receive(20, pb.Challenge(token=b"proof"))
    assert [token for _, _, token in child.core.cast[before:]] == [b"proof"]
    child.receive(30, pb.Challenge(token=b"proof"))
    assert len(child.core.cast) == before + 1


def test_at_most_three_challenges_are_answered_in_one_try() -> None:
    """§4.1, §9: forged challenges do not make a joiner send more."""
    child = Child()
    child.core.cast.clear()
    for number in range(100):
        child.receive(1_000 + number, pb.Challenge(token=b"forged %d" % number))
    assert len(child.core.cast) == 3
    child.run(1_100, 5 * timers.SECOND)
    before = len(child.core.cast)
    child.receive(5 * timers.SECOND, pb.Challenge(token=b"proof"))
    assert [token for _, _, token in child.core.cast[before:]] == [b"proof"]


def test_the_joiner_repeats_its_join_about_once_a_second_for_as_long_as_nobody_answers() -> None:
    """If a fifth of all datagrams is lost, two of five tries fail, and the subtree has no owner meanwhile."""
    child = Child()
    child.run(0, 60 * timers.SECOND)
    joins = len(child.joins([body for _, body, _ in child.core.cast]))
    assert 50 <= joins <= 80


def test_an_unrequested_joinack_is_dropped() -> None:
    child = Child()
    child.receive(10, pb.JoinAck(request=1, subtree="a", address=address_of(PARENT)))
    assert not child.core.sent
    assert child.node.status(10)["drops"] == {"unexpected_packet": 1}


def test_a_duplicate_of_an_invitation_is_ignored() -> None:
    child = Child()
    invitation = child.ack(child.join())
    child.receive(10, invitation)
    child.receive(20, invitation)
    assert len(child.joins(child.core.sent)) == 1


@pytest.mark.parametrize("policy", LeasePolicy)
def test_a_node_under_fence_stops_one_drift_allowance_before_its_lease_ends(policy: LeasePolicy) -> None:
    child = Child(policy)
    child.complete_join()
    child.node.handle_event(1, LinkDownEvent(LINK, PARENT, 1, False, "timeout"))
    child.run(1, 14 * timers.SECOND - 1)
    assert child.core.serves("a")
    child.run(1, 14 * timers.SECOND)
    assert child.core.serves("a") == (policy is LeasePolicy.SERVE)
    assert (LeaseLost("a") in child.events()) == (policy is LeasePolicy.FENCE)


def test_a_node_that_leaves_and_whose_parent_is_silent_reports_that_it_serves_no_more() -> None:
    child = Child()
    child.complete_join()
    child.node.leave(10)
    child.run(10, 3 * timers.SECOND + 9)
    assert child.core.serves("a")
    child.run(10, 3 * timers.SECOND + 10)
    assert not child.core.serves("a")
    assert LeaseLost("a") in child.events()


def test_a_child_that_hands_back_before_its_disk_is_synced_sends_no_done() -> None:
    """§5.10: with DONE the parent would forget what the child's next run does not know."""
    notes = Notes()
    child = Child(storage=notes)
    notes.written = 1
    child.complete_join()
    child.core.sent.clear()
    child.node.leave(10)
    notes.durable = 1
    child.run(10, 20)
    said = [
        body for body in child.core.sent if isinstance(body, pb.Leave) or getattr(body, "phase", 0) == DONE
    ]
    assert [type(body) for body in said if body.subtree == "a"] == [pb.Leave]


def test_an_answer_that_arrives_after_the_lease_ended_does_not_prolong_it() -> None:
    child = Child()
    child.complete_join()
    child.run(0, 6 * timers.SECOND)
    renewal = child.joins(child.core.sent)[-1]
    assert renewal.epoch == 9
    late = child.ack(renewal, epoch=9, lease_ms=15_000)
    child.receive(14 * timers.SECOND, late, LINK, PARENT)
    assert not child.core.serves("a")


def test_a_lease_is_renewed_five_times_in_its_duration() -> None:
    child = Child()
    child.complete_join(lease_ms=15_000)
    child.run(0, 3 * timers.SECOND - 1)
    assert len(child.joins(child.core.sent)) == 1
    child.run(0, 3 * timers.SECOND)
    assert len(child.joins(child.core.sent)) == 2


@pytest.mark.parametrize("reason", ["STALE_EPOCH", "OVERLAP"])
def test_a_node_whose_renewal_is_refused_stops_at_once_and_joins_again(reason: str) -> None:
    child = Child()
    child.complete_join()
    child.run(0, 5 * timers.SECOND)
    renewal = child.joins(child.core.sent)[-1]
    child.receive(
        5 * timers.SECOND, child.ack(renewal, reason=Reason.Value(f"REASON_{reason}")), LINK, PARENT
    )
    assert not child.core.serves("a")
    child.run(5 * timers.SECOND, 12 * timers.SECOND)
    assert child.join().epoch == 0


def test_a_node_whose_lease_ended_joins_again_while_its_child_still_holds_a_lease() -> None:
    child = Child()
    child.complete_join(lease_ms=15_000)
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
    """The parent has too many sessions and refuses another."""
    child.node.handle_event(now, LinkDownEvent(LINK, PARENT, 1, False, "refused"))


def test_a_joiner_asks_seldom_if_the_parent_refuses_its_session_and_reports_each_refusal() -> None:
    child = Child()
    answered: set[int] = set()
    for now in range(timers.SECOND, 61 * timers.SECOND, timers.SECOND // 20):
        child.run(now, now)
        join = child.join()
        if join.request not in answered:
            answered.add(join.request)
            child.receive(now, child.ack(join))
            refuse(child, now)
    assert 60 / 6 <= len(answered) <= 60 / 3 + 1
    assert child.events().count(Refused("a", Reason.REASON_QUOTA_EXCEEDED, "", False)) == len(answered)


def test_a_child_asks_seldom_if_the_parent_refuses_its_session_and_serves_while_its_lease_lasts() -> None:
    child = Child()
    child.complete_join(lease_ms=100_000)
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


def test_a_join_that_is_refused_as_not_authorized_is_not_repeated() -> None:
    child = Child()
    child.receive(10, child.ack(child.join(), reason=Reason.REASON_NOT_AUTHORIZED))
    asked = len(child.joins([body for _, body, _ in child.core.cast]))
    child.run(10, 60 * timers.SECOND)
    assert len(child.joins([body for _, body, _ in child.core.cast])) == asked
    assert Refused("a", Reason.REASON_NOT_AUTHORIZED, "", True) in child.events()


def test_a_child_whose_claim_ends_keeps_nothing_of_what_it_handed_back() -> None:
    """It does not know whether the parent has it, joins for the subtree, and is refused for good."""
    child = Child()
    child.complete_join()
    child.node.claims.hand_back(10, "a")
    child.receive(20, pb.Transfer(subtree="a", epoch=9, phase=pb.TRANSFER_PHASE_READY), LINK, PARENT)
    child.run(20, 10 * timers.SECOND)
    assert child.core.held
    child.receive(10 * timers.SECOND, child.ack(child.join(), reason=Reason.REASON_NOT_AUTHORIZED))
    assert Refused("a", Reason.REASON_NOT_AUTHORIZED, "", True) in child.events()
    assert not child.core.held


def test_no_join_stays_queued_for_a_parent_that_is_not_asked_any_more() -> None:
    """A renewal that waited on a link to it would come behind a claim that was made later, and seem to hold
    what the node has handed back meanwhile."""
    successor, other = ("10.0.0.5", 7700), ("10.0.0.6", 7700)
    child = Child()
    child.core.other_links = {successor: 20, other: 21}
    child.complete_join(lease_ms=100_000)
    holder = pb.Cut(subtree="a", node="successor", address=address_of(successor), epoch=10)
    named = pb.JoinAck(subtree="a", reason=Reason.REASON_HANDOVER, holder=holder)
    child.receive(10, named, LINK, PARENT)
    child.core.cast.clear()
    child.run(10, 20 * timers.SECOND)
    assert child.core.closed == []
    child.receive(20 * timers.SECOND, invitation(child, other))
    assert child.core.closed == [20]
    assert child.core.serves("a")


def invitation(child: Child, parent: Address) -> pb.JoinAck:
    ack = child.ack(child.join())
    ack.address.CopyFrom(address_of(parent))
    return ack
