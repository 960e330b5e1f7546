"""What child and parent say to each other counts once, on their link, from them alone (§5.5)."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.events import Diagnostics, LeaseLost, Unproved
from hbroker.protocol.hierarchy.channels import Channels
from hbroker.protocol.hierarchy.join_proofs import NONCE_PERIOD, Nonces
from hbroker.protocol.packets import Address, Body, Reason, address_of, body_of, pack
from tests.protocol.fake_network import DELAY, Conversation
from tests.protocol.fakes import FakeCore
from tests.protocol.world import Running, World

KEY = b"a secret of enough bytes"
STRANGER: Address = ("10.6.6.6", 5_000)


class House:
    """A root and a child that holds `a`, and somebody who writes down what passes between them."""

    def __init__(self, key: bytes = KEY) -> None:
        self.world = World()
        self.heard: list[tuple[Conversation, bool, bytes]] = []
        """What was sent: over which link, whether by its initiator, and the packet."""
        network: Any = self.world.network
        carry = network.carry

        def listen(conversation: Conversation, sender: FakeCore, packet: bytes) -> None:
            self.heard.append((conversation, sender is conversation.initiator, packet))
            carry(conversation, sender, packet)

        self.carry = carry
        network.carry = listen
        self.root = self.world.start_root(join_key=key)
        self.child = self.world.start_node("child", "a", join_key=key)
        self.world.advance(1)
        assert self.world.owners("a/x") == ["child"]

    def start(self, name: str, subtree: str, key: bytes = KEY) -> Running:
        running = self.world.start_node(name, subtree, join_key=key)
        self.world.advance(1)
        return running

    @property
    def by_child(self) -> list[bytes]:
        return [packet for _, is_childs, packet in self.heard if is_childs]

    @property
    def link(self) -> Conversation:
        """The child's."""
        core: Any = self.child.core
        found: Conversation = next(c for c in core.links.values() if c.initiator is core)
        return found

    def stranger(self) -> FakeCore:
        core = self.world.network.attach(STRANGER)
        assert isinstance(core, FakeCore)
        return core

    def say(self, core: FakeCore, packets: list[bytes]) -> list[Body | None]:
        """Says these over a link of `core`'s own; what comes back."""
        before = len(self.heard)
        link = core.connect(self.root.settings.listen)
        for packet in packets:
            core.send(link, packet)
        self.world.advance(0.5)
        return [body_of(p) for c, is_first, p in self.heard[before:] if c.initiator is core and not is_first]

    def drops(self, running: Running) -> dict[str, int]:
        drops = running.node.status(self.world.network.now)["drops"]
        assert isinstance(drops, dict)
        return {k: n for k, n in drops.items() if k in ("unauthenticated", "replayed", "out_of_sequence")}

    def state(self) -> tuple[Any, ...]:
        """The delegation at the root, and who owns the topic."""
        delegation = self.root.node.jurisdiction.delegation_of("a")
        assert delegation is not None
        return delegation.link, delegation.epoch, delegation.until, *self.world.owners("a/x")

    @property
    def epoch(self) -> int:
        epoch: int = self.state()[1]
        return epoch

    def renewal(self) -> bytes:
        """A JOIN with which the child renews, as it was heard on the wire."""
        for packet in reversed(self.by_child):
            body = body_of(packet)
            inner = body_of(body.packet) if isinstance(body, pb.Authenticated) else body
            if isinstance(inner, pb.Join) and inner.subtree == "a" and inner.epoch:
                return packet
        raise AssertionError("the child has renewed")


def joining(epoch: int) -> pb.Join:
    return pb.Join(request=7, node="child", subtree="a", epoch=epoch, address=address_of(("10.0.1.2", 7700)))


def forged(epoch: int) -> list[bytes]:
    """What splits a network where it is believed: the subtree goes back, with a message from nobody."""
    message = pb.Publish(topic="a/forged", payload=b"!", retain=True).SerializeToString()
    return [
        pack(joining(epoch)),
        pack(pb.Leave(subtree="a", epoch=epoch)),
        pack(pb.Transfer(subtree="a", epoch=epoch, last=True, retained=[message])),
        pack(pb.Transfer(subtree="a", epoch=epoch, phase=pb.TRANSFER_PHASE_COMMIT)),
    ]


def test_all_that_passes_between_child_and_parent_is_proved() -> None:
    house = House()
    house.world.advance(10)
    house.world.leave("child")
    house.world.advance(1)
    assert house.world.owners("a/x") == ["root"]
    kinds = {type(body_of(packet)) for _, _, packet in house.heard}
    assert kinds == {pb.Authenticated}
    assert not house.drops(house.root)


def test_without_a_key_nothing_is_asked_for() -> None:
    house = House(b"")
    assert pb.Authenticated not in {type(body_of(packet)) for _, _, packet in house.heard}


@pytest.mark.parametrize("restarted", [None, "root", "child"])
def test_what_was_heard_counts_on_no_other_link(restarted: str | None) -> None:
    house = House()
    house.world.advance(5)
    recorded = house.by_child
    if restarted is not None:
        house.world.restart(restarted)
        house.world.advance(3)
        house.root, house.child = house.world.nodes["root"], house.world.nodes["child"]
    before = house.state()
    answers = house.say(house.stranger(), recorded)
    after = house.state()
    assert (after[0], after[1], after[3:]) == (before[0], before[1], before[3:])
    assert after[2] - before[2] <= timers.LEASE // timers.LEASE_RENEWALS + timers.SECOND
    assert {type(answer) for answer in answers} <= {pb.Authenticated}, "nothing but a nonce"
    assert house.drops(house.root)["unauthenticated"] >= len(recorded) - 2


def test_what_was_heard_counts_once_on_its_own_link() -> None:
    house = House()
    house.world.advance(5)
    recorded, link = house.by_child, house.link
    before = house.state()
    for packet in recorded:
        house.carry(link, link.initiator, packet)
    house.world.advance(0.1)
    assert house.state() == before
    assert house.drops(house.root) == {"replayed": len(recorded) - 1}, "all but the first, which asks"


def test_what_the_parent_said_counts_once_too() -> None:
    house = House()
    recorded, link = [p for _, is_childs, p in house.heard if not is_childs], house.link
    for packet in recorded:
        house.carry(link, link.acceptor, packet)
    house.world.advance(0.1)
    assert house.drops(house.child) == {"replayed": len(recorded) - 1}
    assert house.world.owners("a/x") == ["child"]


@pytest.mark.parametrize("is_own", [True, False])
def test_what_proves_nothing_is_not_believed(is_own: bool) -> None:
    """Over a link of a stranger's own, and over the child's, whose session id can be read on the wire."""
    house = House()
    before = house.state()
    if is_own:
        answers = house.say(house.stranger(), forged(house.epoch))
        refusals = [answer.reason for answer in answers if isinstance(answer, pb.JoinAck)]
        assert refusals == [Reason.REASON_NOT_AUTHORIZED]
    else:
        for packet in forged(house.epoch):
            house.carry(house.link, house.link.initiator, packet)
        house.world.advance(0.5)
    assert house.state() == before
    assert house.drops(house.root) == {"unauthenticated": 4}
    assert "a/forged" not in house.root.core.messages


def test_a_proof_of_another_packet_proves_nothing() -> None:
    house = House()
    house.world.advance(5)
    message = body_of(house.renewal())
    assert isinstance(message, pb.Authenticated)
    message.sequence += 1
    house.carry(house.link, house.link.initiator, pack(message))
    message.sequence -= 1
    message.packet = pack(pb.Leave(subtree="a", epoch=house.epoch))
    house.carry(house.link, house.link.initiator, pack(message))
    house.world.advance(0.1)
    assert house.drops(house.root) == {"unauthenticated": 2}
    assert house.world.owners("a/x") == ["child"]


def test_a_packet_that_is_missing_ends_the_link_and_not_the_lease() -> None:
    """A forged packet can take the place of a genuine one below (§3.3): what was lost is not to be missed."""
    house = House()
    network: Any = house.world.network
    link, listening = house.link, network.carry
    lost: list[bytes] = []

    def lose_one(conversation: Conversation, sender: FakeCore, packet: bytes) -> None:
        if conversation is link and sender is link.initiator and not lost:
            lost.append(packet)
        else:
            listening(conversation, sender, packet)

    network.carry = lose_one
    house.world.advance(30)
    assert lost
    assert house.drops(house.root) == {"out_of_sequence": 1}
    assert house.world.owners("a/x") == ["child"]
    assert house.link is not link
    assert not [n for n in house.world.events("child") if isinstance(n, LeaseLost)]


def test_an_order_to_turn_to_another_parent_is_believed_of_the_parent_alone() -> None:
    house = House()
    elsewhere = pb.Cut(subtree="a", node="evil", address=address_of(STRANGER), epoch=house.epoch)
    told = pb.JoinAck(reason=Reason.REASON_HANDOVER, subtree="a", holder=elsewhere)
    house.carry(house.link, house.link.acceptor, pack(told))
    refused = pb.Transfer(subtree="a", epoch=house.epoch, last=True)
    house.carry(house.link, house.link.acceptor, pack(refused))
    house.world.advance(0.5)
    assert house.drops(house.child) == {"unauthenticated": 2}
    assert house.child.node.requested_subtrees.parent == "root"


def test_who_has_no_key_is_no_parent() -> None:
    """Whoever answers a JOIN first is not believed, and a lease is not ended by what anybody says."""
    house = House()
    house.world.network.part(house.root.settings.listen, house.child.settings.listen)
    house.world.advance(16)
    uplink: Any = house.child.node.requested_subtrees.find("a")
    for reason in (Reason.REASON_SUCCESS, Reason.REASON_OVERLAP, Reason.REASON_NOT_AUTHORIZED):
        ack = pb.JoinAck(subtree="a", node="evil", address=address_of(STRANGER), reason=reason)
        ack.request = list(uplink._join_requests._sent)[-1]
        event = ControlEvent(None, STRANGER, pack(ack), False)
        house.child.node.handle_event(house.world.network.now, event)
    assert house.drops(house.child) == {"unauthenticated": 3}
    assert house.world.owners("a/x") == ["child"]


FORGED = [
    Reason.REASON_SUCCESS,
    Reason.REASON_OVERLAP,
    Reason.REASON_NOT_AUTHORIZED,
    Reason.REASON_PROTOCOL_ERROR,
]


def forge(running: Running, reason: Reason = Reason.REASON_NOT_AUTHORIZED) -> None:
    """Somebody who reads the JOIN on its way answers it, without the key."""
    for uplink in running.node.requested_subtrees:
        for request in list(cast(Any, uplink)._join_requests._sent):
            ack = pb.JoinAck(request=request, subtree=uplink.subtree, node="evil", reason=reason)
            ack.address.CopyFrom(address_of(STRANGER))
            event = ControlEvent(None, running.settings.root or STRANGER, pack(ack), False)
            running.node.handle_event(running.core.network.now, event)


@pytest.mark.parametrize("reason", FORGED)
def test_a_forged_answer_neither_ends_a_join_nor_delays_it(reason: Reason) -> None:
    """It comes before the true one to each JOIN."""
    house = House()
    late = house.world.start_node("late", "b", join_key=KEY)
    for _ in range(500):
        forge(late, reason)
        house.world.advance(DELAY[0] / timers.SECOND)
    assert house.world.owners("b/x") == ["late"]
    assert house.drops(late)["unauthenticated"] >= 2, "one for each of its claims at the least"


def test_forged_answers_put_the_next_try_off_once() -> None:
    """However many come: or else the one who forges them chooses when a node may join."""
    house = House()
    late = house.world.start_node("late", "b", join_key=KEY)
    root, own = house.root.settings.listen, late.settings.listen
    house.world.network.part(root, own)
    for _ in range(8):
        forge(late)
        house.world.advance(0.5)
    house.world.network.heal()
    for _ in range(8):
        forge(late)
        house.world.advance(0.5)
    assert house.world.owners("b/x") == ["late"]


def test_who_has_another_key_says_so_and_asks_seldom_until_it_is_right() -> None:
    """§5.5: it cannot tell that from a forged answer."""
    house = House(b"quite another secret")
    late = house.world.start_node("late", "b", join_key=KEY)
    house.world.advance(60)
    assert not late.node.has_stopped
    said = [node_event for node_event in house.world.events("late") if isinstance(node_event, Unproved)]
    assert {node_event.subtree for node_event in said} == {"$SYS/nodes/late"}
    assert 60 / 6 <= len(said) <= 60 / 3
    assert house.drops(late)["unauthenticated"] == len(said)
    house.world.kill("root")
    house.world.start_root(join_key=KEY)
    house.world.advance(6)
    assert house.world.owners("b/x") == ["late"]


def test_a_join_from_outside_counts_for_who_sent_it_and_not_for_ever() -> None:
    house = House()
    cast: list[tuple[Address, bytes]] = []
    core: Any = house.world.network.attach(("10.0.9.9", 7700))
    honest = core.network.cast

    def listen(sender: FakeCore, address: Address, packet: bytes) -> None:
        cast.append((sender.address, packet))
        honest(sender, address, packet)

    core.network.cast = listen
    late = house.start("late", "b")
    joins = [
        (at, body)
        for at, packet in cast
        if isinstance(body := body_of(packet), pb.Join) and body.subtree == "b" and body.credential
    ]
    assert joins, "it proved the key over a nonce"
    source, proved = joins[-1]
    assert source == late.settings.listen

    def answer(address: Address, join: pb.Join) -> pb.JoinAck:
        del cast[:]
        now = house.world.network.now
        house.root.node.handle_event(now, ControlEvent(None, address, pack(join), True))
        (ack,) = [body_of(packet) for _, packet in cast]
        assert isinstance(ack, pb.JoinAck)
        return ack

    assert not house.drops(house.root)
    assert answer(source, proved).reason == Reason.REASON_SUCCESS
    assert answer(STRANGER, proved).reason == Reason.REASON_NOT_AUTHORIZED
    altered = pb.Join()
    altered.CopyFrom(proved)
    altered.fenced = not altered.fenced
    assert answer(source, altered).reason == Reason.REASON_NOT_AUTHORIZED
    house.world.advance(2 * NONCE_PERIOD / timers.SECOND)
    stale = answer(source, proved)
    assert stale.reason == Reason.REASON_NOT_AUTHORIZED
    assert stale.nonce != proved.nonce
    assert house.drops(house.root) == {"unauthenticated": 3}


def test_a_parent_at_another_address_is_another() -> None:
    """Who passes on what two ends say to each other is not taken for either."""
    diagnostics = Diagnostics()
    core: Any = _Core()
    child = Channels(core, KEY, STRANGER, Random(1), Nonces(b"1" * 16), diagnostics)
    parent = Channels(core, KEY, ("10.0.0.1", 7700), Random(2), Nonces(b"2" * 16), diagnostics)
    child.connect(("10.0.0.9", 7700))
    child.send(1, pack(joining(0)))
    parent.open(1, core.take())
    child.open(1, core.take())
    assert parent.open(1, core.take()) is None
    assert diagnostics.counters == {"drop.unauthenticated": 1}


def test_what_a_link_has_no_room_for_is_sent_again_under_the_same_number() -> None:
    diagnostics = Diagnostics()
    core: Any = _Core()
    child = Channels(core, KEY, STRANGER, Random(1), Nonces(b"1" * 16), diagnostics)
    parent = Channels(core, KEY, ("10.0.0.1", 7700), Random(2), Nonces(b"2" * 16), diagnostics)
    child.connect(("10.0.0.1", 7700))
    assert child.send(1, pack(joining(0)))
    parent.open(1, core.take())
    child.open(1, core.take())
    assert parent.open(1, core.take()) == pack(joining(0))
    core.has_room = False
    assert not child.send(1, pack(joining(1)))
    core.has_room = True
    assert child.send(1, pack(joining(2)))
    assert parent.open(1, core.take()) == pack(joining(2))


class _Core:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.has_room = True

    def connect(self, address: Address, token: bytes) -> int:
        return 1

    def send(self, link: int, packet: bytes) -> bool:
        if self.has_room:
            self.sent.append(packet)
        return self.has_room

    def take(self) -> pb.Authenticated:
        body = body_of(self.sent.pop(0))
        assert isinstance(body, pb.Authenticated)
        return body
