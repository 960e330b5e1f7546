"""Simulated hosts, the relay between them, and the programs on them."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from ..network.paths import CLEAR, Faults
from ..network.relay import Routes
from .forwarding import Counts, Order, Record, SetRoutes
from .host import Host

__all__ = ["Lab"]

_RELAY: Final = "hbroker.sim.lab"
_END_S: Final = 10.0


class Lab:
    """Hosts by name. A context manager: at its end every program that still runs is killed, and every host
    closed."""

    def __init__(self, names: Iterable[str]) -> None:
        self._addresses = {name: f"10.77.{1 + i // 250}.{1 + i % 250}" for i, name in enumerate(names)}
        self._hosts: dict[str, Host] = {}
        self._programs: list[subprocess.Popen[Any]] = []
        self._faults = CLEAR
        self._cut: set[tuple[str, str]] = set()

    def __enter__(self) -> Lab:
        try:
            for name, address in self._addresses.items():
                self._hosts[name] = Host.make(address)
            self._orders, self._relay = self._start_relay()
        except BaseException:
            self._close_hosts()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self._programs:
            program.kill()
        for program in self._programs:
            program.wait(_END_S)
            for stream in (program.stdin, program.stdout, program.stderr):
                if stream is not None:
                    stream.close()
        self._orders.close()
        self._close_hosts()
        assert self._relay.wait(_END_S) == 0, "the relay failed"

    # Programs

    def start(self, host: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Starts a program on a host. `options` are those of `subprocess.Popen`."""
        place = self._hosts[host]
        program = subprocess.Popen(place.command(command), pass_fds=(place.namespace,), **options)
        self._programs.append(program)
        return program

    def read(self, host: str, file: str) -> list[str]:
        """The lines of a file as a program on the host reads it, such as one below /proc/net."""
        place = self._hosts[host]
        command = place.command(["cat", file])
        done = subprocess.run(
            command, pass_fds=(place.namespace,), check=True, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    def address(self, host: str) -> str:
        """The IP address of a host."""
        return self._addresses[host]

    # The network between the hosts

    def set_faults(self, faults: Faults) -> None:
        """Sets the faults of every path, in each direction."""
        self._faults = faults
        self._set_routes()

    def cut(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Cuts the paths between the two groups of hosts, in both directions."""
        for one, other in itertools.product(some, others):
            ends = self.address(one), self.address(other)
            self._cut |= {ends, (ends[1], ends[0])}
        self._set_routes()

    def heal(self) -> None:
        """Undoes every cut."""
        self._cut.clear()
        self._set_routes()

    @contextmanager
    def recording(self, file: Path) -> Iterator[None]:
        """Records to a file what hosts send within the block; see `Record`."""
        self._order(Record(file))
        try:
            yield
        finally:
            self._order(Record(None))

    def counts(self) -> Counter[str]:
        """What the relay has done so far: `Relay.counts`."""
        return self._order(Counts())

    # Helpers

    def _set_routes(self) -> None:
        self._order(SetRoutes(Routes(self._faults, dict.fromkeys(self._cut))))

    def _order(self, order: Order) -> Counter[str]:
        self._orders.send(order)
        return self._orders.recv()

    def _start_relay(self) -> tuple[Connection[Order, Counter[str]], subprocess.Popen[bytes]]:
        ours, its = socket.socketpair()
        with ours, its:
            tuns = {host.address: host.tun for host in self._hosts.values()}
            command = [sys.executable, "-m", _RELAY, str(its.fileno())]
            command += [f"{address}={tun}" for address, tun in tuns.items()]
            relay = subprocess.Popen(command, pass_fds=(its.fileno(), *tuns.values()))
            return Connection(ours.detach()), relay

    def _close_hosts(self) -> None:
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()
