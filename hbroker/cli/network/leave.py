"""`hbroker leave`: makes a node hand back all that it owns, and end."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from hbroker.cli.exits import DONE
from hbroker.cli.flags import add_json, add_root, command
from hbroker.cli.network.admin_requests import add_orders, join_key, locate, say
from hbroker.cli.output import duration, print_json

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands

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


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "leave", run, "have a node hand back what it owns, and end", _TEXT)
    parser.add_argument("node", metavar="NODE", help="the node's name, as `hbroker tree` has it")
    add_root(parser)
    add_orders(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Returns when the node has left. Raises Refused, Unreachable, LocalError, ConfigError."""
    from hbroker import sync
    from hbroker._proto import packet_pb2 as pb
    from hbroker.runtime.client.admin_request import give_order

    key = join_key(options)
    began = time.monotonic()
    with sync.connect(options.root, timeout=options.timeout) as client:
        address = locate(client, options.node)
    order = pb.Order(kind=pb.ORDER_KIND_LEAVE, node=options.node)
    give_order(
        address,
        order,
        join_key=key,
        timeout=options.timeout,
        waits=lambda: say(f"{options.node} hands back what it owns", options),
    )
    seconds = time.monotonic() - began
    if options.json:
        print_json({"node": options.node, "left": True, "seconds": round(seconds, 3)})
    else:
        print(f"{options.node} has left, in {duration(seconds)}")
    return DONE
