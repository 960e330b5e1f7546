"""A session or host that floods a node with requests delays only itself, and no new clients or joiners
(§3.3).

The flood of a session is sent over a link of the native core. It retransmits what was not acknowledged, as an
honest client does. So the node always has as much of it as it accepts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from random import Random

from hbroker import sync
from hbroker._native import Config, ControlEvent, Endpoint
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import address_of, body_of
from tests.product.network import PATIENCE
from tests.product.node import Node, Stranger, node_up
from tests.product.starvation import Starvation

FLOOD = 86_400
REQUESTS = 10_000
NEWCOMERS = 5
BOUND_S = 0.5

Times = tuple[int, int]
"""A beginning and an end, in nanoseconds of the monotonic clock."""


def test_new_clients_do_not_wait_for_the_flood_of_a_session() -> None:
    with node_up() as node, flooding(node), starving(node) as starvation:
        times = [newcomer(node, number) for number in range(NEWCOMERS)]
        times += [joiner(node, number) for number in range(NEWCOMERS)]
        subscription_count = node.status()["subscriptions"]
        assert isinstance(subscription_count, int)
        assert subscription_count < FLOOD, "the flood was over before"
    waited = [starvation.own_s(*times) for times in times]
    assert max(waited) < BOUND_S, waited


def test_new_clients_do_not_wait_for_the_requests_of_another_host() -> None:
    with node_up() as node, closing(Stranger(node, "127.0.0.2")) as stranger:
        token = stranger.ask().challenge.token
        question = pb.Datagram(padding=bytes(512), header=pb.Header(token=token))
        question.packets.add().subscribe.CopyFrom(pb.Subscribe(request=1, filter="#"))
        data = question.SerializeToString()
        with starving(node) as starvation:
            for _ in range(REQUESTS):
                stranger.send(data)
            times = newcomer(node, 0)
        assert starvation.own_s(*times) < BOUND_S
        assert len(stranger.receive()) < REQUESTS, "the flood was over before"


def starving(node: Node) -> Starvation:
    """The time for which the node and this process wait for a CPU, which is no other client's doing."""
    return Starvation([node.pid, os.getpid()])


def newcomer(node: Node, number: int) -> Times:
    """The times at which a new client begins, and at which it has subscribed."""
    began = time.monotonic_ns()
    with sync.connect(node.root) as client, client.subscribe(f"new/{number}", qos=1):
        return began, time.monotonic_ns()


def joiner(node: Node, number: int) -> Times:
    """The times at which a new joiner sends its first packet, and at which it has its lease."""
    join = pb.Join(request=1, node=f"n{number}", subtree=f"joined/{number}", incarnation=1)
    join.address.CopyFrom(address_of(("127.0.0.1", 9)))
    began = time.monotonic_ns()
    with session(node, Random(100 + number)) as (endpoint, link):
        assert endpoint.send(link, pb.Packet(join=join).SerializeToString())
        while (passed := (time.monotonic_ns() - began) / 1e9) < PATIENCE:
            endpoint.wait(PATIENCE - passed)
            for event in endpoint.poll_events():
                body = body_of(event.packet) if isinstance(event, ControlEvent) else None
                if isinstance(body, pb.JoinAck):
                    assert body.epoch, body
                    return began, time.monotonic_ns()
        raise TimeoutError("nobody answers")


@contextmanager
def flooding(node: Node) -> Iterator[None]:
    """A session with many SUBSCRIBEs under way, as fast as its link accepts them."""
    with session(node, Random(3)) as (endpoint, link):
        for number in range(FLOOD):
            request = pb.Subscribe(request=number, filter=f"flood/{number}/+/#")
            assert endpoint.send(link, pb.Packet(subscribe=request).SerializeToString())
        assert endpoint.wait(PATIENCE), "the flood does not begin"
        yield


@contextmanager
def session(node: Node, random: Random) -> Iterator[tuple[Endpoint, int]]:
    """A session without a client's control: an endpoint, and its link to the node."""
    config = Config(
        node=False,
        session=random.getrandbits(64),
        incarnation=random.getrandbits(64),
        token_keys=[random.randbytes(16)],
        seed=random.getrandbits(64),
    )
    endpoint = Endpoint(config, ("127.0.0.1", 0))
    try:
        link = endpoint.connect(node.address, b"")
        assert link is not None
        yield endpoint, link
    finally:
        endpoint.shutdown()
