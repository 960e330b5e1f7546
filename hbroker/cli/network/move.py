"""`hbroker move`: moves a subtree to another node, while it is in use."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import RunningNetwork, json_flag, order_flags, url_flag
from hbroker.cli.output import duration, print_json
from hbroker.cli.progress import progress
from hbroker.errors import RemoteError
from hbroker.operations.orders import Orders, require_subtree

if TYPE_CHECKING:
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


@command("move", _TEXT)
@click.argument("subtree", help="a topic prefix, such as home/kitchen")
@click.argument("node", help="who is to own it, as `hbroker tree` has it")
@order_flags
@url_flag
@json_flag
def move(subtree: str, node: str, network: RunningNetwork, as_json: bool) -> int:
    """Returns when the node owns the subtree, or when it is known which node owns it instead.

    Raises Refused, Unreachable, LocalError and ConfigError if nothing was begun.
    """
    require_subtree(subtree)
    began = time.monotonic()
    before, error, owner = _moved(network, subtree, node, is_silent=as_json)
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                "subtree": subtree,
                "node": node,
                "moved": error is None,
                "from": before,
                "owner": owner,
                "seconds": round(seconds, 3),
                "error": error,
            }
        )
    elif error is None and before == node:
        print(f"{node} owns {subtree} already")
    elif error is None:
        print(f"{subtree} went from {before} to {node}, in {duration(seconds)}")
    if error is None:
        return DONE
    if as_json:
        return FAILED
    where = f"{owner} owns {subtree} now" if owner else f"nobody answers for {subtree} now"
    again = f"`hbroker move {subtree} {before}` gives it back"
    print(f"hbroker: {node} could not take it: {error}. {where}; {again}", file=sys.stderr)
    return FAILED


def _moved(
    network: RunningNetwork, subtree: str, node: str, *, is_silent: bool
) -> tuple[str, str | None, str | None]:
    """Moves a subtree. Returns its owner before, why it could not be moved (None: it was), and its owner
    now."""
    if (api := network.api()) is not None:
        with progress(is_silent=is_silent) as shown:
            outcome = api.move(subtree, node, shown.say)
        return outcome.source, outcome.error, node if outcome.error is None else api.owner(subtree)
    key = network.join_key()
    with network.connect() as client:
        with progress(is_silent=is_silent) as shown:
            orders = Orders(client, key, network.credentials(), network.timeout, shown.say)
            before, error = orders.give_subtree(subtree, node)
        if error is None:
            return before.owner, None, node
        return before.owner, str(error), _owner_now(client, subtree)


def _owner_now(client: Client, subtree: str) -> str | None:
    try:
        return client.resolve(subtree, trace=True).owner
    except RemoteError:
        return None
