"""`hbroker resolve`: prints the owner of a topic, as `dig` does for names."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hbroker.cli.exits import DONE
from hbroker.cli.flags import add_json, add_root, command
from hbroker.cli.output import Style, print_json, print_table, styled

if TYPE_CHECKING:
    from hbroker import Resolution
    from hbroker.cli.flags import Commands

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


def add(commands: Commands) -> None:
    """Declares the command."""
    parser = command(commands, "resolve", run, "tell which node owns a topic", _TEXT)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--trace", action="store_true", help="show every step of the way")
    add_root(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Asks a running network. Raises Unreachable, Refused, InvalidTopic."""
    from hbroker import sync

    with sync.connect(options.root, timeout=options.timeout) as client:
        resolution = client.resolve(options.topic, trace=options.trace)
    if options.json:
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
