"""The command line: `hbroker <command> …` (docs/commands.md).

    network/    up, down, status, tree, audit, resolve, move, apply, leave, node, admin
    hosts/      join, doctor, log
    gateways/   gateway, bridge, clients, kick, passwd, import
    analysis/   analyze
    bench/      bench
    sim         simulated rooms of devices
    store       shows or verifies a node's store
    capture     dissects datagrams
    check       validates topology files
    keys        makes keys and certificates
    context     names how to reach a network
    token       makes, narrows and inspects tokens
    commands    the table of commands, and how a command is declared
    flags       flags and values that several commands share
    output      tables, colours and JSON
    progress    progress of long work
    exits       exit codes

Each command is a function of its name, declared with click. `commands` imports its module only when it is
needed. Every command imports `commands` and `flags`, which import no command, and neither do `output`,
`progress` and `exits`.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from hbroker.cli.commands import Commands
from hbroker.cli.exits import FAILED

_EPILOG = """\
begin here:
  hbroker up topologies/home.yaml       start the nodes of a small house; Ctrl-C stops them
  hbroker tree                          in another terminal: who owns what
  hsub -v -t 'home/+/temperature'       listen in every room
  hpub -t home/kitchen/temperature -m 21.5

exit codes: 0 done, 1 failed, 2 wrong flags or topology, 3 no answer, 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code (`hbroker.cli.exits`)."""
    try:
        code: int = _hbroker.main(arguments, "hbroker", standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        return wrong.exit_code
    except click.Abort:  # The end of the input at a question.
        return FAILED
    return code


def _print_version(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        import hbroker

        print(f"hbroker {hbroker.__version__}")
        ctx.exit()


@click.group(
    cls=Commands,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="print the version, and exit",
)
@click.option(
    "--context",
    metavar="NAME",
    help="how to reach the network (default: $HBROKER_CONTEXT, or as `hbroker context use` says)",
)
def _hbroker(context: str | None) -> None:
    """A publish/subscribe network for devices: every topic has one owner, and no message goes from broker to
    broker."""
