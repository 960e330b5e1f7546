"""`hbroker resolve`: prints the owner of a topic, as `dig` does for names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE
from hbroker.cli.flags import json_flag, root_flag, timeout_flag
from hbroker.cli.output import Style, print_json, print_table, styled

if TYPE_CHECKING:
    from hbroker import Resolution

_TEXT = """\
With --trace each node on the way down from the root is asked in turn (referral mode),
and each answer is shown.

examples:
  hbroker resolve home/kitchen/oven/temperature
  hbroker resolve home/outside/securitycams/front --trace
  hbroker resolve home/kitchen/light --json | jq -r .owner

--json prints {topic, owner, address, epoch, ttl_s, scope, subscriptions,
  trace: [{node, address, packet, subtree, epoch, time_ms, ttl_s, cache}]}

exit codes: 0 resolved, 1 refused, 3 no answer
"""


@command("resolve", _TEXT)
@click.argument("topic")
@click.option("--trace", is_flag=True, help="show every step of the way")
@root_flag
@timeout_flag()
@json_flag
def resolve(topic: str, trace: bool, root: str, timeout: float, as_json: bool) -> int:
    """Asks a running network. Raises Unreachable, Refused, InvalidTopic."""
    from hbroker import sync

    with sync.connect(root, timeout=timeout) as client:
        resolution = client.resolve(topic, trace=trace)
    if as_json:
        print_json(resolution.to_json())
    else:
        _print(resolution)
    return DONE


def _print(resolution: Resolution) -> None:
    from hbroker.addresses import format_address

    print(styled(resolution.topic, Style.STRONG))
    print(f"  owner          {resolution.owner} at {format_address(resolution.address)}")
    print(f"  epoch          {resolution.epoch}")
    print(f"  valid for      {resolution.ttl_s} s")
    print(f"  zone           {resolution.scope or 'the whole hierarchy'}, less its cuts")
    print(f"  subscriptions  {resolution.subscriptions}")
    if not resolution.trace:
        return
    print()
    rows = [
        (
            number,
            hop.node or "-",
            format_address(hop.address),
            hop.packet,
            hop.subtree or '""',
            hop.epoch,
            f"{hop.time_ms:.2f}",
            hop.ttl_s,
            hop.cache,
        )
        for number, hop in enumerate(resolution.trace, 1)
    ]
    header = ("HOP", "NODE", "ADDRESS", "ANSWER", "SUBTREE", "EPOCH", "MS", "TTL s", "CACHE")
    print_table(header, rows, numbers=("HOP", "EPOCH", "MS", "TTL s"))
