"""`hbroker kick`: disconnects an MQTT client, wherever it is connected."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hbroker.cli.exits import DONE, FAILED, UNREACHABLE
from hbroker.cli.flags import add_json, add_root, command
from hbroker.cli.output import print_json

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands

_TEXT = """\
The client is told that an administrator did so (MQTT 5: 0x98), and its will is published. Its
session stays, for as long as it asked for; nothing keeps it from connecting again.

examples:
  hbroker kick sensor-7
  hbroker kick sensor-7 --root 192.0.2.1:7700 --join-key-file site.key

--json prints {client, kicked, gateways: [name], silent: [name]}

exit codes: 0 it was disconnected, 1 no gateway has it, 2 the join key is missing or wrong,
  3 a gateway, or the root, does not answer
"""


def add(commands: Commands) -> None:
    """Declares the command."""
    from hbroker.cli.network.admin_requests import add_orders

    parser = command(commands, "kick", run, "disconnect an MQTT client", _TEXT)
    parser.add_argument("client", metavar="CLIENT", help="its client id, as `hbroker clients` has it")
    add_root(parser)
    add_orders(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Returns 0 only if a gateway had the client."""
    from hbroker.cli.gateways.requests import ask_gateways
    from hbroker.gateway.admin_requests import KICK

    replies = ask_gateways(options, KICK, options.client)
    had = sorted(name for name, entries in replies.entries.items() if any(e.get("kicked") for e in entries))
    if options.json:
        print_json({"client": options.client, "kicked": bool(had), "gateways": had, "silent": replies.silent})
    elif had:
        print(f"{options.client} was disconnected from {', '.join(had)}")
    else:
        print(f"{options.client} is not connected")
        replies.complain()
    if had:
        return DONE
    return UNREACHABLE if replies.silent else FAILED
