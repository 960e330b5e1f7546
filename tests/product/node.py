"""One node as a process, and a socket that speaks to it without the project's own code."""

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
        """The memory of the node, in bytes."""
        return own_bytes(self.pid)

    def status(self) -> dict[str, object]:
        """The node's part of `hbroker tree --json`."""
        return tree(self.root)["root"]

    def kill(self) -> None:
        """Kills the node, as a crash does."""
        self._process.kill()

    def drops(self) -> dict[str, int]:
        """The node's counters of drops, by reason."""
        drops = self.status()["drops"]
        assert isinstance(drops, dict)
        return drops


@contextmanager
def node_up(*flags: str) -> Iterator[Node]:
    """A root that serves on a free port. `flags`: further flags of the command."""
    with started("node", "--name", "root", "--subtree", "", "--listen", "127.0.0.1:0", *flags) as (
        process,
        ready,
    ):
        host, port = ready.split()[-1].split(":")
        yield Node(process, (host, int(port)))


@contextmanager
def started(command: str, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `hbroker`, and its line that says that it is ready. The process is ended in order."""
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
    """A socket that speaks the protocol with protobuf alone, and counts the bytes that it sends and
    receives."""

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # Several answers of 64 KiB may arrive at once, and the peer acknowledges all of them.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2 * MIB)
        self.socket.bind((host, 0))
        self.socket.connect(node.address)
        self.socket.setblocking(False)
        self.sent = self.received = 0

    def send(self, data: bytes) -> None:
        self.sent += self.socket.send(data)

    def receive(self) -> list[pb.Datagram]:
        """The datagrams that have arrived so far."""
        datagrams: list[pb.Datagram] = []
        while True:
            try:
                data = self.socket.recv(65_536)
            except BlockingIOError:
                return datagrams
            self.received += len(data)
            datagrams.append(pb.Datagram.FromString(data))

    def ask(self, topic: str = "any") -> pb.Packet:
        """Resolves a topic, and waits for the answer. By then the node has read everything that was sent
        before."""
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
