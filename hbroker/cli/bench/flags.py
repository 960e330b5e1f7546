"""The flags of `hbroker bench`: which layout takes which, and their defaults.

A flag that a layout does not use is refused, and not ignored: the user believes that it has an effect.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from hbroker.cli.flags import (
    FILE,
    SECONDS,
    Value,
    all_of,
    given_flags,
    not_negative,
    positive,
    state_dir_flag,
)
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.bench.plan import Transport

__all__ = ["LAYOUTS", "BenchFlags", "bench_flags", "settle", "wrong"]

_LOAD: Final = (
    "clients",
    "qos",
    "payload",
    "topics",
    "rate",
    "window",
    "open",
    "duration",
    "warm_up",
    "poll",
    "sockets",
)
_TARGET: Final = ("transport", "to", "broker_pid", "ca", "workers", "sealed")
_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "pairs": (*_LOAD, *_TARGET),
    "fanin": (*_LOAD, *_TARGET),
    "fanout": (*_LOAD, *_TARGET),
    "mixed": (*_LOAD, *_TARGET),
    "tree": (*_LOAD, "depth", "sealed"),
    "sessions": ("clients", "duration", *_TARGET),
    "resolve": ("clients", "depth", "sealed"),
    "join": ("clients", "window", "sealed"),
}
LAYOUTS: Final = tuple(_TAKES)
_SOME: Final = frozenset(flag for flags in _TAKES.values() for flag in flags)

_CLIENTS: Final = {"sessions": 10_000, "resolve": 200, "join": 100}
_JOINS_AT_ONCE: Final = 16

_TRANSPORTS: Final = ("hbroker", "mqtt", "mqtt5", "nats")
_LEAST_PAYLOAD: Final = 16
"""Bytes in which the load writes a message's number and time."""
_MOST_PAYLOAD: Final = 1 << 20
_MOST_CLIENTS: Final = 100_000
_MOST_NODES: Final = 1_000
_MOST_WINDOW: Final = 1 << 24
_MOST_SOCKETS: Final = 4_096
"""Of one process, which has three descriptors for each socket. Subscribers share the sockets."""
_MOST_TOPICS: Final = 1_000_000
"""Topics of all publishers together, and also of all subscribers together: each is counted separately."""
_MOST_DEPTH: Final = 32


def _cpus(text: str) -> frozenset[int]:
    """CPU numbers, separated by commas, that this process may use. Raises ValueError."""
    allowed = os.sched_getaffinity(0)
    try:
        cpus = frozenset(map(int, text.split(",")))
    except ValueError:
        cpus = frozenset({-1})
    if not cpus <= allowed:
        raise ValueError(f"{text!r}: the CPUs here are {','.join(map(str, sorted(allowed)))}")
    return cpus


_CPUS: Final = Value("list", _cpus)
_flag: Final = partial(click.option, show_default=True)
_number: Final = partial(_flag, metavar="N")
_between: Final = click.IntRange

bench_flags: Final = all_of(
    click.argument("layout", default="pairs", type=click.Choice(LAYOUTS), metavar="[LAYOUT]"),
    _number("-n", "--clients", type=_between(1, _MOST_CLIENTS), help="how many: see below"),
    _flag("-q", "--qos", type=click.Choice([0, 1, 2]), default=0),
    _flag(
        "--payload",
        type=_between(_LEAST_PAYLOAD, _MOST_PAYLOAD),
        default=64,
        metavar="BYTES",
        help="of each message",
    ),
    _number(
        "--topics",
        type=_between(1, _MOST_TOPICS),
        default=1,
        help="of each publisher, in turn; who hears it has one wildcard filter",
    ),
    _number("--rate", type=Value("n", positive), help="messages a second (default: no limit; mixed 10)"),
    _number(
        "--window",
        type=_between(1, _MOST_WINDOW),
        help="messages under way in all (default: 4096, fanout 64); of join: nodes at once (16)",
    ),
    _flag("--open", is_flag=True, help="no window: all that the transport takes"),
    _flag("--duration", type=SECONDS, default=5.0),
    _flag("--warm-up", type=Value("seconds", not_negative), default=1.0, help="before"),
    _flag(
        "--poll",
        is_flag=True,
        help="the load never sleeps: it takes all of its CPU, and latencies are without its waking",
    ),
    _number(
        "--sockets",
        type=_between(1, _MOST_SOCKETS),
        help="subscribers share so many, in turn (default: each has its own)",
    ),
    _number("--depth", type=_between(0, _MOST_DEPTH), default=8, help="of tree and resolve"),
    _flag("--transport", type=click.Choice(_TRANSPORTS), default="hbroker"),
    _flag("--to", metavar="HOST:PORT", help="a broker that runs (default: one of its own)"),
    _flag(
        "--ca", type=FILE, metavar="FILE", help="MQTT over TLS: who signed the certificate of --to, in PEM"
    ),
    _flag(
        "--broker-pid",
        type=_between(1, 1 << 31),
        multiple=True,
        metavar="PID",
        help="its process, with its children; again for more (default: as `hbroker status`)",
    ),
    _number("--workers", type=_between(1, 64), default=1, help="of the node that is started"),
    _flag("--sealed", is_flag=True, help="the security of the broker that is started is on"),
    _flag("--broker-cpus", type=_CPUS, help="for the broker that is started"),
    _flag("--cpus", type=_CPUS, help="for the load, as in 1 or 1,3"),
    state_dir_flag,
)


@dataclass(frozen=True, slots=True)
class BenchFlags:
    """The flags, as a layout uses them. Those that it does not use have no effect."""

    layout: str
    clients: int
    depth: int
    topics: int
    transport: Transport
    qos: int
    payload: int
    window: int | None
    rate: float | None
    warm_up: float
    duration: float
    poll: bool
    sockets: int | None
    workers: int
    sealed: bool
    to: str | None
    ca: str | None
    broker_pid: tuple[int, ...]
    broker_cpus: frozenset[int] | None
    cpus: frozenset[int] | None
    state_dir: Path


def settle(layout: str, **flags: Any) -> BenchFlags:
    """Refuses flags that do not go together, and sets the defaults of the layout. Raises ConfigError."""
    from hbroker.bench.layouts import LAYOUTS as LOADS

    given = given_flags()
    for flag in given:
        if flag in _SOME and flag not in _TAKES[layout]:
            raise wrong(f"{layout} has no use for {_spelt(flag)}", f"leave it out; {_who(flag)} take it")
    load = LOADS.get(layout)
    flags["clients"] = flags["clients"] or (load.clients if load else _CLIENTS[layout])
    flags["rate"] = flags["rate"] or (load.rate if load else None)
    if not flags.pop("open"):
        flags["window"] = flags["window"] or (load.window if load else _JOINS_AT_ONCE)
    if "depth" not in _TAKES[layout]:
        flags["depth"] = 0
    settled = BenchFlags(layout, **flags)
    _check_target(settled, given)
    _check_size(settled)
    return settled


def wrong(what: str, remedy: str) -> ConfigError:
    """The error for flags that do not go together."""
    return ConfigError(what, file="command line", remedy=remedy)


def _check_target(flags: BenchFlags, given: Collection[str]) -> None:
    if flags.transport == "nats" and flags.qos > 0:
        raise wrong("NATS has no QoS", "leave out --qos")
    if flags.transport == "nats" and flags.to is None:
        raise wrong("there is no broker of NATS to start", "name one with --to")
    if flags.sockets is not None and flags.transport != "hbroker":
        raise wrong("a connection over TCP is one client's", "leave out --sockets")
    if flags.ca is not None and flags.transport not in ("mqtt", "mqtt5"):
        raise wrong(f"{flags.transport} has no TLS here", "leave out --ca, or say --transport mqtt")
    for flag in ("broker_pid", "ca"):
        if flag in given and flags.to is None:
            raise wrong(f"{_spelt(flag)} is about a broker that runs", "name it with --to")
    own = [flag for flag in ("workers", "sealed", "broker_cpus") if flag in given]
    if flags.to is not None and own:
        raise wrong(f"{_spelt(own[0])} is for a broker that is started", "leave it out, or --to")


def _check_size(flags: BenchFlags) -> None:
    from hbroker.bench.layouts import LAYOUTS as LOADS

    if flags.layout == "tree" and flags.depth == 0:
        raise wrong("a tree of depth 0 has no owner below its root", "a --depth of 1 or more")
    if (layout := LOADS.get(flags.layout)) is not None:
        shape = layout.of(flags.clients, flags.depth)
        if flags.topics > 1 and flags.topics * max(len(shape.publishers), shape.copies) > _MOST_TOPICS:
            raise wrong(f"more than {_MOST_TOPICS:,} topics to remember", "fewer --topics, or --clients")
    if flags.layout == "join" and flags.clients > _MOST_NODES:
        raise wrong(f"more than {_MOST_NODES:,} nodes in one process", "fewer --clients")


def _spelt(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _who(flag: str) -> str:
    *others, last = (layout for layout, flags in _TAKES.items() if flag in flags)
    return f"{', '.join(others)} and {last}"
