"""`hbroker bench`: puts a load on a broker, and measures it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hbroker.cli.bench.flags import BenchFlags, bench_flags, settle, wrong
from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import json_flag
from hbroker.cli.output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hbroker.bench.brokers import Broker
    from hbroker.bench.plan import Address, Plan, Trust

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


@command("bench", _TEXT)
@bench_flags
@json_flag
def bench(layout: str, as_json: bool, **given: Any) -> int:
    """Measures. Raises NoAnswer, OSError, ConfigError."""
    if given["window"] is not None and given["open"]:
        raise click.UsageError("--window does not go with --open")
    flags = settle(layout, **given)
    # On SIGTERM it also ends the broker that it started, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    others = {"sessions": _run_sessions, "resolve": _run_look_ups, "join": _run_joins}
    return others.get(layout, _run_load)(flags, as_json)


def _run_load(flags: BenchFlags, as_json: bool) -> int:
    from hbroker.bench.generator import generator
    from hbroker.bench.measurement import measure
    from hbroker.cli.bench.output import print_load

    plan, trust = _plan(flags), _trust(flags)
    with _target(flags) as (broker, cpus):
        credentials = broker.credentials() if plan.transport == "hbroker" else None
        with generator(plan, broker.address, trust, credentials) as load:
            measured = measure(plan, broker, load)
    return _tell(as_json, measured, cpus, print_load, is_good=measured.is_whole)


def _run_sessions(flags: BenchFlags, as_json: bool) -> int:
    from hbroker.bench.sessions import measure_sessions
    from hbroker.cli.bench.output import print_sessions

    trust = _trust(flags)
    with _target(flags) as (broker, cpus):
        found = measure_sessions(flags.transport, broker, flags.clients, flags.duration, trust)
    return _tell(as_json, found, cpus, print_sessions, is_good=found.alive == found.sessions)


def _run_look_ups(flags: BenchFlags, as_json: bool) -> int:
    from hbroker.bench.resolve import measure_look_ups
    from hbroker.cli.bench.output import print_look_ups

    with _network(flags) as (broker, cpus):
        found = measure_look_ups(broker, flags.depth, flags.clients)
    return _tell(as_json, found, cpus, print_look_ups, is_good=found.is_right)


def _run_joins(flags: BenchFlags, as_json: bool) -> int:
    from hbroker.bench.joining import measure_joins
    from hbroker.cli.bench.output import print_joins

    assert flags.window is not None, "nodes that join always have a window"
    with _target(flags) as (broker, cpus):
        found = measure_joins(broker, flags.clients, flags.window)
    return _tell(as_json, found, cpus, print_joins, is_good=found.joined == found.nodes)


def _tell(as_json: bool, found: Any, cpus: _Cpus, tell: Callable[[Any], None], *, is_good: bool) -> int:
    if as_json:
        print_json({**found.to_json(), "cpus": cpus})
    else:
        tell(found)
    return DONE if is_good else FAILED


@contextmanager
def _target(flags: BenchFlags) -> Iterator[tuple[Broker, _Cpus]]:
    """A running broker, or one that is started, with this process on its own CPUs; and the CPUs of both."""
    from hbroker.bench.brokers import own_broker
    from hbroker.bench.launching import on_cpus

    if flags.layout == "tree":
        with _network(flags) as found:
            yield found
        return
    broker_cpus, load_cpus = _pinned(flags)
    if flags.to is not None:
        with on_cpus(load_cpus):
            yield _running(flags, flags.to), _told(None, load_cpus)
        return
    own = own_broker(flags.transport, flags.workers, broker_cpus, is_sealed=flags.sealed)
    with own as broker, on_cpus(load_cpus):
        yield broker, _told(broker_cpus, load_cpus)


@contextmanager
def _network(flags: BenchFlags) -> Iterator[tuple[Broker, _Cpus]]:
    """As `_target`, for a chain of nodes that is started."""
    from hbroker.bench.brokers import own_network
    from hbroker.bench.chain import chain
    from hbroker.bench.launching import on_cpus

    broker_cpus, load_cpus = _pinned(flags)
    own = own_network(chain(flags.depth), broker_cpus, is_sealed=flags.sealed)
    with own as broker, on_cpus(load_cpus):
        yield broker, _told(broker_cpus, load_cpus)


def _told(broker: frozenset[int] | None, load: frozenset[int]) -> _Cpus:
    return {"broker": None if broker is None else sorted(broker), "generator": sorted(load)}


def _plan(flags: BenchFlags) -> Plan:
    from hbroker.bench.plan import Plan

    return Plan(
        layout=flags.layout,
        clients=flags.clients,
        depth=flags.depth,
        topics=flags.topics,
        transport=flags.transport,
        qos=flags.qos,
        payload=flags.payload,
        window=flags.window,
        rate=flags.rate,
        warm_up=flags.warm_up,
        duration=flags.duration,
        polls=flags.poll,
        sockets=flags.sockets,
    )


def _trust(flags: BenchFlags) -> Trust | None:
    from hbroker.addresses import parse_address

    if flags.ca is None:
        return None
    assert flags.to is not None, "--ca goes with --to"
    host, _ = parse_address(flags.to, default_port=_PORTS[flags.transport])
    try:
        return Path(flags.ca).read_bytes(), host
    except OSError as error:
        raise wrong(f"--ca {flags.ca}: {error.strerror}", "a file in PEM") from None


def _running(flags: BenchFlags, to: str) -> Broker:
    from hbroker.addresses import parse_address
    from hbroker.bench.brokers import Broker, pids_at
    from hbroker.bench.process import descendants
    from hbroker.hostnames import resolve_host
    from hbroker.runtime.credentials import authority_at, token_at
    from hbroker.runtime.launcher.run_directory import running

    host, port = parse_address(to, default_port=_PORTS[flags.transport])
    address: Address = (resolve_host(host), port)
    authority, token = authority_at(flags.state_dir, address), token_at(flags.state_dir, address)
    if flags.broker_pid:
        pids = [pid for given in flags.broker_pid for pid in (given, *descendants(given))]
        return Broker(address, tuple(dict.fromkeys(pids)), authority=authority, token=token)
    found = [network for directory in running(flags.state_dir) if (network := directory.read()) is not None]
    return Broker(address, pids_at(address, found), authority=authority, token=token)


def _pinned(flags: BenchFlags) -> tuple[frozenset[int] | None, frozenset[int]]:
    """The CPUs of the broker that is started (None: all), and of the load."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        return flags.broker_cpus, flags.cpus or frozenset(cpus)
    load = flags.cpus or frozenset(cpus[1:2] if flags.broker_cpus is None else cpus) - (
        flags.broker_cpus or frozenset()
    )
    broker = flags.broker_cpus or frozenset(cpus[:1]) - load or None
    return broker, load or frozenset(cpus)
