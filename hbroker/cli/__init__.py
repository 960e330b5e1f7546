"""The command line: `hbroker <command> …` (docs/commands.md).

    network/    up, down, status, tree, resolve, move, apply, leave, node
    gateways/   gateway, clients, kick, passwd
    analysis/   analyze
    bench/      bench
    sim         simulated rooms of devices
    capture     dissects datagrams
    check       validates topology files
    flags       flags that several commands share, and how a command is declared
    output      tables, colours and JSON
    exits       exit codes

Each command is a module with `add(commands)`, which declares its flags, and `run(options)`, which returns an
exit code. A module imports what its command needs only when the command runs. So `--help` takes no longer
than the interpreter and argparse, and argparse loads in a tenth of the time of a command-line framework.
Every command imports `flags`; `flags`, `output` and `exits` import no command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hbroker.cli import capture, check, sim
from hbroker.cli.analysis import analyze
from hbroker.cli.bench import bench
from hbroker.cli.exits import FAILED, INTERRUPTED, UNREACHABLE, USAGE
from hbroker.cli.gateways import clients, gateway, kick, passwd
from hbroker.cli.network import apply, down, leave, move, node, resolve, status, tree, up
from hbroker.cli.output import discard_output
from hbroker.errors import ConfigError, ConfigErrors, HBrokerError, Unreachable

_COMMANDS = (
    up,
    status,
    down,
    check,
    tree,
    clients,
    resolve,
    move,
    apply,
    leave,
    kick,
    sim,
    capture,
    analyze,
    bench,
    node,
    gateway,
    passwd,
)

_DESCRIPTION = """\
A publish/subscribe network for devices: every topic has one owner, and no message goes from broker to broker.
"""

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
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except (ConfigError, ConfigErrors) as error:
        return _fail(str(error), USAGE, prefix="")
    except Unreachable as error:
        return _fail(str(error), UNREACHABLE)
    except (HBrokerError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            discard_output()
            return FAILED
        return _fail(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hbroker",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="print the version, and exit")
    commands = parser.add_subparsers(title="commands", metavar="<command>", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


class _Version(argparse.Action):
    """Prints the version. It imports `hbroker` only when the flag is given."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import hbroker

        print(f"hbroker {hbroker.__version__}")
        parser.exit()


def _fail(message: str, code: int, prefix: str = "hbroker: ") -> int:
    print(f"{prefix}{message}", file=sys.stderr)
    return code
