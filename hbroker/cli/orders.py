"""What `hbroker leave` and `hbroker move` share: finding nodes, and giving orders to them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hbroker.errors import LocalError

if TYPE_CHECKING:
    from hbroker.config import Address
    from hbroker.sync import Client

TIMEOUT = 30.0


def add_orders(parser: argparse.ArgumentParser) -> None:
    """`--join-key-file`, and a patience that fits what an order may take."""
    parser.add_argument(
        "--join-key-file", type=Path, metavar="FILE", help="the network's secret, where it has one"
    )
    parser.set_defaults(timeout=TIMEOUT)


def join_key(options: argparse.Namespace) -> bytes:
    """The network's join key; empty: none was given. Raises ConfigError."""
    if options.join_key_file is None:
        return b""
    from hbroker.topology.flags import join_key_from_file

    return join_key_from_file(options.join_key_file)


def locate(client: Client, node: str) -> Address:
    """Where a node is: it owns its own part of `$SYS`. Raises LocalError where there is none of that name."""
    from hbroker._native import topic_is_valid

    if not node or "/" in node or not topic_is_valid(node):
        raise LocalError(f"{node!r} is not the name of a node: `hbroker tree` lists them")
    resolution = client.resolve(f"$SYS/nodes/{node}", trace=True)
    if resolution.owner != node:
        raise LocalError(f"no node is called {node!r} now: `hbroker tree` lists those that there are")
    return resolution.address


def say(text: str, options: argparse.Namespace) -> None:
    """A line of progress, for a person who waits; none with `--json`."""
    if not options.json:
        print(text, file=sys.stderr, flush=True)
