"""A real node, and one address that opens more and more sessions (§9)."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, closing
from random import Random

import hbroker
from hbroker import Reason, Refused
from hbroker._proto import packet_pb2 as pb
from tests.product.network import PATIENCE
from tests.product.node import Node, Stranger, node_up
from tests.product.peer import Intruder, Peer
from tests.waiting import until

MOST = 20
KEEP_ALIVE_S = 3.0
HOST, OTHER = "127.0.0.7", "127.0.0.8"


def sessions(node: Node) -> int:
    found = node.status()["sessions"]
    assert isinstance(found, int)
    return found


def test_the_sessions_of_an_address_are_bounded_and_other_addresses_have_their_own() -> None:
    random = Random(3)
    with node_up("--sessions-per-address", str(MOST)) as node, ExitStack() as opened:
        peers = [opened.enter_context(closing(Peer(node, random, HOST))) for _ in range(MOST)]
        for peer in peers:
            peer.await_answer()
        before = sessions(node)
        refused_peers = [opened.enter_context(closing(Peer(node, random, HOST))) for _ in range(10)]
        opened.enter_context(closing(Stranger(node))).ask()
        assert sessions(node) == before
        assert node.drops()["too_many_of_host"] >= len(refused_peers)
        opened.enter_context(closing(Peer(node, random, OTHER))).await_answer()
        for peer in peers[: len(refused_peers)]:
            peer.leave()
        # They ask once.
        until(
            lambda: sessions(node) == before + 1 - len(refused_peers),
            "the places of those who left",
            PATIENCE,
        )
        for peer in refused_peers:
            peer.await_answer()
        until(lambda: sessions(node) == before + 1, "as many as before, and the other", PATIENCE)


def fill(node: Node, opened: ExitStack) -> list[Peer]:
    """Opens the greatest allowed number of sessions of one address."""
    random = Random(4)
    peers = [opened.enter_context(closing(Peer(node, random, HOST))) for _ in range(MOST)]
    for peer in peers:
        peer.await_answer()
    return peers


def test_a_refused_session_gets_the_reason_and_no_token() -> None:
    with node_up("--sessions-per-address", str(MOST)) as node, ExitStack() as opened:
        fill(node, opened)
        refused_peers = opened.enter_context(closing(Intruder(node, HOST)))

        def refusals() -> list[pb.Reset]:
            refused_peers.receive()
            return [packet.reset for packet in refused_peers.answers if packet.HasField("reset")]

        until(lambda: bool(refusals()), "the refusal of its first datagram", PATIENCE)
        (refusal,) = refusals()
        assert (refusal.session, refusal.token) == (refused_peers._session, b"")
        assert refusal.reason == Reason.REASON_QUOTA_EXCEEDED


async def result(awaited: object) -> object:
    """The result of the awaitable, or its exception."""
    (found,) = await asyncio.gather(awaited, return_exceptions=True)  # type: ignore[call-overload]
    return found


async def keep_alive(peers: list[Peer]) -> None:
    """Keeps the sessions alive, each of which would end after 15 s of silence (§3.5)."""
    while True:
        for peer in peers:
            peer.send_packets(pb.Packet(ping=pb.Ping()))
        await asyncio.sleep(KEEP_ALIVE_S)  # the interval of a keep-alive


def test_a_client_whose_session_is_refused_reports_the_reason_and_connects_once_there_is_room() -> None:
    async def use(node: Node, peers: list[Peer]) -> None:
        async with hbroker.connect(node.root, listen=f"{HOST}:0", timeout=15) as client:
            alive = asyncio.create_task(keep_alive(peers))
            asked = client.publish("a", b"1", qos=1, timeout=PATIENCE), result(client.subscribe("b"))
            for error in await asyncio.gather(*asked, return_exceptions=True):
                assert isinstance(error, Refused)
                assert error.reason == Reason.REASON_QUOTA_EXCEEDED
                assert "QUOTA_EXCEEDED" in str(error)
            alive.cancel()
            peers[0].leave()
            async with client.subscribe("b", timeout=PATIENCE) as messages:
                await client.publish("b", b"2", qos=1, timeout=PATIENCE)
                message = await messages.next(PATIENCE)
                assert message is not None
                assert message.payload == b"2"

    with node_up("--sessions-per-address", str(MOST)) as node, ExitStack() as opened:
        asyncio.run(use(node, fill(node, opened)))
