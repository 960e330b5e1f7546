"""Somebody reads what a child says to its parent in a keyed network, and says it again (§5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from tests.product.network import PATIENCE, tree
from tests.product.node import Stranger, started
from tests.product.peer import Intruder, Listener
from tests.product.sniffed import SniffedRoot, sniffed_root
from tests.product.witness import Witness
from tests.waiting import until

SUBTREE = "home/kitchen"
ELSEWHERE = "127.0.0.9"
"""Where the attacker is."""


class Kitchen:
    """A root, and a child that was recorded in a run that it ended, and is in the one that it has."""

    def __init__(self, sniffed: SniffedRoot) -> None:
        self.root, self.target = sniffed.node, sniffed.target
        self._path = sniffed.path
        self._address = ("127.0.0.3", sniffed.path.near[1])
        listen, key = f"127.0.0.3:{sniffed.path.near[1]}", str(sniffed.key)
        place = ("--name", "kitchen", "--subtree", SUBTREE, "--listen", listen)
        self.command = ("node", *place, "--root", self.root.root, "--join-key-file", key)

    @property
    def recorded(self) -> list[bytes]:
        """All that the child sent to its root, as it left."""
        return [heard.data for heard in self._path.heard_from(self._address)]

    def said(self) -> list[pb.Packet]:
        """The packets in it."""
        return [packet for data in self.recorded for packet in pb.Datagram.FromString(data).packets]

    def proved(self) -> list[pb.Packet]:
        """The packets that the child proved, without the proof."""
        return bare(self.said())

    def by_link(self) -> dict[tuple[int, int], list[pb.Packet]]:
        """The same with the proofs, by session and incarnation."""
        links: dict[tuple[int, int], list[pb.Packet]] = {}
        for data in self.recorded:
            datagram = pb.Datagram.FromString(data)
            link = datagram.header.session, datagram.header.incarnation
            proved = [packet for packet in datagram.packets if packet.HasField("authenticated")]
            links.setdefault(link, []).extend(proved)
        return {link: packets for link, packets in links.items() if packets}

    def next_datagram(self) -> pb.Datagram:
        """One in the child's link, as if it were the next, with the last renewal once more."""
        said = [pb.Datagram.FromString(data) for data in self.recorded]
        header = said[-1].header
        said = [datagram for datagram in said if datagram.header.session == header.session]
        forged = pb.Datagram()
        forged.header.session, forged.header.incarnation = header.session, header.incarnation
        forged.header.number = max(datagram.header.number for datagram in said) + 1
        packets = [packet for datagram in said for packet in datagram.packets]
        last = max(packets, key=lambda packet: packet.delivery)
        renewal = forged.packets.add(delivery=last.delivery + 1, after=last.delivery)
        renewal.authenticated.CopyFrom(last.authenticated)
        return forged

    def renewals(self) -> list[pb.Join]:
        """With which it renewed its lease."""
        return renewals_in(self.proved())

    @property
    def epoch(self) -> int:
        """Under which it holds its subtree now."""
        return int(self.renewals()[-1].epoch)

    def standing(self) -> tuple[object, ...]:
        """Who has the subtree: as the root says, and as the child does."""
        nodes = tree(self.root.root)
        return SUBTREE in nodes["root"]["children"], nodes["kitchen"]["epoch"], nodes["kitchen"]["serving"]

    def owner(self, topic: str) -> str:
        with sync.connect(self.root.root) as client:
            return client.resolve(topic, timeout=PATIENCE).owner

    def retained(self) -> list[str]:
        """Topics of what is retained in the subtree."""
        with sync.connect(self.root.root) as client, client.subscribe(f"{SUBTREE}/#", qos=1) as messages:
            client.publish(f"{SUBTREE}/last", b"", qos=1)
            topics: list[str] = []
            while (message := messages.next(timeout=PATIENCE)) is not None:
                if message.topic == f"{SUBTREE}/last":
                    return topics
                topics.append(message.topic)
            raise TimeoutError("what was just published has not come")


def bare(packets: list[pb.Packet]) -> list[pb.Packet]:
    """What was proved, without the proof."""
    inner = (packet.authenticated.packet for packet in packets)
    return [pb.Packet.FromString(packet) for packet in inner if packet]


def renewals_in(packets: list[pb.Packet]) -> list[pb.Join]:
    joins = [packet.join for packet in packets]
    return [join for join in joins if join.subtree == SUBTREE and join.epoch]


def await_refusal(attacker: Listener) -> None:
    """JOIN is answered, and grants nothing."""
    until(lambda: bool(attacker.joinacks()), "an answer to JOIN", PATIENCE)
    assert {answer.reason for answer in attacker.joinacks()} == {pb.REASON_NOT_AUTHORIZED}
    assert not any(answer.epoch for answer in attacker.joinacks())


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    with sniffed_root(tmp_path_factory.mktemp("keyed")) as sniffed:
        kitchen = Kitchen(sniffed)
        with started(*kitchen.command):
            pass
        before = len(kitchen.renewals())
        with started(*kitchen.command):
            until(lambda: len(kitchen.renewals()) > before, "it renews its lease", PATIENCE)
            yield kitchen


def as_they_were(kitchen: Kitchen) -> None:
    """Every datagram, byte for byte, from another address."""
    with closing(Stranger(kitchen.target, ELSEWHERE)) as attacker:
        for data in kitchen.recorded:
            attacker.send(data)
        attacker.ask()


def outside_of_sessions(kitchen: Kitchen) -> None:
    """The JOINs that bear a credential, with a token of the attacker's own."""
    with closing(Listener(kitchen.target, ELSEWHERE)) as attacker:
        joins = [packet for packet in kitchen.said() if packet.join.credential]
        assert joins
        for packet in joins:
            request = pb.Datagram(packets=[packet], padding=bytes(512))
            request.header.token = attacker.token
            attacker.send(request.SerializeToString())
        await_refusal(attacker)


def over_other_links(kitchen: Kitchen) -> None:
    """What was proved, with its proofs, over a link for each that the child had."""
    for packets in kitchen.by_link().values():
        with closing(Intruder(kitchen.target, ELSEWHERE)) as attacker:
            attacker.reliably(*packets)
            attacker.await_answer()


def without_the_proofs(kitchen: Kitchen) -> None:
    """The renewal, how the child handed back, under its epoch of now, and a message with it."""
    planted = pb.Publish(topic=f"{SUBTREE}/planted", payload=b"!", retain=True, publisher=7, sequence=7)
    returning = (pb.TRANSFER_PHASE_RECORDS, pb.TRANSFER_PHASE_COMMIT)
    forged = [pb.Packet(join=kitchen.renewals()[-1])]
    for packet in kitchen.proved():
        if packet.leave.subtree == SUBTREE:
            packet.leave.epoch = kitchen.epoch
            forged.append(packet)
        elif packet.transfer.subtree == SUBTREE and packet.transfer.phase in returning:
            packet.transfer.epoch = kitchen.epoch
            if packet.transfer.phase == pb.TRANSFER_PHASE_RECORDS:
                packet.transfer.retained.append(planted.SerializeToString())
            forged.append(packet)
    assert [packet.WhichOneof("body") for packet in forged] == ["join", "leave", "transfer", "transfer"]
    with closing(Intruder(kitchen.target, ELSEWHERE)) as attacker:
        attacker.reliably(*forged)
        attacker.await_answer()
        await_refusal(attacker)


@pytest.mark.parametrize(
    ("attack", "reasons"),
    [
        (as_they_were, {"duplicate_datagram", "unknown_session", "address_unproven"}),
        (outside_of_sessions, {"unauthenticated"}),
        (over_other_links, {"unauthenticated"}),
        (without_the_proofs, {"unauthenticated"}),
    ],
)
def test_what_a_child_said_moves_nothing_when_another_says_it(
    kitchen: Kitchen, attack: Callable[[Kitchen], None], reasons: set[str]
) -> None:
    before, dropped = kitchen.standing(), kitchen.root.drops()
    with Witness(kitchen.root.root, f"{SUBTREE}/count") as witness:
        witness.await_published(10)
        attack(kitchen)
        assert kitchen.standing() == before
        witness.await_published(witness.published + 10)
    witness.verify()
    grown = {reason for reason, count in kitchen.root.drops().items() if count > dropped.get(reason, 0)}
    assert reasons <= grown, grown
    assert kitchen.owner(f"{SUBTREE}/oven") == "kitchen"
    assert kitchen.retained() == []


def test_what_a_child_said_counts_once_on_its_own_link(kitchen: Kitchen) -> None:
    """It takes the place of what the child says next: the child begins another link, and keeps its lease."""
    before, dropped = kitchen.standing(), kitchen.root.drops()
    links = len(kitchen.by_link())

    def renews_elsewhere() -> bool:
        later = list(kitchen.by_link().values())[links:]
        return any(renewals_in(bare(packets)) for packets in later)

    with (
        Witness(kitchen.root.root, f"{SUBTREE}/count") as witness,
        closing(Listener(kitchen.target, ELSEWHERE)) as attacker,
    ):
        attacker.send(kitchen.next_datagram().SerializeToString())
        until(renews_elsewhere, "the child renews its lease over another link", PATIENCE)
        assert kitchen.standing() == before
    witness.verify()
    assert kitchen.root.drops()["replayed"] > dropped.get("replayed", 0)
    assert kitchen.owner(f"{SUBTREE}/oven") == "kitchen"
