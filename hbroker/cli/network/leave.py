"""`hbroker leave`: makes a node hand back all that it owns, and end."""

from __future__ import annotations

import time

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import RunningNetwork, json_flag, order_flags, url_flag
from hbroker.cli.output import duration, print_json
from hbroker.cli.progress import progress
from hbroker.operations.orders import Orders

_TEXT = """\
The node gives its subtrees to their parents, with their subscriptions, sessions, retained
messages and queues; its own children become its parents' children, and serve on. Nothing is
lost, and publishers wait for less than a second. Then its process ends with exit code 0.
`hbroker up` does not start it again: `hbroker status` shows it as `left`.

The root cannot leave: `hbroker down` stops the whole network.

examples:
  hbroker leave kitchen
  hbroker leave kitchen --root 192.0.2.1:7700 --join-key-file site.key

--json prints {node, left, seconds}

exit codes: 0 it has left, 1 it was refused, or there is no such node, 3 no answer
"""


@command("leave", _TEXT)
@click.argument("node", help="the node's name, as `hbroker tree` has it")
@order_flags
@url_flag
@json_flag
def leave(node: str, network: RunningNetwork, as_json: bool) -> int:
    """Returns when the node has left. Raises Refused, Unreachable, LocalError, ConfigError."""
    began = time.monotonic()
    if (api := network.api()) is not None:
        api.leave(node)
    else:
        key = network.join_key()
        with network.connect() as client, progress(is_silent=as_json) as shown:
            Orders(client, key, network.credentials(), network.timeout, shown.say).leave(node)
    seconds = time.monotonic() - began
    if as_json:
        print_json({"node": node, "left": True, "seconds": round(seconds, 3)})
    else:
        print(f"{node} has left, in {duration(seconds)}")
    return DONE
