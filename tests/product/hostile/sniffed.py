"""A path to a node with an eavesdropper, who records all datagrams and changes none."""

from __future__ import annotations

import secrets
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from hbroker._proto import packet_pb2 as pb
from tests.background import Background
from tests.product.node import Node, node_up

__all__ = ["RecordedDatagram", "SniffedPath", "SniffedRoot", "sniffed_root"]

Address = tuple[str, int]

_LARGEST: Final = 65_536
_AWAKE_S: Final = 0.1
"""The longest time until the thread notices that it has to end."""


class RecordedDatagram(NamedTuple):
    """A datagram that went to the node, and its source address."""

    source: Address
    data: bytes

    @property
    def datagram(self) -> pb.Datagram:
        """The datagram as protobuf decodes it."""
        return pb.Datagram.FromString(self.data)


class SniffedPath(Background):
    """An address, `near`, for a node that listens at `far`: the same port of another address of this host.

    Each peer has a socket of its own towards the node, so that the node tells them apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self._near = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._near.bind(("127.0.0.1", 0))
        self.near: Address = self._near.getsockname()
        self.far: Address = ("127.0.0.2", self.near[1])
        self.recorded: list[RecordedDatagram] = []
        """The datagrams that went to the node."""
        self._peers: dict[Address, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._near, selectors.EVENT_READ)

    def stop(self) -> None:
        """Stops carrying datagrams."""
        super().stop()
        self._selector.close()
        for opened in (self._near, *self._peers.values()):
            opened.close()

    def recorded_from(self, source: Address) -> list[RecordedDatagram]:
        """The datagrams that one peer sent."""
        return [recorded for recorded in list(self.recorded) if recorded.source == source]

    def _run(self) -> None:
        while not self._is_over.is_set():
            for key, _ in self._selector.select(_AWAKE_S):
                if key.data is None:
                    self._carry_there()
                else:
                    self._carry_back(key.fileobj, key.data)  # type: ignore[arg-type]

    def _carry_there(self) -> None:
        data, source = self._near.recvfrom(_LARGEST)
        self.recorded.append(RecordedDatagram(source, data))
        if source not in self._peers:
            peer = self._peers[source] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            peer.connect(self.far)
            self._selector.register(peer, selectors.EVENT_READ, source)
        self._send(self._peers[source], data)

    def _carry_back(self, peer: socket.socket, source: Address) -> None:
        try:
            data = peer.recv(_LARGEST)
        except ConnectionRefusedError:  # the node is gone
            return
        self._near.sendto(data, source)

    @staticmethod
    def _send(peer: socket.socket, data: bytes) -> None:
        try:
            peer.send(data)
        except ConnectionRefusedError:  # the node is gone, so the datagram is lost, as on any path
            return


class SniffedRoot(NamedTuple):
    """A root with a join key. All its peers reach it over the path. Made by `sniffed_root`."""

    node: Node
    target: Node
    """The same root without the path."""
    path: SniffedPath
    key: Path
    """The file with the join key."""


@contextmanager
def sniffed_root(directory: Path) -> Iterator[SniffedRoot]:
    """A running root with its path. Its key is in this directory."""
    key = directory / "join.key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    with SniffedPath() as path:
        (near, port), (far, _) = path.near, path.far
        place = ("--listen", f"{far}:{port}", "--advertise", f"{near}:{port}")
        with node_up(*place, "--join-key-file", str(key)) as node:
            yield SniffedRoot(node, Node(node.process, path.far), path, key)
