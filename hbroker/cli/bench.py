"""`hbroker bench`: a load, and what a broker makes of it."""

from __future__ import annotations

import argparse
import os
import signal
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import add_json, add_state_directory, command, not_negative, positive
from hbroker.cli.output import Style, print_json, print_table, styled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hbroker.bench.brokers import Broker
    from hbroker.bench.measurement import Measured
    from hbroker.bench.plan import Address, Plan
    from hbroker.cli.flags import Commands

_TEXT = """\
layouts:
  pairs    N publishers, each with a topic and a subscriber of its own (default: 8)
  fanin    N publishers on one topic, one subscriber (default: 8)
  fanout   one publisher, N subscribers of its topic (default: 1000)

Without --to a broker is started for it, and ended: a node, or, for MQTT, a node and a
gateway. Every client has a socket of its own; one thread drives them all. Each message is
checked: lost, doubled, out of order, damaged. Latency counts from the moment a message was
due (--rate), or was sent.

Give the broker a CPU and the load another one: with two CPUs or more that is the default.
Where GENERATOR is the limit, the broker could do more.

examples:
  hbroker bench
  hbroker bench pairs -n 1 --rate 2000 --qos 1
  hbroker bench fanout -n 1000 --transport mqtt --to 127.0.0.1:1883 --broker-pid 4242
  hbroker bench --transport nats --to 127.0.0.1:4222 --broker-pid "$(pidof nats-server)" --json

--json prints {layout, clients, transport, qos, payload, window, rate, warm_up, duration,
  limit, seconds, delivered_per_s, delivered_per_cpu_s, sent, delivered, acknowledged,
  refused, lost, duplicated, disordered, damaged, stalls, latency_us: {p50, p90, p99, p999},
  lateness_us, broker_cpu, broker_cpu_s, broker_rss_bytes, generator_cpu, others_cpu,
  cpus: {broker, generator}}

exit codes: 0 every message came, once and in order; 1 not so, or it could not be measured;
  2 wrong flags
"""

_LAYOUTS: Final = ("pairs", "fanin", "fanout")
_TRANSPORTS: Final = ("hbroker", "mqtt", "mqtt5", "nats")
_LEAST_PAYLOAD: Final = 16
_MOST_PAYLOAD: Final = 1 << 20
_MOST_CLIENTS: Final = 100_000
_MOST_WINDOW: Final = 1 << 24


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "bench", run, "measure how fast a broker is, and whether all arrives", _TEXT)
    parser.add_argument(
        "layout", nargs="?", choices=_LAYOUTS, default="pairs", metavar="LAYOUT", help="default: %(default)s"
    )
    parser.add_argument("-n", "--clients", type=_whole(1, _MOST_CLIENTS), metavar="N", help="see below")
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="default: %(default)s")
    parser.add_argument(
        "--payload",
        type=_whole(_LEAST_PAYLOAD, _MOST_PAYLOAD),
        default=64,
        metavar="BYTES",
        help=f"of each message, {_LEAST_PAYLOAD} or more (default: %(default)s)",
    )
    parser.add_argument("--rate", type=positive, metavar="N", help="messages a second (default: no limit)")
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument(
        "--window",
        type=_whole(1, _MOST_WINDOW),
        metavar="N",
        help="messages under way in all (default: 4096, fanout 64)",
    )
    loop.add_argument("--open", action="store_true", help="no window: all that the transport takes")
    parser.add_argument(
        "--duration", type=positive, default=5.0, metavar="SECONDS", help="default: %(default)s"
    )
    parser.add_argument(
        "--warm-up", type=not_negative, default=1.0, metavar="SECONDS", help="before (default: %(default)s)"
    )
    _add_target(parser)
    add_state_directory(parser)
    add_json(parser)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transport", choices=_TRANSPORTS, default="hbroker", help="default: %(default)s")
    parser.add_argument("--to", metavar="HOST:PORT", help="a broker that runs (default: one of its own)")
    parser.add_argument(
        "--broker-pid",
        type=_whole(1, 1 << 31),
        action="append",
        metavar="PID",
        help="its process, with its children; again for more (default: as `hbroker status`)",
    )
    parser.add_argument(
        "--workers",
        type=_whole(1, 64),
        default=1,
        metavar="N",
        help="of the node that is started (default: 1)",
    )
    parser.add_argument("--broker-cpus", type=_cpus, metavar="LIST", help="for the broker that is started")
    parser.add_argument("--cpus", type=_cpus, metavar="LIST", help="for the load, as in 1 or 1,3")


def run(options: argparse.Namespace) -> int:
    """Measures. Raises NoAnswer, OSError, ConfigError."""
    from hbroker.bench.brokers import own_broker
    from hbroker.bench.generator import generator
    from hbroker.bench.measurement import measure

    # Asked to end, it ends the broker too that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plan = _plan(options)
    broker_cpus, load_cpus = _pinned(options)
    if options.to is None:
        with own_broker(plan.transport, options.workers, broker_cpus) as broker:
            os.sched_setaffinity(0, load_cpus)
            with generator(plan, broker.address) as load:
                measured = measure(plan, broker, load)
    else:
        broker_cpus = None
        os.sched_setaffinity(0, load_cpus)
        broker = _running(options)
        with generator(plan, broker.address) as load:
            measured = measure(plan, broker, load)
    if options.json:
        cpus = {"broker": sorted(broker_cpus) if broker_cpus else None, "generator": sorted(load_cpus)}
        print_json({**measured.to_json(), "cpus": cpus})
    else:
        _print(measured)
    return DONE if measured.is_whole else FAILED


def _plan(options: argparse.Namespace) -> Plan:
    from hbroker.bench.layouts import LAYOUTS
    from hbroker.bench.plan import Plan
    from hbroker.errors import ConfigError

    layout = LAYOUTS[options.layout]
    if options.transport == "nats" and (options.qos > 0 or options.to is None):
        wrong = "NATS has no QoS" if options.qos > 0 else "there is no broker of NATS to start"
        remedy = "leave out --qos" if options.qos > 0 else "name one with --to"
        raise ConfigError(wrong, file="command line", line=None, remedy=remedy)
    return Plan(
        layout=options.layout,
        clients=options.clients or layout.clients,
        transport=options.transport,
        qos=options.qos,
        payload=options.payload,
        window=None if options.open else options.window or layout.window,
        rate=options.rate,
        warm_up=options.warm_up,
        duration=options.duration,
    )


def _running(options: argparse.Namespace) -> Broker:
    from hbroker.bench.brokers import Broker, pids_at
    from hbroker.bench.process import descendants
    from hbroker.config import parse_address
    from hbroker.hostnames import resolve_host
    from hbroker.runtime.state import running

    host, port = parse_address(options.to, default_port=_PORTS[options.transport])
    address: Address = (resolve_host(host), port)
    if options.broker_pid is not None:
        pids = [pid for given in options.broker_pid for pid in (given, *descendants(given))]
        return Broker(address, tuple(dict.fromkeys(pids)))
    found = [network for directory in running(options.state_dir) if (network := directory.read()) is not None]
    return Broker(address, pids_at(address, found))


_PORTS: Final = {"hbroker": 7700, "mqtt": 1883, "mqtt5": 1883, "nats": 4222}


def _pinned(options: argparse.Namespace) -> tuple[frozenset[int] | None, frozenset[int]]:
    """The CPUs of the broker that is started (None: all), and of the load."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return options.broker_cpus, options.cpus or frozenset(cpus)
    load = options.cpus or frozenset(cpus[1:2] if options.broker_cpus is None else cpus) - (
        options.broker_cpus or frozenset()
    )
    broker = options.broker_cpus or frozenset(cpus[:1]) - load or None
    return broker, load or frozenset(cpus)


def _print(measured: Measured) -> None:
    print(styled(str(measured.plan), Style.STRONG))
    print()
    for name, value in _lines(measured):
        print(f"  {name:<24}{value}")
    rows = [
        (name, *(f"{value:,.0f}" for value in asdict(times).values()))
        for name, times in (("latency", measured.latency_us), ("sent late by", measured.lateness_us))
        if times is not None
    ]
    if rows:
        header = ("MICROSECONDS", "P50", "P90", "P99", "P99.9")
        print()
        print_table(header, rows, numbers=header[1:])


def _lines(measured: Measured) -> Iterator[tuple[str, str]]:
    yield "delivered", f"{measured.delivered_per_s:,.0f} messages/s for {measured.seconds:.1f} s"
    if measured.delivered_per_cpu_s is not None:
        yield "for each CPU-second", f"{measured.delivered_per_cpu_s:,.0f} messages"
    if measured.broker_cpu is not None and measured.broker_rss_bytes is not None:
        resident = measured.broker_rss_bytes / 2**20
        yield "broker", f"{measured.broker_cpu:.0%} of a CPU, {resident:.0f} MiB"
    else:
        yield "broker", "unknown: name it with --broker-pid"
    yield "load generator", f"{measured.generator_cpu:.0%} of a CPU"
    if measured.others_cpu is not None:
        yield "others", f"{measured.others_cpu:.0%} of a CPU"
    yield "limit", measured.limit
    yield "all in all", f"{measured.sent:,} messages sent, {measured.delivered:,} copies delivered"
    yield "", _faults(measured)


def _faults(measured: Measured) -> str:
    counts = {
        "lost": measured.lost,
        "doubled": measured.duplicated,
        "out of order": measured.disordered,
        "damaged": measured.damaged,
        "refused": measured.refused,
        "stalls": measured.stalls,
    }
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return told or "none lost, doubled, out of order or damaged"


class _whole:
    """Reads a whole number within bounds. Raises argparse.ArgumentTypeError."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def __call__(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and self._least <= int(text[:12]) <= self._most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {self._least} to {self._most}")
        return int(text)


def _cpus(text: str) -> frozenset[int]:
    """Numbers of CPUs that this process may have, with commas between them."""
    allowed = os.sched_getaffinity(0)
    try:
        cpus = frozenset(map(int, text.split(",")))
    except ValueError:
        cpus = frozenset({-1})
    if not cpus <= allowed:
        raise argparse.ArgumentTypeError(f"{text!r}: the CPUs here are {','.join(map(str, sorted(allowed)))}")
    return cpus
