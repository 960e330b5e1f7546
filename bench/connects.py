"""How fast MQTT clients connect, and what an idle one costs: `python -m bench.connects`.

Compares the gateway with its root to mosquitto, in one run, each with a storm of clients that stay connected
(`bench.storm`). A server that answers every CONNECT alike, and does nothing else, shows the limit of the load
itself. A client counts as accepted when it has a CONNACK with success.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import click

from bench.contestants.networks import Node
from bench.contestants.peers import Mosquitto
from bench.secure import issue
from bench.storm import Plan, Storm, StormResult
from hbroker.bench.brokers import announced
from hbroker.bench.launching import NoAnswer, ended, launch
from hbroker.bench.plan import Address
from hbroker.bench.process import cpu_seconds, resident_bytes

__all__ = ["main"]

_SETTLE_S: Final = 2.0
_CONNACK_5: Final = b"\x20\x03\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that accepts clients, and its processes by name. The first process is that to which clients
    connect."""

    address: Address
    pids: Mapping[str, int]


class Server(Protocol):
    """A kind of server."""

    @property
    def name(self) -> str:
        """Its name in the tables."""

    def start(self, directory: Path, stack: ExitStack) -> Serving:
        """Starts the server; the stack ends it. Raises NoAnswer."""


class Gateway:
    """`hbroker gateway`, and the root node, which owns every topic."""

    name = "hbroker gateway"

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls

    def start(self, directory: Path, stack: ExitStack) -> Serving:
        node, root = Node().start(directory)
        stack.callback(ended, node)
        listener = "address=127.0.0.1:0"
        if self._tls:
            pair = issue(directory)
            listener += f",tls.certificate={pair.certificate},tls.key={pair.key}"
        flags = ["--name", "bench", "--root", f"{root[0]}:{root[1]}", "--listener", listener]
        command = [sys.executable, "-m", "hbroker", "gateway", *flags]
        apart = directory / "gateway"
        apart.mkdir()
        with launch(apart, command) as gateway:
            address = announced(gateway)
        stack.callback(ended, gateway)
        return Serving(address, {"gateway": gateway.pid, "node": node.pid})


class MosquittoServer:
    """mosquitto, with the settings of `make bench`."""

    name = "mosquitto"

    def __init__(self, *, tls: bool) -> None:
        self._tls = tls

    def start(self, directory: Path, stack: ExitStack) -> Serving:
        process, address = Mosquitto(tls=self._tls).start(directory)
        stack.callback(ended, process)
        return Serving(address, {"mosquitto": process.pid})


class Responder:
    """Answers the first bytes of each connection with a CONNACK. The remaining cost is the load's own."""

    name = "responder"

    def start(self, directory: Path, stack: ExitStack) -> Serving:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4_096))
        process = get_context("fork").Process(target=_respond, args=(listener,), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.terminate)
        assert process.pid is not None, "it was started"
        return Serving(listener.getsockname(), {"responder": process.pid})


_NAMES: Final = ("responder", "mosquitto", "gateway")


@click.command
@click.option("--clients", default=10_000, show_default=True, help="Of one storm.")
@click.option("--window", default=64, show_default=True, help="That wait at once.")
@click.option("--rate", type=float, help="Clients a second.  [default: as the window lets in]")
@click.option("--expiry", default=0, show_default=True, help="Seconds that sessions outlive connections.")
@click.option("--subscriptions", is_flag=True, help="Each has one of its own, at QoS 1.")
@click.option("--wills", is_flag=True, help="Each has one.")
@click.option("--storms", default=1, show_default=True, help="Of the same clients, one after the other.")
@click.option("--rounds", default=1, show_default=True, help="Each with fresh servers.")
@click.option("--servers", multiple=True, type=click.Choice(_NAMES), default=_NAMES, show_default=True)
@click.option("--tls", is_flag=True, help="Over TLS, without the responder.")
@click.option("--resume", is_flag=True, help="With --tls: all but the first resume its session.")
def main(
    clients: int,
    window: int,
    rate: float | None,
    expiry: int,
    storms: int,
    rounds: int,
    servers: Sequence[str],
    *,
    subscriptions: bool,
    wills: bool,
    tls: bool,
    resume: bool,
) -> None:
    """Measures how fast MQTT clients connect, and what an idle one costs.

    Exit codes: 0 done, 1 a server failed.
    """
    plan = Plan(
        clients,
        window,
        rate,
        expiry,
        has_subscriptions=subscriptions,
        has_wills=wills,
        tls=tls,
        resumes=resume,
    )
    print(f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.2f}; {plan}", flush=True)
    known: list[Server] = [MosquittoServer(tls=tls), Gateway(tls=tls)]
    if not tls:
        known.insert(0, Responder())
    try:
        for _ in range(rounds):
            for server in known:
                if server.name.split()[-1] in servers:
                    with _started(server) as serving:
                        _measure(server.name, serving, plan, storms)
    except NoAnswer as error:
        print(error, file=sys.stderr)
        sys.exit(1)


@contextmanager
def _started(server: Server) -> Iterator[Serving]:
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory())
        yield server.start(Path(directory), stack)


def _measure(name: str, serving: Serving, plan: Plan, storms: int) -> None:
    """Several storms of the same clients. If sessions outlive their connections, all storms but the first
    resume them."""
    for number in range(1, storms + 1):
        before = {name: cpu_seconds([pid]) for name, pid in serving.pids.items()}
        resident = {name: resident_bytes([pid]) for name, pid in serving.pids.items()}
        with Storm(serving.address, plan, is_first=number == 1) as storm:
            reported = storm.run()
            cpu = {name: cpu_seconds([pid]) - before[name] for name, pid in serving.pids.items()}
            time.sleep(_SETTLE_S)
            grown = {name: resident_bytes([pid]) - resident[name] for name, pid in serving.pids.items()}
        print(f"{name}, storm {number}: {_line(reported, cpu, grown)}", flush=True)
        time.sleep(_SETTLE_S)


def _line(reported: StormResult, cpu: Mapping[str, float], grown: Mapping[str, int]) -> str:
    accepted = max(reported.accepted, 1)
    cuts = quantiles(reported.latencies_s, n=100) if reported.accepted > 1 else [float("nan")] * 99
    costs = ", ".join(
        f"{name} {seconds * 10_000 / accepted:.2f} CPU-s for 10,000, {grown[name] / accepted:,.0f} bytes each"
        for name, seconds in cpu.items()
    )
    return (
        f"{reported.accepted / reported.seconds:,.0f}/s ({reported.accepted:,} accepted,"
        f" {reported.present:,} of them to a session, {reported.refused:,} refused),"
        f" p50 {cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms;"
        f" {costs}; load {reported.cpu_s * 10_000 / accepted:.2f} CPU-s for 10,000"
    )


def _respond(listener: socket.socket) -> None:
    listener.setblocking(False)
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    clients: dict[int, socket.socket] = {}
    while True:
        for descriptor, _ in epoll.poll():
            if descriptor == listener.fileno():
                _take_in(listener, epoll, clients)
            elif clients[descriptor].recv(512):
                clients[descriptor].send(_CONNACK_5)
            else:
                clients.pop(descriptor).close()


def _take_in(listener: socket.socket, epoll: select.epoll, clients: dict[int, socket.socket]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except BlockingIOError:
            return
        clients[client.fileno()] = client
        epoll.register(client, select.EPOLLIN)


if __name__ == "__main__":
    main()
