"""A caller that gathers its calls: the resulting datagrams leave together, later, and all of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from hbroker._native import Config, Endpoint

_MOST_GATHERED = 128


@contextmanager
def _endpoint_and_peer() -> Iterator[tuple[Endpoint, socket.socket]]:
    config = Config(node=False, session=1, incarnation=1, token_keys=[b"k" * 16], seed=1)
    endpoint = Endpoint(config, ("127.0.0.1", 0))
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    peer.settimeout(10)
    try:
        yield endpoint, peer
    finally:
        endpoint.shutdown()
        peer.close()


def _is_empty(peer: socket.socket) -> bool:
    peer.setblocking(False)
    try:
        peer.recv(2_048)
    except BlockingIOError:
        return True
    finally:
        peer.settimeout(10)
    return False


def test_gathered_calls_take_effect_when_the_caller_is_done() -> None:
    with _endpoint_and_peer() as (endpoint, peer):
        endpoint.gather(True)
        for _ in range(10):
            endpoint.send_to(peer.getsockname(), b"", b"", 64)
        assert _is_empty(peer)
        endpoint.gather(False)
        assert len([peer.recv(2_048) for _ in range(10)]) == 10
        endpoint.send_to(peer.getsockname(), b"", b"", 64)
        assert peer.recv(2_048), "and from then on at once"


def test_gathered_calls_are_bounded() -> None:
    with _endpoint_and_peer() as (endpoint, peer):
        endpoint.gather(True)
        for _ in range(_MOST_GATHERED + 1):
            endpoint.send_to(peer.getsockname(), b"", b"", 64)
        assert len([peer.recv(2_048) for _ in range(_MOST_GATHERED + 1)]) == _MOST_GATHERED + 1
