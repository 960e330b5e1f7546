"""A real node, and one address that opens sessions without end (§9)."""

from __future__ import annotations

from contextlib import ExitStack, closing
from random import Random

from tests.product.network import PATIENCE
from tests.product.node import Node, Stranger, node_up
from tests.product.peer import Peer
from tests.waiting import until

MOST = 20
HOST, OTHER = "127.0.0.7", "127.0.0.8"


def sessions(node: Node) -> int:
    found = node.status()["sessions"]
    assert isinstance(found, int)
    return found


def test_an_address_has_so_many_sessions_and_others_have_theirs() -> None:
    random = Random(3)
    with node_up("--sessions-per-address", str(MOST)) as node, ExitStack() as opened:
        peers = [opened.enter_context(closing(Peer(node, random, HOST))) for _ in range(MOST)]
        for peer in peers:
            peer.await_answer()
        before = sessions(node)
        late = [opened.enter_context(closing(Peer(node, random, HOST))) for _ in range(10)]
        opened.enter_context(closing(Stranger(node))).ask()
        assert sessions(node) == before
        assert node.drops()["too_many_of_host"] >= len(late)
        opened.enter_context(closing(Peer(node, random, OTHER))).await_answer()
        for peer in peers[: len(late)]:
            peer.leave()
        # They ask once.
        until(lambda: sessions(node) == before + 1 - len(late), "the places of those who left", PATIENCE)
        for peer in late:
            peer.await_answer()
        until(lambda: sessions(node) == before + 1, "as many as before, and the other", PATIENCE)
