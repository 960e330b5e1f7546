"""The brokers that are measured: each one process of its own, pinned, on a free loopback port, and gone
afterwards.

No peer is handicapped: mosquitto gets tcp_nodelay and queues without a limit, and keeps nothing on disk.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import hbroker
from bench.mqtt import MqttPublisher, MqttSubscriber
from bench.native import NativePublisher, NativeSubscriber
from bench.transport import Address, NoAnswer, Publisher, Subscriber

__all__ = ["BROKERS", "Broker", "Hbroker", "Mosquitto", "Running", "announced", "ended", "running"]

_READY_S: Final = 15.0
_END_S: Final = 3.0
_LOG: Final = "broker.log"


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves."""

    pid: int
    address: Address


class Broker(Protocol):
    """A kind of broker, and the load for it."""

    @property
    def name(self) -> str:
        """As the table calls it."""

    def version(self) -> str | None:
        """None: it is not on this machine."""

    def start(self, directory: Path) -> tuple[subprocess.Popen[bytes], Address]:
        """Starts it and waits until it serves; what it writes goes into the directory. Raises NoAnswer."""

    def publisher(self, address: Address, pairs: int, qos: int) -> Publisher:
        """Connects the publishing side."""

    def subscriber(self, address: Address, pairs: int, qos: int) -> Subscriber:
        """Connects the subscribing side."""


@contextmanager
def running(broker: Broker, directory: Path, cpus: frozenset[int]) -> Iterator[Running]:
    """Runs a broker on these CPUs as long as the context lasts."""
    process, address = broker.start(directory)
    try:
        _pin(process.pid, cpus)
        yield Running(process.pid, address)
    finally:
        ended(process)


class Hbroker:
    """One node that owns every topic: `topologies/single.yaml` on any free port."""

    name = "hbroker"

    def version(self) -> str | None:
        return hbroker.__version__

    def start(self, directory: Path) -> tuple[subprocess.Popen[bytes], Address]:
        flags = ["--name", "root", "--subtree", "", "--listen", "127.0.0.1:0"]
        command = [sys.executable, "-m", "hbroker", "node", *flags]
        with (directory / _LOG).open("wb") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        try:
            return process, announced(process)
        except BaseException:
            ended(process)
            raise

    def publisher(self, address: Address, pairs: int, qos: int) -> Publisher:
        return NativePublisher(address, pairs, qos)

    def subscriber(self, address: Address, pairs: int, qos: int) -> Subscriber:
        return NativeSubscriber(address, pairs, qos)


class Mosquitto:
    """Eclipse Mosquitto, as the system's package has it."""

    name = "mosquitto"

    _SETTINGS: Final = (
        "allow_anonymous true",
        "persistence false",
        "set_tcp_nodelay true",
        "max_inflight_messages 0",  # no limit
        "max_queued_messages 0",  # no limit
        "max_queued_bytes 0",  # no limit
        "log_type error",
    )

    def version(self) -> str | None:
        program = _mosquitto()
        if program is None:
            return None
        told = subprocess.run([program, "-h"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"version (\S+)", told)
        return found[1] if found else "unknown"

    def start(self, directory: Path) -> tuple[subprocess.Popen[bytes], Address]:
        program = _mosquitto()
        if program is None:
            raise NoAnswer("mosquitto is not installed")
        address = ("127.0.0.1", _free_port())
        config = directory / "mosquitto.conf"
        config.write_text("\n".join((f"listener {address[1]} {address[0]}", *self._SETTINGS, "")))
        directory.chmod(0o755)  # started by root, it becomes another user
        with (directory / _LOG).open("wb") as log:
            process = subprocess.Popen(
                [program, "-c", str(config)], stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait_for_port(process, address)
        except BaseException:
            ended(process)
            raise
        return process, address

    def publisher(self, address: Address, pairs: int, qos: int) -> Publisher:
        return MqttPublisher(address, pairs, qos)

    def subscriber(self, address: Address, pairs: int, qos: int) -> Subscriber:
        return MqttSubscriber(address, pairs, qos)


BROKERS: Final[tuple[Broker, ...]] = (Hbroker(), Mosquitto())


def announced(process: subprocess.Popen[bytes]) -> Address:
    """The address in the `ready` line of a node."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], _READY_S)
    line = process.stdout.readline().decode() if ready else ""
    found = re.search(r"(\d+\.\d+\.\d+\.\d+):(\d+)", line)
    if not line.startswith("ready") or found is None:
        raise NoAnswer(f"the node did not become ready: {line.strip() or 'it said nothing'}")
    return found[1], int(found[2])


def _mosquitto() -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
    return shutil.which("mosquitto", path=path)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _wait_for_port(process: subprocess.Popen[bytes], address: Address) -> None:
    deadline = time.monotonic() + _READY_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(address, 1.0).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise NoAnswer(f"nothing listens at {address[0]}:{address[1]}")


def _pin(pid: int, cpus: frozenset[int]) -> None:
    """All its threads: those that there are keep to their own masks."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


def ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
