"""`hbroker bench`: a load, and what a broker makes of it."""

from __future__ import annotations

import argparse
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import add_json, add_state_directory, command, not_negative, positive
from hbroker.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hbroker.bench.brokers import Broker
    from hbroker.bench.plan import Address, Plan
    from hbroker.cli.flags import Commands

_TEXT = """\
layouts:
  pairs     N publishers, each with a topic and a subscriber of its own (default: 8)
  fanin     N publishers on one topic, one subscriber (default: 8)
  fanout    one publisher, N subscribers of its topic (default: 1000)
  sessions  N clients with a subscription each that do nothing (default: 10000)
  resolve   N look-ups of topics at each depth of a chain of nodes, cold and cached
            (default: 200); the nodes are started for it

Without --to a broker is started, and ended: a node, or, for MQTT, a node and a gateway.
Every client of pairs, fanin and fanout has a socket of its own; one thread drives all. Each
message is checked: lost, doubled, out of order, damaged. Latency counts from the moment a
message was due (--rate), or was sent.

Give the broker a CPU and the load another one: with two CPUs or more that is the default.
Where the generator is the limit, the broker could do more.

examples:
  hbroker bench
  hbroker bench pairs -n 1 --rate 2000 --qos 1
  hbroker bench fanout -n 1000 --transport mqtt --to 127.0.0.1:1883 --broker-pid 4242
  hbroker bench --transport nats --to 127.0.0.1:4222 --broker-pid "$(pidof nats-server)" --json
  hbroker bench sessions -n 10000
  hbroker bench resolve --depth 4

--json prints {layout, clients, transport, qos, payload, window, rate, warm_up, duration,
  limit, seconds, delivered_per_s, delivered_per_cpu_s, sent, delivered, acknowledged,
  refused, lost, duplicated, disordered, damaged, stalls, latency_us: {p50, p90, p99, p999},
  lateness_us, broker_cpu, broker_cpu_s, broker_rss_bytes, generator_cpu, others_cpu,
  cpus: {broker, generator}}
of sessions {layout, transport, sessions, alive, connected_per_s, broker_cpu_s, bytes_each,
  broker_rss_bytes, idle_cpu, generator_cpu, others_cpu, cpus}
of resolve {layout, look_ups, depths: [{depth, owner, cold_us: {p50, p90, p99, p999},
  packets_out, packets_in, cached_ns, cached_packets}], broker_cpu, generator_cpu,
  others_cpu, cpus}

exit codes: 0 every message came, once and in order (every session was there in the end, every
  owner was found); 1 not so, or it could not be measured; 2 wrong flags
"""

_LAYOUTS: Final = ("pairs", "fanin", "fanout", "sessions", "resolve")
_SESSIONS: Final = 10_000
_LOOK_UPS: Final = 200
_MOST_DEPTH: Final = 32
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
    parser.add_argument(
        "-n", "--clients", type=_whole(1, _MOST_CLIENTS), metavar="N", help="how many: see below"
    )
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
    parser.add_argument(
        "--depth",
        type=_whole(0, _MOST_DEPTH),
        default=8,
        metavar="N",
        help="of resolve (default: %(default)s)",
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
    # Asked to end, it ends the broker too that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run = {"sessions": _run_sessions, "resolve": _run_look_ups}.get(options.layout, _run_load)
    return run(options)


def _run_load(options: argparse.Namespace) -> int:
    from hbroker.bench.generator import generator
    from hbroker.bench.measurement import measure
    from hbroker.cli.bench_output import print_load

    plan = _plan(options)
    with _target(options) as (broker, cpus), generator(plan, broker.address) as load:
        measured = measure(plan, broker, load)
    if options.json:
        print_json({**measured.to_json(), "cpus": cpus})
    else:
        print_load(measured)
    return DONE if measured.is_whole else FAILED


def _run_sessions(options: argparse.Namespace) -> int:
    from hbroker.bench.sessions import measure_sessions
    from hbroker.cli.bench_output import print_sessions

    _check(options)
    count = options.clients or _SESSIONS
    with _target(options) as (broker, cpus):
        found = measure_sessions(options.transport, broker, count, options.duration)
    if options.json:
        print_json({**found.to_json(), "cpus": cpus})
    else:
        print_sessions(found)
    return DONE if found.alive == found.sessions else FAILED


def _run_look_ups(options: argparse.Namespace) -> int:
    from hbroker.bench.brokers import own_network
    from hbroker.bench.launching import on_cpus
    from hbroker.bench.resolve import chain, measure_look_ups
    from hbroker.cli.bench_output import print_look_ups
    from hbroker.errors import ConfigError

    if options.to is not None or options.transport != "hbroker":
        raise ConfigError(
            "resolve starts nodes of its own",
            file="command line",
            line=None,
            remedy="leave out --to, --transport",
        )
    broker_cpus, load_cpus = _pinned(options)
    with own_network(chain(options.depth), broker_cpus) as broker, on_cpus(load_cpus):
        found = measure_look_ups(broker, options.depth, options.clients or _LOOK_UPS)
    if options.json:
        print_json({**found.to_json(), "cpus": _told(broker_cpus, load_cpus)})
    else:
        print_look_ups(found)
    return DONE if found.is_right else FAILED


@contextmanager
def _target(options: argparse.Namespace) -> Iterator[tuple[Broker, dict[str, list[int] | None]]]:
    """The broker, which runs already or is started, with this process on its own CPUs; and who has which."""
    from hbroker.bench.brokers import own_broker
    from hbroker.bench.launching import on_cpus

    broker_cpus, load_cpus = _pinned(options)
    if options.to is not None:
        with on_cpus(load_cpus):
            yield _running(options), _told(None, load_cpus)
        return
    with own_broker(options.transport, options.workers, broker_cpus) as broker, on_cpus(load_cpus):
        yield broker, _told(broker_cpus, load_cpus)


def _told(broker: frozenset[int] | None, load: frozenset[int]) -> dict[str, list[int] | None]:
    return {"broker": None if broker is None else sorted(broker), "generator": sorted(load)}


def _check(options: argparse.Namespace) -> None:
    """Raises ConfigError for flags that do not go together."""
    from hbroker.errors import ConfigError

    if options.transport == "nats" and (options.qos > 0 or options.to is None):
        wrong = "NATS has no QoS" if options.qos > 0 else "there is no broker of NATS to start"
        remedy = "leave out --qos" if options.qos > 0 else "name one with --to"
        raise ConfigError(wrong, file="command line", line=None, remedy=remedy)


def _plan(options: argparse.Namespace) -> Plan:
    from hbroker.bench.layouts import LAYOUTS
    from hbroker.bench.plan import Plan

    _check(options)
    layout = LAYOUTS[options.layout]
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
