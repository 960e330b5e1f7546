"""One node as a process, and what is needed to speak to it over a socket without our own code."""

from __future__ import annotations

import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from hbroker._proto import packet_pb2 as pb
from tests.memory import own_bytes
from tests.product.network import PATIENCE, PROJECT, environment, hbroker, tree

MIB = 1 << 20


class Node:
    """A root of its own. Made by `node_up`."""

    def __init__(self, process: subprocess.Popen[str], address: tuple[str, int]) -> None:
        self.address = address
        self.process = process
        self._process = psutil.Process(process.pid)

    @property
    def root(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def own_bytes(self) -> int:
        """Bytes of memory that it holds."""
        return own_bytes(self.pid)

    def status(self) -> dict[str, object]:
        """Its part of `hbroker tree --json`."""
        return tree(self.root)["root"]

    def kill(self) -> None:
        """Ends it as a crash does: it tells nobody."""
        self._process.kill()

    def drops(self) -> dict[str, int]:
        """What it dropped, by reason."""
        drops = self.status()["drops"]
        assert isinstance(drops, dict)
        return drops


@contextmanager
def node_up(*flags: str) -> Iterator[Node]:
    """A root that serves, on a free port, with these flags besides."""
    with started("node", "--name", "root", "--subtree", "", "--listen", "127.0.0.1:0", *flags) as (
        process,
        ready,
    ):
        host, port = ready.split()[-1].split(":")
        yield Node(process, (host, int(port)))


@contextmanager
def started(command: str, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `hbroker`, and the line that says that it is ready. It is ended in order."""
    with subprocess.Popen(
        [*hbroker(command), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=PROJECT,
        env=environment(),
    ) as process:
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], PATIENCE)[0], "it is not ready"
            ready = process.stdout.readline()
            assert ready.startswith("ready "), f"{command} has ended"
            yield process, ready
        finally:
            process.terminate()
            process.wait(PATIENCE)


class Stranger:
    """A socket that speaks the protocol by protobuf alone, and counts what goes and what comes."""

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Several answers of 64 KiB may come at once, and it says of all that it has them.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * MIB)
        self.socket.bind((host, 0))
        self.socket.connect(node.address)
        self.socket.setblocking(False)
        self.sent = self.received = 0

    def send(self, data: bytes) -> None:
        self.sent += self.socket.send(data)

    def receive(self) -> list[pb.Datagram]:
        """What has come so far."""
        datagrams: list[pb.Datagram] = []
        while True:
            try:
                data = self.socket.recv(65_536)
            except BlockingIOError:
                return datagrams
            self.received += len(data)
            datagrams.append(pb.Datagram.FromString(data))

    def ask(self, topic: str = "any") -> pb.Packet:
        """Asks who owns a topic until an answer comes: then all that was sent before has been read."""
        question = pb.Datagram(padding=bytes(512))
        question.packets.add().pubconnect.CopyFrom(pb.PubConnect(request=1, topic=topic))
        data = question.SerializeToString()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.send(data)
            select.select([self.socket], [], [], 0.2)
            for datagram in self.receive():
                for packet in datagram.packets:
                    if packet.WhichOneof("body") in ("challenge", "pubaccept"):
                        return packet
        raise TimeoutError("the node does not answer")

    def close(self) -> None:
        self.socket.close()
