"""A node as a service: it tells the service manager how it does, and its sockets outlive it."""

from __future__ import annotations

import array
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hbroker import sync
from tests.product.network import PATIENCE, PROJECT, environment, hbroker
from tests.product.node import started

NODE = ("--name", "root", "--subtree", "", "--listen")


class Manager:
    """The socket on which a service manager listens."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.path)
        self._socket.settimeout(PATIENCE)
        self.kept: list[int] = []

    def receive(self) -> str:
        """The next message. Its descriptors are kept."""
        text, rights, _, _ = self._socket.recvmsg(4096, socket.CMSG_SPACE(64 * 4))
        for _, _, data in rights:
            received = array.array("i")
            received.frombytes(data)
            self.kept.extend(received)
        return text.decode()

    def await_message(self, wanted: str) -> list[str]:
        """The messages up to this one."""
        messages = [self.receive()]
        while messages[-1] != wanted:
            messages.append(self.receive())
        return messages

    def await_silence(self, seconds: float, most: int = 10) -> None:
        """Waits until nothing comes for so long. No more messages than `most` may come before."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            for _ in range(most + 1):
                self.receive()
            raise AssertionError("messages go on coming")

    def close(self) -> None:
        self._socket.close()
        for descriptor in self.kept:
            with suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", manager.path)
    yield manager
    manager.close()


def test_a_node_says_that_it_serves_and_that_it_makes_progress(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    with started("node", *NODE, "127.0.0.1:0") as (process, _):
        before = manager.await_message("READY=1")
        assert before[0] == "FDSTORE=1\nFDNAME=hbroker"
        for _ in range(3):
            manager.await_message("WATCHDOG=1")
        process.send_signal(signal.SIGSTOP)
        try:
            manager.await_silence(1.0)
        finally:
            process.send_signal(signal.SIGCONT)


def test_a_gateway_says_so_too(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    with started("node", *NODE, "127.0.0.1:0") as (_, ready):
        manager.await_message("READY=1")
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        flags = ("--root", ready.split()[-1], "--listener", "127.0.0.1:0")
        with started("gateway", *flags):
            manager.await_message("READY=1")
            manager.await_message("WATCHDOG=1")
            manager.await_message("WATCHDOG=1")


def test_a_watchdog_of_another_process_is_not_fed(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    with started("node", *NODE, "127.0.0.1:0"):
        manager.await_message("READY=1")
        manager.await_silence(0.5, most=0)


def test_sockets_outlive_a_node_that_was_killed(manager: Manager) -> None:
    with started("node", *NODE, "127.0.0.1:0", "--workers", "2") as (process, ready):
        manager.await_message("READY=1")
        process.kill()
        process.wait(PATIENCE)
    address = ready.split()[-1]
    assert len(manager.kept) == 2
    with served(manager.kept, address, "--workers", "2") as said:
        assert said == f"ready root: '' on {address}\n"
        assert manager.receive() == "READY=1", "what is kept is not sent again"
        with sync.connect(address) as client:
            client.publish("home/lamp", "on", qos=1)


def test_other_descriptors_are_not_taken_for_sockets(manager: Manager) -> None:
    with open(os.devnull) as other, served([other.fileno()], "127.0.0.1:0") as said:
        assert said.startswith("ready root")
        assert manager.await_message("READY=1")[0] == "FDSTOREREMOVE=1\nFDNAME=hbroker"


_START = """
import fcntl, os, sys
descriptors = [fcntl.fcntl(int(text), fcntl.F_DUPFD, 100) for text in sys.argv[1].split(",")]
for number, descriptor in enumerate(descriptors):
    os.dup2(descriptor, 3 + number, inheritable=True)
names = ":".join(["hbroker"] * len(descriptors))
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(descriptors)), LISTEN_FDNAMES=names)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""As a service manager starts a process: the descriptors begin at 3, and LISTEN_PID is whom they are for."""


@contextmanager
def served(descriptors: list[int], listen: str, *flags: str) -> Iterator[str]:
    """A node that gets these descriptors. Yields its first line."""
    command = [*hbroker("node"), *NODE, listen, *flags]
    with subprocess.Popen(
        [sys.executable, "-c", _START, ",".join(map(str, descriptors)), *command],
        env=environment(),
        pass_fds=descriptors,
        cwd=PROJECT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(PATIENCE)


def test_without_a_service_manager_nothing_is_sent() -> None:
    code = "from hbroker.runtime.hosts.service_manager import tell, kept_descriptors\n"
    code += "tell('READY=1'); print(kept_descriptors())"
    for path in ("", "relative", "/nobody/is/there"):
        environ = {**environment(), "NOTIFY_SOCKET": path, "LISTEN_FDS": "x", "LISTEN_PID": "1"}
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
