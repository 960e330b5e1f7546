"""`hbroker kick`: disconnects an MQTT client, wherever it is connected."""

from __future__ import annotations

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED, UNREACHABLE
from hbroker.cli.flags import RunningNetwork, json_flag, order_flags, url_flag
from hbroker.cli.output import print_json

_TEXT = """\
The client is told that an administrator did so (MQTT 5: 0x98), and its will is published. Its
session stays, for as long as it asked for; nothing keeps it from connecting again.

examples:
  hbroker kick sensor-7
  hbroker kick --workspace acme sensor-7
  hbroker kick sensor-7 --root 192.0.2.1:7700 --join-key-file site.key
  HBROKER_TOKEN=ops.token hbroker kick sensor-7 --url https://ops.example.org:7780

--json prints {client, workspace, kicked, gateways: [name], silent: [name]}

exit codes: 0 it was disconnected, 1 no gateway has it, 2 the join key is missing or wrong,
  3 a gateway, or the root, does not answer
"""


@command("kick", _TEXT)
@click.argument("client", help="its client id, as `hbroker clients` has it")
@click.option("--workspace", default="", metavar="NAME", help="of which it is a client (default: of none)")
@order_flags
@url_flag
@json_flag
def kick(client: str, workspace: str, network: RunningNetwork, as_json: bool) -> int:
    """Returns 0 only if a gateway had the client. Raises UsageError."""
    from hbroker.cli.gateways.requests import ask, complain
    from hbroker.gateway.admin_requests import KICK
    from hbroker.operations.gateway_requests import Replies
    from hbroker.workspace import Workspace

    try:
        name = Workspace(workspace).client_name(client)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if (api := network.api()) is not None:
        replies, had = Replies(), api.kick(client, workspace)
    else:
        replies = ask(network, KICK, name)
        had = sorted(
            name for name, entries in replies.entries.items() if any(e.get("kicked") for e in entries)
        )
    if as_json:
        print_json(
            {
                "client": client,
                "workspace": workspace or None,
                "kicked": bool(had),
                "gateways": had,
                "silent": replies.silent,
            }
        )
    elif had:
        print(f"{client} was disconnected from {', '.join(had)}")
    else:
        print(f"{client} is not connected")
        complain(replies)
    if had:
        return DONE
    return UNREACHABLE if replies.silent else FAILED
