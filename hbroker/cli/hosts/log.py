"""`hbroker log`: changes the level at which a running node logs."""

from __future__ import annotations

from typing import Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import RunningNetwork, order_flags
from hbroker.operations.orders import locate

_TEXT: Final = """\
The node logs what is at least so severe from now on, until it is started again or reads its
settings again (SIGHUP). A gateway takes no orders: SIGUSR2 switches it to debug, and back.

examples:
  hbroker log kitchen debug
  hbroker log kitchen info --root 192.0.2.1:7700 --join-key-file site.key

exit codes: 0 done, 1 it was refused, or there is no such node, 3 no answer
"""


@command("log", _TEXT)
@click.argument("node", help="the node's name, as `hbroker tree` has it")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error"]))
@order_flags
def log(node: str, level: str, network: RunningNetwork) -> int:
    """Returns when the node logs at this level. Raises Refused, Unreachable, LocalError, ConfigError."""
    from hbroker._proto import packet_pb2 as pb
    from hbroker.protocol.admin.requests import LOG_LEVELS
    from hbroker.runtime.client.admin_request import give_order

    key = network.join_key()
    with network.connect() as client:
        address = locate(client, node)
    [kind] = [kind for kind, name in LOG_LEVELS.items() if name == level]
    give_order(
        address,
        pb.Order(kind=kind, node=node),
        join_key=key,
        credentials=network.credentials(),
        timeout=network.timeout,
    )
    print(f"{node} logs from {level} on")
    return DONE
