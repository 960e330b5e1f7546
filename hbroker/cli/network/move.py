"""`hbroker move`: moves a subtree to another node, while it is in use."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import add_json, add_root, command
from hbroker.cli.network.admin_requests import add_orders, give_subtree, join_key, say
from hbroker.cli.output import duration, print_json
from hbroker.errors import HBrokerError, LocalError, RemoteError

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands
    from hbroker.protocol.results import Resolution
    from hbroker.sync import Client

_TEXT = """\
Two handovers: the node that holds the subtree gives it to its parent, and the new one takes it
from there, each with subscriptions, sessions, retained messages and queues. What was delegated
below it goes along, and serves on. Nothing is lost, and publishers wait for less than a second
each time. A subtree that nobody holds for itself is cut out of its owner's.

Both nodes remember it when they are started again. `hbroker up` begins anew from its file.

examples:
  hbroker move home/kitchen bedroom
  hbroker move home/kitchen/oven bedroom        a part of what kitchen owns
  hbroker move home/kitchen kitchen             back

--json prints {subtree, node, moved, from, owner, seconds, error}; owner: who has it now

exit codes: 0 it is there, 1 it is not: the message says who has it now, 3 no answer
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "move", run, "give a subtree to another node, live", _TEXT)
    parser.add_argument("subtree", metavar="SUBTREE", help="a topic prefix, such as home/kitchen")
    parser.add_argument("node", metavar="NODE", help="who is to own it, as `hbroker tree` has it")
    add_root(parser)
    add_orders(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Returns when the node owns the subtree, or when it is known which node owns it instead.

    Raises Refused, Unreachable, LocalError and ConfigError if nothing was begun.
    """
    from hbroker import sync

    key = join_key(options)
    _require_subtree(options.subtree)
    began = time.monotonic()
    with sync.connect(options.root, timeout=options.timeout) as client:
        before, error = give_subtree(client, options.subtree, options.node, options, key)
        now = before if error is None else _owner_now(client, options.subtree)
    return _report(options, before, now, error, time.monotonic() - began)


def _require_subtree(subtree: str) -> None:
    from hbroker._native import topic_is_valid

    if not topic_is_valid(subtree):
        raise LocalError(f"{subtree!r} is no subtree: name a topic prefix without wildcards, as home/kitchen")
    if subtree.split("/")[0] == "$SYS":
        raise LocalError(f"{subtree!r} cannot be moved: every node owns its own part of $SYS")


def _owner_now(client: Client, subtree: str) -> Resolution | None:
    try:
        return client.resolve(subtree, trace=True)
    except RemoteError:
        return None


def _report(
    options: argparse.Namespace,
    before: Resolution,
    now: Resolution | None,
    error: HBrokerError | None,
    seconds: float,
) -> int:
    owner = options.node if error is None else None if now is None else now.owner
    if options.json:
        print_json(
            {
                "subtree": options.subtree,
                "node": options.node,
                "moved": error is None,
                "from": before.owner,
                "owner": owner,
                "seconds": round(seconds, 3),
                "error": None if error is None else str(error),
            }
        )
    elif error is None and before.owner == options.node:
        print(f"{options.node} owns {options.subtree} already")
    elif error is None:
        print(f"{options.subtree} went from {before.owner} to {options.node}, in {duration(seconds)}")
    if error is None:
        return DONE
    where = f"{owner} owns {options.subtree} now" if owner else f"nobody answers for {options.subtree} now"
    again = f"`hbroker move {options.subtree} {before.owner}` gives it back"
    say(f"hbroker: {options.node} could not take it: {error}. {where}; {again}", options)
    return FAILED
