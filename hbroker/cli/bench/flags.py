"""The flags of `hbroker bench`: which layout takes which, and their defaults.

A flag that a layout does not use is refused, and not ignored: the user believes that it has an effect.
"""

from __future__ import annotations

import argparse
import os
from typing import Any, Final

from hbroker.cli.flags import add_json, add_state_directory, not_negative, positive
from hbroker.errors import ConfigError

__all__ = ["LAYOUTS", "add_flags", "settle", "wrong"]

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
_TARGET: Final = ("transport", "to", "broker_pid", "ca", "workers")
_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "pairs": (*_LOAD, *_TARGET),
    "fanin": (*_LOAD, *_TARGET),
    "fanout": (*_LOAD, *_TARGET),
    "mixed": (*_LOAD, *_TARGET),
    "tree": (*_LOAD, "depth"),
    "sessions": ("clients", "duration", *_TARGET),
    "resolve": ("clients", "depth"),
    "join": ("clients", "window"),
}
LAYOUTS: Final = tuple(_TAKES)
_SOME: Final = frozenset(flag for flags in _TAKES.values() for flag in flags)

_DEFAULTS: Final[dict[str, Any]] = {
    "qos": 0,
    "payload": 64,
    "topics": 1,
    "open": False,
    "duration": 5.0,
    "warm_up": 1.0,
    "poll": False,
    "depth": 8,
    "transport": "hbroker",
    "workers": 1,
}
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


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declares the flags. A flag that is not given is None; `settle` replaces it."""
    parser.add_argument(
        "layout", nargs="?", choices=LAYOUTS, default="pairs", metavar="LAYOUT", help="default: %(default)s"
    )
    parser.add_argument(
        "-n", "--clients", type=_Whole(1, _MOST_CLIENTS), metavar="N", help="how many: see below"
    )
    _add_load(parser)
    parser.add_argument(
        "--depth", type=_Whole(0, _MOST_DEPTH), metavar="N", help="of tree and resolve (default: 8)"
    )
    _add_target(parser)
    add_state_directory(parser)
    add_json(parser)


def settle(options: argparse.Namespace) -> None:
    """Refuses flags that do not go together, and sets the defaults. Raises ConfigError."""
    from hbroker.bench.layouts import LAYOUTS as LOADS

    given = [flag for flag in sorted(_SOME) if getattr(options, flag) is not None]
    for flag in given:
        if flag not in _TAKES[options.layout]:
            remedy = f"leave it out; {_who(flag)} take it"
            raise wrong(f"{options.layout} has no use for {_spelt(flag)}", remedy)
    for flag in _SOME:
        if getattr(options, flag) is None:
            setattr(options, flag, _DEFAULTS.get(flag))
    if "depth" not in _TAKES[options.layout]:
        options.depth = 0
    layout = LOADS.get(options.layout)
    options.clients = options.clients or (layout.clients if layout else _CLIENTS[options.layout])
    options.rate = options.rate or (layout.rate if layout else None)
    if not options.open:
        options.window = options.window or (layout.window if layout else _JOINS_AT_ONCE)
    _check_target(options, given)
    _check_size(options)


def wrong(what: str, remedy: str) -> ConfigError:
    """The error for flags that do not go together."""
    return ConfigError(what, file="command line", line=None, remedy=remedy)


def _check_target(options: argparse.Namespace, given: list[str]) -> None:
    if options.transport == "nats" and options.qos > 0:
        raise wrong("NATS has no QoS", "leave out --qos")
    if options.transport == "nats" and options.to is None:
        raise wrong("there is no broker of NATS to start", "name one with --to")
    if options.sockets is not None and options.transport != "hbroker":
        raise wrong("a connection over TCP is one client's", "leave out --sockets")
    if options.ca is not None and options.transport not in ("mqtt", "mqtt5"):
        raise wrong(f"{options.transport} has no TLS here", "leave out --ca, or say --transport mqtt")
    for flag in ("broker_pid", "ca"):
        if flag in given and options.to is None:
            raise wrong(f"{_spelt(flag)} is about a broker that runs", "name it with --to")
    if options.to is not None and ("workers" in given or options.broker_cpus is not None):
        flag = "--workers" if "workers" in given else "--broker-cpus"
        raise wrong(f"{flag} is for a broker that is started", "leave it out, or --to")


def _check_size(options: argparse.Namespace) -> None:
    from hbroker.bench.layouts import LAYOUTS as LOADS

    if options.layout == "tree" and options.depth == 0:
        raise wrong("a tree of depth 0 has no owner below its root", "a --depth of 1 or more")
    if (layout := LOADS.get(options.layout)) is not None:
        shape = layout.of(options.clients, options.depth)
        if options.topics > 1 and options.topics * max(len(shape.publishers), shape.copies) > _MOST_TOPICS:
            raise wrong(f"more than {_MOST_TOPICS:,} topics to remember", "fewer --topics, or --clients")
    if options.layout == "join" and options.clients > _MOST_NODES:
        raise wrong(f"more than {_MOST_NODES:,} nodes in one process", "fewer --clients")


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-q", "--qos", type=int, choices=(0, 1, 2), help="default: 0")
    parser.add_argument(
        "--payload",
        type=_Whole(_LEAST_PAYLOAD, _MOST_PAYLOAD),
        metavar="BYTES",
        help=f"of each message, {_LEAST_PAYLOAD} or more (default: 64)",
    )
    parser.add_argument(
        "--topics",
        type=_Whole(1, _MOST_TOPICS),
        metavar="N",
        help="of each publisher, in turn (default: 1); who hears it has one wildcard filter",
    )
    parser.add_argument(
        "--rate", type=positive, metavar="N", help="messages a second (default: no limit; mixed 10)"
    )
    loop = parser.add_mutually_exclusive_group()
    loop.add_argument(
        "--window",
        type=_Whole(1, _MOST_WINDOW),
        metavar="N",
        help="messages under way in all (default: 4096, fanout 64); of join: nodes at once (16)",
    )
    loop.add_argument(
        "--open", action="store_true", default=None, help="no window: all that the transport takes"
    )
    parser.add_argument("--duration", type=positive, metavar="SECONDS", help="default: 5")
    parser.add_argument("--warm-up", type=not_negative, metavar="SECONDS", help="before (default: 1)")
    parser.add_argument(
        "--poll",
        action="store_true",
        default=None,
        help="the load never sleeps: it takes all of its CPU, and latencies are without its waking",
    )
    parser.add_argument(
        "--sockets",
        type=_Whole(1, _MOST_SOCKETS),
        metavar="N",
        help="subscribers share so many, in turn (default: each has its own)",
    )


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transport", choices=_TRANSPORTS, help="default: hbroker")
    parser.add_argument("--to", metavar="HOST:PORT", help="a broker that runs (default: one of its own)")
    parser.add_argument(
        "--ca",
        metavar="FILE",
        help="MQTT over TLS: who signed the certificate of --to, in PEM",
    )
    parser.add_argument(
        "--broker-pid",
        type=_Whole(1, 1 << 31),
        action="append",
        metavar="PID",
        help="its process, with its children; again for more (default: as `hbroker status`)",
    )
    parser.add_argument(
        "--workers", type=_Whole(1, 64), metavar="N", help="of the node that is started (default: 1)"
    )
    parser.add_argument("--broker-cpus", type=_cpus, metavar="LIST", help="for the broker that is started")
    parser.add_argument("--cpus", type=_cpus, metavar="LIST", help="for the load, as in 1 or 1,3")


def _spelt(flag: str) -> str:
    return f"--{flag.replace('_', '-')}"


def _who(flag: str) -> str:
    *others, last = (layout for layout, flags in _TAKES.items() if flag in flags)
    return f"{', '.join(others)} and {last}"


class _Whole:
    """Reads a whole number within bounds. Raises argparse.ArgumentTypeError."""

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def __call__(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and self._least <= int(text[:12]) <= self._most):
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {self._least} to {self._most}")
        return int(text)


def _cpus(text: str) -> frozenset[int]:
    """CPU numbers, separated by commas, that this process may use. Raises argparse.ArgumentTypeError."""
    allowed = os.sched_getaffinity(0)
    try:
        cpus = frozenset(map(int, text.split(",")))
    except ValueError:
        cpus = frozenset({-1})
    if not cpus <= allowed:
        raise argparse.ArgumentTypeError(f"{text!r}: the CPUs here are {','.join(map(str, sorted(allowed)))}")
    return cpus
