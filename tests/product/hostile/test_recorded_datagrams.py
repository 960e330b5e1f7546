"""An attacker records what a child sends to its parent in a network with a join key, and replays it
(§5.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hbroker import sync
from hbroker._proto import packet_pb2 as pb
from tests.product.hostile.loss_check import LossCheck
from tests.product.hostile.sniffed import SniffedRoot, sniffed_root
from tests.product.network import PATIENCE, tree
from tests.product.node import Stranger, started
from tests.product.peer import Intruder, Listener
from tests.waiting import until

SUBTREE = "home/kitchen"
ELSEWHERE = "127.0.0.9"
"""The address of the attacker."""


class Kitchen:
    """A root and a child. Everything that the child sent was recorded, in an earlier run and in the
    current one."""

    def __init__(self, sniffed: SniffedRoot) -> None:
        self.root, self.target = sniffed.node, sniffed.target
        self._path = sniffed.path
        self._address = ("127.0.0.3", sniffed.path.near[1])
        listen, key = f"127.0.0.3:{sniffed.path.near[1]}", str(sniffed.key)
        place = ("--name", "kitchen", "--subtree", SUBTREE, "--listen", listen)
        self.command = ("node", *place, "--root", self.root.root, "--join-key-file", key)

    @property
    def recorded(self) -> list[bytes]:
        """All datagrams that the child sent to its root, byte for byte."""
        return [recorded.data for recorded in self._path.recorded_from(self._address)]

    def packets_sent(self) -> list[pb.Packet]:
        """The packets in the recorded datagrams."""
        return [packet for data in self.recorded for packet in pb.Datagram.FromString(data).packets]

    def authenticated_packets(self) -> list[pb.Packet]:
        """The packets that the child authenticated, without their proofs."""
        return without_proofs(self.packets_sent())

    def by_link(self) -> dict[tuple[int, int], list[pb.Packet]]:
        """The same packets with their proofs, by session and incarnation."""
        links: dict[tuple[int, int], list[pb.Packet]] = {}
        for data in self.recorded:
            datagram = pb.Datagram.FromString(data)
            link = datagram.header.session, datagram.header.incarnation
            authenticated_packets = [
                packet for packet in datagram.packets if packet.HasField("authenticated")
            ]
            links.setdefault(link, []).extend(authenticated_packets)
        return {link: packets for link, packets in links.items() if packets}

    def next_datagram(self) -> pb.Datagram:
        """A datagram of the child's link with the next number, which repeats the last renewal."""
        packets_sent = [pb.Datagram.FromString(data) for data in self.recorded]
        header = packets_sent[-1].header
        packets_sent = [datagram for datagram in packets_sent if datagram.header.session == header.session]
        forged = pb.Datagram()
        forged.header.session, forged.header.incarnation = header.session, header.incarnation
        forged.header.number = max(datagram.header.number for datagram in packets_sent) + 1
        packets = [packet for datagram in packets_sent for packet in datagram.packets]
        last = max(packets, key=lambda packet: packet.delivery)
        renewal = forged.packets.add(delivery=last.delivery + 1, after=last.delivery)
        renewal.authenticated.CopyFrom(last.authenticated)
        return forged

    def renewals(self) -> list[pb.Join]:
        """The JOINs with which the child renewed its lease."""
        return renewals_in(self.authenticated_packets())

    @property
    def epoch(self) -> int:
        """The epoch under which the child holds its subtree now."""
        return int(self.renewals()[-1].epoch)

    def state_of_subtree(self) -> tuple[object, ...]:
        """The holder of the subtree, as the root and the child see it."""
        nodes = tree(self.root.root)
        return SUBTREE in nodes["root"]["children"], nodes["kitchen"]["epoch"], nodes["kitchen"]["serving"]

    def owner(self, topic: str) -> str:
        with sync.connect(self.root.root) as client:
            return client.resolve(topic, timeout=PATIENCE).owner

    def retained(self) -> list[str]:
        """The topics of the retained messages in the subtree."""
        with sync.connect(self.root.root) as client, client.subscribe(f"{SUBTREE}/#", qos=1) as messages:
            client.publish(f"{SUBTREE}/last", b"", qos=1)
            topics: list[str] = []
            while (message := messages.next(timeout=PATIENCE)) is not None:
                if message.topic == f"{SUBTREE}/last":
                    return topics
                topics.append(message.topic)
            raise TimeoutError("what was just published has not come")


def without_proofs(packets: list[pb.Packet]) -> list[pb.Packet]:
    """The authenticated packets, without their proofs."""
    inner = (packet.authenticated.packet for packet in packets)
    return [pb.Packet.FromString(packet) for packet in inner if packet]


def renewals_in(packets: list[pb.Packet]) -> list[pb.Join]:
    joins = [packet.join for packet in packets]
    return [join for join in joins if join.subtree == SUBTREE and join.epoch]


def await_refusal(attacker: Listener) -> None:
    """Waits for the answer to JOIN, which must grant nothing."""
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


def replay_datagrams(kitchen: Kitchen) -> None:
    """Replays every datagram, byte for byte, from another address."""
    with closing(Stranger(kitchen.target, ELSEWHERE)) as attacker:
        for data in kitchen.recorded:
            attacker.send(data)
        attacker.ask()


def replay_joins_outside_of_sessions(kitchen: Kitchen) -> None:
    """Replays the JOINs with a credential, with a token of the attacker's own."""
    with closing(Listener(kitchen.target, ELSEWHERE)) as attacker:
        joins = [packet for packet in kitchen.packets_sent() if packet.join.credential]
        assert joins
        for packet in joins:
            request = pb.Datagram(packets=[packet], padding=bytes(512))
            request.header.token = attacker.token
            attacker.send(request.SerializeToString())
        await_refusal(attacker)


def replay_packets_over_other_links(kitchen: Kitchen) -> None:
    """Replays the authenticated packets with their proofs, over a new link for each link that the child
    had."""
    for packets in kitchen.by_link().values():
        with closing(Intruder(kitchen.target, ELSEWHERE)) as attacker:
            attacker.send_deliveries(*packets)
            attacker.await_answer()


def replay_without_proofs(kitchen: Kitchen) -> None:
    """Replays the renewal and the handing back, with the current epoch and without proofs, and with a
    message of the attacker's."""
    planted = pb.Publish(topic=f"{SUBTREE}/planted", payload=b"!", retain=True, publisher=7, sequence=7)
    returning = (pb.TRANSFER_PHASE_RECORDS, pb.TRANSFER_PHASE_COMMIT)
    forged = [pb.Packet(join=kitchen.renewals()[-1])]
    for packet in kitchen.authenticated_packets():
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
        attacker.send_deliveries(*forged)
        attacker.await_answer()
        await_refusal(attacker)


@pytest.mark.parametrize(
    ("attack", "reasons"),
    [
        (replay_datagrams, {"duplicate_datagram", "unknown_session", "address_unproven"}),
        (replay_joins_outside_of_sessions, {"unauthenticated"}),
        (replay_packets_over_other_links, {"unauthenticated"}),
        (replay_without_proofs, {"unauthenticated"}),
    ],
)
def test_a_replay_of_a_childs_packets_by_another_host_moves_nothing(
    kitchen: Kitchen, attack: Callable[[Kitchen], None], reasons: set[str]
) -> None:
    before, dropped = kitchen.state_of_subtree(), kitchen.root.drops()
    with LossCheck(kitchen.root.root, f"{SUBTREE}/count") as loss_check:
        loss_check.await_published(10)
        attack(kitchen)
        assert kitchen.state_of_subtree() == before
        loss_check.await_published(loss_check.published + 10)
    loss_check.verify()
    grown = {reason for reason, count in kitchen.root.drops().items() if count > dropped.get(reason, 0)}
    assert reasons <= grown, grown
    assert kitchen.owner(f"{SUBTREE}/oven") == "kitchen"
    assert kitchen.retained() == []


def test_a_packet_that_is_replayed_on_the_childs_own_link_counts_once(kitchen: Kitchen) -> None:
    """The replay takes the place of the child's next packet. So the child begins another link, and keeps
    its lease."""
    before, dropped = kitchen.state_of_subtree(), kitchen.root.drops()
    links = len(kitchen.by_link())

    def renews_elsewhere() -> bool:
        later = list(kitchen.by_link().values())[links:]
        return any(renewals_in(without_proofs(packets)) for packets in later)

    with (
        LossCheck(kitchen.root.root, f"{SUBTREE}/count") as loss_check,
        closing(Listener(kitchen.target, ELSEWHERE)) as attacker,
    ):
        attacker.send(kitchen.next_datagram().SerializeToString())
        until(renews_elsewhere, "the child renews its lease over another link", PATIENCE)
        assert kitchen.state_of_subtree() == before
    loss_check.verify()
    assert kitchen.root.drops()["replayed"] > dropped.get("replayed", 0)
    assert kitchen.owner(f"{SUBTREE}/oven") == "kitchen"
