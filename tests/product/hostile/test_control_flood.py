"""A root with a thousand children, and clients that subscribe to `#` as fast as they can (§3.3): the
children's leases are still renewed.

The clients' links hold back what the node has not handled. So the node drops none of their requests: it
carries out each request that it takes, and names all thousand children in the answer. The test prints how
many these are per second.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

import pytest

from hbroker._native import ControlEvent, Endpoint
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import Reason, address_of, body_of
from hbroker.runtime.node.state_files import NodeStateFiles
from tests.background import Background
from tests.product.hostile.test_fair_control import session
from tests.product.network import PATIENCE
from tests.product.node import Node, Stranger, node_up
from tests.product.starvation import Starvation
from tests.waiting import until

CHILDREN = 1_000
CLIENTS = 8
FLOOD = 5_000
"""Packets of each client that wait at any time: more than the node handles between two renewals."""
SHORT_FLOOD = 20_000
"""Packets of each client."""
RENEWALS = 10
MOST_PASSED = 8_000
"""Answers to clients during these renewals. It was 11,200 when renewals waited behind clients, and is
2,300 at most otherwise."""
RENEWED_WITHIN_S = 0.1
FLOODED_S = 60.0
ASKED_A_SECOND = 10_000
PARTS = 6
EVERY_S = 0.5
"""The pause from one renewal to the next, in which the clients' requests queue up."""
ACTIVE = (int(Reason.REASON_SUCCESS), True)


@pytest.mark.usefixtures("in_long_form")
def test_leases_are_renewed_while_clients_flood_the_node_with_subscriptions(tmp_path: Path) -> None:
    with (
        parent_of_many(tmp_path) as node,
        child(node) as (endpoint, link),
        flooding(node, FLOOD) as flooders,
        Starvation([node.pid, os.getpid()]) as starvation,
    ):
        epoch = join(endpoint, link, 1, 0)
        began = time.monotonic()
        renewals: list[tuple[int, int]] = []
        answered: list[Counter[tuple[int, bool]]] = []
        while time.monotonic() - began < FLOODED_S:
            asked = time.monotonic_ns()
            assert join(endpoint, link, len(renewals) + 2, epoch) == epoch, "the lease was lost"
            renewals.append((asked, time.monotonic_ns()))
            answered.append(answers(flooders))
            for client, link_of_client in flooders:
                subscribe(client, link_of_client, answered[-1].total() // CLIENTS)
            time.sleep(EVERY_S)  # the pace of renewals under a steady flood is what is tested
        took = time.monotonic() - began
        status = node.status()
    slowest = max(starvation.own_s(*times) for times in renewals)
    total = sum(answered, Counter[tuple[int, bool]]())
    print(f"{len(renewals)} renewals, the slowest in {slowest * 1e3:.0f} ms")
    print(
        f"{CLIENTS * FLOOD} SUBSCRIBE wait all the time, {total.total() / took:.0f} a second are carried out"
    )
    print(f"{dict(total)}; {status['subscriptions']} subscriptions; dropped: {status['drops']}")
    assert slowest < RENEWED_WITHIN_S
    assert set(total) == {ACTIVE}, "each was carried out"
    parts = [answered[n * len(answered) // PARTS : (n + 1) * len(answered) // PARTS] for n in range(PARTS)]
    assert all(any(part) for part in parts), "the flood went on to the end"
    assert status["subscriptions"] == CLIENTS


@pytest.mark.usefixtures("in_long_form")
def test_leases_are_renewed_while_a_stranger_sends_ten_thousand_subscribes_per_second(tmp_path: Path) -> None:
    """The stranger has no session, so nothing slows it down. The node drops and counts the requests that
    it does not answer."""
    with (
        parent_of_many(tmp_path) as node,
        child(node) as (endpoint, link),
        FloodingStranger(node) as stranger,
        Starvation([node.pid, os.getpid()]) as starvation,
    ):
        epoch = join(endpoint, link, 1, 0)
        began, before = time.monotonic(), stranger.sent
        renewals: list[tuple[int, int]] = []
        while time.monotonic() - began < FLOODED_S:
            asked = time.monotonic_ns()
            assert join(endpoint, link, len(renewals) + 2, epoch) == epoch, "the lease was lost"
            renewals.append((asked, time.monotonic_ns()))
            time.sleep(EVERY_S)  # the pace of renewals under a steady flood is what is tested
        rate = (stranger.sent - before) / (time.monotonic() - began)
        drops = node.drops()
    slowest = max(starvation.own_s(*times) for times in renewals)
    print(f"{len(renewals)} renewals, the slowest in {slowest * 1e3:.0f} ms; {rate:.0f} SUBSCRIBE a second")
    print(f"dropped: {drops}")
    assert slowest < RENEWED_WITHIN_S
    assert rate >= ASKED_A_SECOND


def test_renewals_overtake_the_queued_requests_of_clients(tmp_path: Path) -> None:
    """On a machine of any speed: the clients get few answers meanwhile, and more of their requests wait."""
    with parent_of_many(tmp_path) as node, child(node) as (endpoint, link):
        epoch = join(endpoint, link, 1, 0)
        with flooding(node, SHORT_FLOOD) as flooders:
            answers(flooders)
            for number in range(RENEWALS):
                assert join(endpoint, link, number + 2, epoch) == epoch, "the lease was lost"
            passed = answers(flooders).total()
            assert passed < MOST_PASSED
            until(lambda: answers(flooders).total() > 0, "the flood goes on", PATIENCE)


@contextmanager
def parent_of_many(directory: Path) -> Iterator[Node]:
    """A root that delegated a thousand subtrees."""
    memory = NodeStateFiles(directory / "root.cuts", [""])
    memory.load()
    now_ms = time.time_ns() // 1_000_000
    for number in range(CHILDREN):
        address = ("127.0.0.1", 10_000 + number)
        memory.save_delegation(
            Delegation(f"farm/{number}", f"n{number}", address, 1, now_ms, LeasePolicy.SERVE, None, 0), False
        )
    assert memory.store.flush()
    memory.store.close()
    with node_up("--memory", str(directory / "root.cuts")) as node:
        yield node


def join(endpoint: Endpoint, link: int, request: int, epoch: int) -> int:
    """Joins, or renews the lease of an epoch. Returns the granted epoch."""
    packet = pb.Join(request=request, node="kitchen", subtree="kitchen", incarnation=1, epoch=epoch)
    packet.address.CopyFrom(address_of(("127.0.0.1", 9)))
    assert endpoint.send(link, pb.Packet(join=packet).SerializeToString())
    deadline = time.monotonic() + PATIENCE
    while (left := deadline - time.monotonic()) > 0:
        endpoint.wait(left)
        for event in endpoint.poll_events():
            body = body_of(event.packet) if isinstance(event, ControlEvent) else None
            if isinstance(body, pb.JoinAck) and body.request == request:
                return int(body.epoch)
    raise TimeoutError("nobody answers")


@contextmanager
def child(node: Node) -> Iterator[tuple[Endpoint, int]]:
    with session(node, Random(99)) as (endpoint, link):
        yield endpoint, link


class FloodingStranger(Background):
    """A stranger at another address that sends SUBSCRIBE for `#`."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.sent = 0
        self._stranger = Stranger(node, "127.0.0.2")
        token = self._stranger.ask().challenge.token
        question = pb.Datagram(padding=bytes(512), header=pb.Header(token=token))
        question.packets.add().subscribe.CopyFrom(pb.Subscribe(request=1, filter="#"))
        self._question = question.SerializeToString()

    def _run(self) -> None:
        with closing(self._stranger):
            began = time.monotonic()
            while not self._is_over.wait(0.002):
                for _ in range(int((time.monotonic() - began) * ASKED_A_SECOND * 1.05) - self.sent):
                    self._stranger.send(self._question)
                    self.sent += 1


@contextmanager
def flooding(node: Node, packets: int) -> Iterator[list[tuple[Endpoint, int]]]:
    """Sessions that each send `packets` SUBSCRIBEs for `#`, as fast as their links accept them."""
    with ExitStack() as stack:
        flooders = []
        for number in range(CLIENTS):
            endpoint, link = stack.enter_context(session(node, Random(number)))
            flooders.append((endpoint, link))
            subscribe(endpoint, link, packets)
            assert endpoint.wait(PATIENCE), "the flood does not begin"
        yield flooders


def subscribe(endpoint: Endpoint, link: int, packets: int) -> None:
    """Sends `packets` SUBSCRIBEs for `#`."""
    for request in range(packets):
        packet = pb.Packet(subscribe=pb.Subscribe(request=request + 1, filter="#"))
        assert endpoint.send(link, packet.SerializeToString())


def answers(flooders: list[tuple[Endpoint, int]]) -> Counter[tuple[int, bool]]:
    """How many requests of the flooders were answered since the last call: by reason, and by whether the
    subscription is active."""
    events = (e for endpoint, _ in flooders for batch in iter(endpoint.poll_events, []) for e in batch)
    bodies = (body_of(event.packet) for event in events if isinstance(event, ControlEvent))
    acks = (body for body in bodies if isinstance(body, pb.SubAck) and not body.part)
    return Counter((int(ack.reason), ack.active) for ack in acks)
