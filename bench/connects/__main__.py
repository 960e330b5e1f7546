"""`python -m bench.connects`: how fast MQTT clients connect, and what an idle one costs.

Compares the gateway with its root to mosquitto, in one run, each with a storm of clients that stay connected
(`bench.connects.storm`). A server that answers every CONNECT alike, and does nothing else, shows the limit of
the load itself. A client counts as accepted when it has a CONNACK with success.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

import click

from bench.connects.storm import Plan, Storm, StormResult
from bench.contestants.networks import Node
from bench.contestants.peers import Mosquitto
from bench.secure import issue
from hbroker.bench.brokers import announced, running
from hbroker.bench.launching import NoAnswer, ended, launch
from hbroker.bench.plan import Address
from hbroker.bench.process import cpu_seconds, resident_bytes

_SETTLE_S: Final = 2.0
_CONNACK_5: Final = b"\x20\x03\x00\x00\x00"


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that accepts clients, and its processes by name."""

    name: str
    address: Address
    pids: Mapping[str, int]


@contextmanager
def _gateway(directory: Path, *, tls: bool) -> Iterator[Serving]:
    """`hbroker gateway`, and the root node, which owns every topic."""
    listener = "address=127.0.0.1:0"
    if tls:
        pair = issue(directory)
        listener += f",tls.certificate={pair.certificate},tls.key={pair.key}"
    apart = directory / "node"
    apart.mkdir()
    with running(Node().start, apart, None) as node:
        root = f"{node.address[0]}:{node.address[1]}"
        flags = ["--name", "bench", "--root", root, "--listener", listener]
        with launch(directory, [sys.executable, "-m", "hbroker", "gateway", *flags]) as gateway:
            yield Serving(
                "hbroker gateway", announced(gateway), {"gateway": gateway.pid, "node": node.pids[0]}
            )
            ended(gateway)


@contextmanager
def _mosquitto(directory: Path, *, tls: bool) -> Iterator[Serving]:
    """mosquitto, with the settings of `make bench`."""
    with running(Mosquitto(tls=tls).start, directory, None) as broker:
        yield Serving("mosquitto", broker.address, {"mosquitto": broker.pids[0]})


@contextmanager
def _responder(_: Path, *, tls: bool) -> Iterator[Serving]:
    """Answers the first bytes of each connection with a CONNACK. The remaining cost is the load's own."""
    assert not tls, "it is left out then"
    with socket.create_server(("127.0.0.1", 0), backlog=4_096) as listener:
        process = get_context("fork").Process(target=_respond, args=(listener,), daemon=True)
        process.start()
        assert process.pid is not None, "it was started"
        try:
            yield Serving("responder", listener.getsockname(), {"responder": process.pid})
        finally:
            process.terminate()
            process.join()


_SERVERS: Final = {"responder": _responder, "mosquitto": _mosquitto, "gateway": _gateway}


@click.command
@click.option("--clients", default=10_000, show_default=True, help="Of one storm.")
@click.option("--window", default=64, show_default=True, help="That wait at once.")
@click.option("--rate", type=float, help="Clients a second.  [default: as the window lets in]")
@click.option("--expiry", default=0, show_default=True, help="Seconds that sessions outlive connections.")
@click.option("--subscriptions", is_flag=True, help="Each has one of its own, at QoS 1.")
@click.option("--wills", is_flag=True, help="Each has one.")
@click.option("--storms", default=1, show_default=True, help="Of the same clients, one after the other.")
@click.option("--rounds", default=1, show_default=True, help="Each with fresh servers.")
@click.option(
    "--servers", multiple=True, type=click.Choice(list(_SERVERS)), default=list(_SERVERS), show_default=True
)
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
    wanted = [name for name in _SERVERS if name in servers and not (tls and name == "responder")]
    try:
        for name in wanted * rounds:
            with TemporaryDirectory() as directory, _SERVERS[name](Path(directory), tls=tls) as serving:
                _measure(serving, plan, storms)
    except NoAnswer as error:
        print(error, file=sys.stderr)
        sys.exit(1)


def _measure(serving: Serving, plan: Plan, storms: int) -> None:
    """Several storms of the same clients. If sessions outlive their connections, all storms but the first
    resume them."""
    for number in range(1, storms + 1):
        before = {name: cpu_seconds([pid]) for name, pid in serving.pids.items()}
        resident = {name: resident_bytes([pid]) for name, pid in serving.pids.items()}
        with closing(Storm(serving.address, plan, is_first=number == 1)) as storm:
            reported = storm.run()
            cpu = {name: cpu_seconds([pid]) - before[name] for name, pid in serving.pids.items()}
            time.sleep(_SETTLE_S)
            grown = {name: resident_bytes([pid]) - resident[name] for name, pid in serving.pids.items()}
        print(f"{serving.name}, storm {number}: {_line(reported, cpu, grown)}", flush=True)
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
