"""`hbroker bench`: puts a load on a broker, and measures it."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hbroker.cli.bench.flags import add_flags, settle, wrong
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import command
from hbroker.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hbroker.bench.brokers import Broker
    from hbroker.bench.chain import Topology
    from hbroker.bench.plan import Address, Plan, Trust
    from hbroker.cli.flags import Commands

_Cpus = dict[str, list[int] | None]

_TEXT = """\
layouts:
  pairs     N publishers, each with a topic and a subscriber of its own (default: 8)
  fanin     N publishers on one topic, one subscriber (default: 8)
  fanout    one publisher, N subscribers of its topic (default: 1000)
  mixed     one pair at --rate (default: 10/s) beside N that go as fast as they may
            (default: 1), told apart
  tree      N pairs at each depth from 1 to --depth of a chain of nodes (default: 1), each
            depth and its owner told apart
  sessions  N clients with a subscription each that do nothing (default: 10000)
  resolve   N look-ups of topics at each depth of a chain of nodes, cold and cached
            (default: 200)
  join      N nodes that join a root, --window at one time (default: 100)

Without --to a broker is started, and ended: a node, or, for MQTT, a node and a gateway; the
nodes of tree, resolve and join always are. Every client of a load has a socket of its own (but
see --sockets); one thread drives all. Each message is checked: lost, doubled, out of order,
damaged. Latency counts from the moment a message was due (--rate), or was sent. A flag that a
layout has no use for is refused.

Give the broker a CPU and the load another one: with two CPUs or more that is the default.
Where the generator is the limit, the broker could do more.

examples:
  hbroker bench
  hbroker bench pairs -n 1 --rate 2000 --qos 1
  hbroker bench pairs -n 1 --topics 10000
  hbroker bench fanout -n 64000 --sockets 1000
  hbroker bench fanout -n 1000 --transport mqtt --to 127.0.0.1:1883 --broker-pid 4242
  hbroker bench --transport mqtt --to localhost:8883 --ca ca.pem
  hbroker bench --transport nats --to 127.0.0.1:4222 --broker-pid "$(pidof nats-server)" --json
  hbroker bench mixed --duration 30
  hbroker bench tree --depth 4
  hbroker bench sessions -n 10000
  hbroker bench resolve --depth 4
  hbroker bench join -n 200

--json prints {layout, clients, depth, topics, transport, qos, payload, window, rate, warm_up,
  duration, limit, seconds, delivered_per_s, delivered_per_cpu_s, sent, delivered,
  acknowledged, refused, lost, duplicated, disordered, damaged, stalls,
  latency_us: {p50, p90, p99, p999}, lateness_us, broker_cpu, broker_cpu_s, broker_rss_bytes,
  generator_cpu, others_cpu, groups, cpus: {broker, generator}}
  groups, of mixed and tree: [{name, publishers, sent, delivered, lost, duplicated, disordered,
  delivered_per_s, latency_us, lateness_us, owner, owner_cpu_s, delivered_per_cpu_s}]
of sessions {layout, transport, sessions, alive, connected_per_s, broker_cpu_s, bytes_each,
  broker_rss_bytes, idle_cpu, generator_cpu, others_cpu, cpus}
of resolve {layout, look_ups, depths: [{depth, owner, cold_us: {p50, p90, p99, p999},
  packets_out, packets_in, cached_ns, cached_packets}], broker_cpu, generator_cpu,
  others_cpu, cpus}
of join {layout, nodes, at_once, joined, joined_per_s, join_us: {p50, p90, p99, p999},
  packets_out, packets_in, root_cpu, root_cpu_s, root_bytes_each, generator_cpu, others_cpu,
  cpus}

exit codes: 0 every message came, once and in order (every session was there in the end, every
  owner was found, every node joined); 1 not so, or it could not be measured; 2 wrong flags
"""

_PORTS: Final = {"hbroker": 7700, "mqtt": 1883, "mqtt5": 1883, "nats": 4222}


def add(commands: Commands) -> None:
    """Declares the command."""
    add_flags(command(commands, "bench", run, "measure how fast a broker is, and whether all arrives", _TEXT))


def run(options: argparse.Namespace) -> int:
    """Measures. Raises NoAnswer, OSError, ConfigError."""
    settle(options)
    # On SIGTERM it also ends the broker that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    others = {"sessions": _run_sessions, "resolve": _run_look_ups, "join": _run_joins}
    return others.get(options.layout, _run_load)(options)


def _run_load(options: argparse.Namespace) -> int:
    from hbroker.bench.generator import generator
    from hbroker.bench.measurement import measure
    from hbroker.cli.bench.output import print_load

    plan, trust = _plan(options), _trust(options)
    with _target(options) as (broker, cpus), generator(plan, broker.address, trust) as load:
        measured = measure(plan, broker, load)
    return _tell(options, measured, cpus, print_load, is_good=measured.is_whole)


def _run_sessions(options: argparse.Namespace) -> int:
    from hbroker.bench.sessions import measure_sessions
    from hbroker.cli.bench.output import print_sessions

    trust = _trust(options)
    with _target(options) as (broker, cpus):
        found = measure_sessions(options.transport, broker, options.clients, options.duration, trust)
    return _tell(options, found, cpus, print_sessions, is_good=found.alive == found.sessions)


def _run_look_ups(options: argparse.Namespace) -> int:
    from hbroker.bench.chain import chain
    from hbroker.bench.resolve import measure_look_ups
    from hbroker.cli.bench.output import print_look_ups

    with _network(options, chain(options.depth)) as (broker, cpus):
        found = measure_look_ups(broker, options.depth, options.clients)
    return _tell(options, found, cpus, print_look_ups, is_good=found.is_right)


def _run_joins(options: argparse.Namespace) -> int:
    from hbroker.bench.joining import measure_joins
    from hbroker.cli.bench.output import print_joins

    with _target(options) as (broker, cpus):
        found = measure_joins(broker, options.clients, options.window)
    return _tell(options, found, cpus, print_joins, is_good=found.joined == found.nodes)


def _tell(
    options: argparse.Namespace, found: Any, cpus: _Cpus, tell: Callable[[Any], None], *, is_good: bool
) -> int:
    if options.json:
        print_json({**found.to_json(), "cpus": cpus})
    else:
        tell(found)
    return DONE if is_good else FAILED


@contextmanager
def _target(options: argparse.Namespace) -> Iterator[tuple[Broker, _Cpus]]:
    """A running broker, or one that is started, with this process on its own CPUs; and the CPUs of both."""
    from hbroker.bench.brokers import own_broker
    from hbroker.bench.chain import chain
    from hbroker.bench.launching import on_cpus

    if options.layout == "tree":
        with _network(options, chain(options.depth)) as found:
            yield found
        return
    broker_cpus, load_cpus = _pinned(options)
    if options.to is not None:
        with on_cpus(load_cpus):
            yield _running(options), _told(None, load_cpus)
        return
    with own_broker(options.transport, options.workers, broker_cpus) as broker, on_cpus(load_cpus):
        yield broker, _told(broker_cpus, load_cpus)


@contextmanager
def _network(options: argparse.Namespace, topology: Topology) -> Iterator[tuple[Broker, _Cpus]]:
    """As `_target`, for a network of nodes that is started."""
    from hbroker.bench.brokers import own_network
    from hbroker.bench.launching import on_cpus

    broker_cpus, load_cpus = _pinned(options)
    with own_network(topology, broker_cpus) as broker, on_cpus(load_cpus):
        yield broker, _told(broker_cpus, load_cpus)


def _told(broker: frozenset[int] | None, load: frozenset[int]) -> _Cpus:
    return {"broker": None if broker is None else sorted(broker), "generator": sorted(load)}


def _plan(options: argparse.Namespace) -> Plan:
    from hbroker.bench.plan import Plan

    return Plan(
        layout=options.layout,
        clients=options.clients,
        depth=options.depth,
        topics=options.topics,
        transport=options.transport,
        qos=options.qos,
        payload=options.payload,
        window=options.window,
        rate=options.rate,
        warm_up=options.warm_up,
        duration=options.duration,
        polls=options.poll,
        sockets=options.sockets,
    )


def _trust(options: argparse.Namespace) -> Trust | None:
    from hbroker.addresses import parse_address

    if options.ca is None:
        return None
    host, _ = parse_address(options.to, default_port=_PORTS[options.transport])
    try:
        return Path(options.ca).read_bytes(), host
    except OSError as error:
        raise wrong(f"--ca {options.ca}: {error.strerror}", "a file in PEM") from None


def _running(options: argparse.Namespace) -> Broker:
    from hbroker.addresses import parse_address
    from hbroker.bench.brokers import Broker, pids_at
    from hbroker.bench.process import descendants
    from hbroker.hostnames import resolve_host
    from hbroker.runtime.launcher.run_directory import running

    host, port = parse_address(options.to, default_port=_PORTS[options.transport])
    address: Address = (resolve_host(host), port)
    if options.broker_pid is not None:
        pids = [pid for given in options.broker_pid for pid in (given, *descendants(given))]
        return Broker(address, tuple(dict.fromkeys(pids)))
    found = [network for directory in running(options.state_dir) if (network := directory.read()) is not None]
    return Broker(address, pids_at(address, found))


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
