"""Finds nodes and sends orders to them, for `hbroker leave`, `move` and `apply`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hbroker.cli.flags import add_state_directory
from hbroker.errors import HBrokerError, LocalError, RemoteError

if TYPE_CHECKING:
    from hbroker.addresses import Address
    from hbroker.protocol.results import Resolution
    from hbroker.sync import Client

TIMEOUT = 30.0


def add_orders(parser: argparse.ArgumentParser) -> None:
    """Declares `--join-key-file` and `--state-dir`, and a timeout that suits an order."""
    parser.add_argument(
        "--join-key-file",
        type=Path,
        metavar="FILE",
        help="the network's secret (default: that of the network which runs on this host)",
    )
    add_state_directory(parser)
    parser.set_defaults(timeout=TIMEOUT)


def join_key(options: argparse.Namespace, root: str | None = None) -> bytes:
    """The network's join key; empty if none was given and none is known here. Raises ConfigError.

    `root`: the network's root, if it is not `options.root`.
    """
    from hbroker.topology.flags import join_key_from_file, root_from_flag

    if options.join_key_file is not None:
        return join_key_from_file(options.join_key_file)
    from hbroker.runtime.launcher.network_key import key_at

    return key_at(options.state_dir, root_from_flag(root or options.root))


def locate(client: Client, node: str) -> Address:
    """The address of a node, found by its own part of `$SYS`. Raises LocalError if no node has this name."""
    from hbroker._native import topic_is_valid

    if not node or "/" in node or not topic_is_valid(node):
        raise LocalError(f"{node!r} is not the name of a node: `hbroker tree` lists them")
    resolution = client.resolve(f"$SYS/nodes/{node}", trace=True)
    if resolution.owner != node:
        raise LocalError(f"no node is called {node!r} now: `hbroker tree` lists those that there are")
    return resolution.address


def give_subtree(
    client: Client, subtree: str, node: str, options: argparse.Namespace, key: bytes
) -> tuple[Resolution, HBrokerError | None]:
    """Makes a node own a subtree: the present holder hands it back, and the node claims it.

    Returns the former owner, and the error if the node could not take the subtree. Raises Refused,
    Unreachable and LocalError if nothing has moved.
    """
    target = locate(client, node)
    before = client.resolve(subtree, trace=True)
    is_held = before.subtree == subtree
    if is_held and before.owner == node:
        return before, None
    if is_held:
        take_subtree(client, subtree, before.owner, options, key)
    try:
        _order(options, target, node, subtree, key, is_claim=True)
    except RemoteError as error:
        return before, error
    return before, None


def take_subtree(client: Client, subtree: str, holder: str, options: argparse.Namespace, key: bytes) -> None:
    """Makes the holder of a subtree hand it back to its parent. Raises the errors of `give_subtree`."""
    _order(options, locate(client, holder), holder, subtree, key, is_claim=False)


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a line of progress to standard error; none with `--json`."""
    if not options.json:
        print(text, file=sys.stderr, flush=True)


def _order(
    options: argparse.Namespace, address: Address, node: str, subtree: str, key: bytes, *, is_claim: bool
) -> None:
    from hbroker._proto import packet_pb2 as pb
    from hbroker.runtime.client.admin_request import give_order

    kind = pb.ORDER_KIND_CLAIM if is_claim else pb.ORDER_KIND_HAND_BACK
    say(f"{node} takes {subtree}" if is_claim else f"{node} hands {subtree} back", options)
    order = pb.Order(kind=kind, node=node, subtree=subtree)
    give_order(address, order, join_key=key, timeout=options.timeout)
