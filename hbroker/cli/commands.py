"""The table of commands, and how a command is declared.

A command is a function with click's decorators, in the module of COMMANDS, and has the command's name
(`import_` for a keyword). The module is imported only when the command runs, or when its help or its
completion is asked for. So the help of `hbroker` needs no more than the interpreter and click.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, Final

import click

from hbroker.cli.exits import FAILED, INTERRUPTED, UNREACHABLE, USAGE
from hbroker.errors import ConfigError, ConfigErrors, HBrokerError, Unreachable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["COMMANDS", "Command", "Commands", "Option", "command"]

COMMANDS: Final = {
    "up": ("network.up", "launch a topology and keep it running"),
    "status": ("network.status", "tell which processes of a network run"),
    "down": ("network.down", "stop a launched network"),
    "check": ("check", "validate topology files"),
    "tree": ("network.tree", "show the live hierarchy: who owns what, and its load"),
    "top": ("top.top", "watch the live hierarchy and its load in this terminal"),
    "audit": ("network.audit", "show who joins, moves, is admitted or refused"),
    "clients": ("gateways.clients", "list the MQTT clients of all gateways"),
    "resolve": ("network.resolve", "tell which node owns a topic"),
    "move": ("network.move", "give a subtree to another node, live"),
    "apply": ("network.apply", "re-delegate a running network as a topology says"),
    "leave": ("network.leave", "have a node hand back what it owns, and end"),
    "kick": ("gateways.kick", "disconnect an MQTT client"),
    "sim": ("sim", "simulate rooms of devices on a running network"),
    "capture": ("capture", "dissect the network's datagrams"),
    "analyze": ("analysis.analyze", "find where the load of a network sits"),
    "bench": ("bench.bench", "measure how fast a broker is, and whether all arrives"),
    "node": ("network.node", "run one node in this process"),
    "join": ("hosts.join", "join a network from another host, with a join token"),
    "doctor": ("hosts.doctor", "check this host: what is wrong, and the command that mends it"),
    "log": ("hosts.log", "change the level at which a running node logs"),
    "gateway": ("gateways.gateway", "run one gateway for MQTT clients in this process"),
    "admin": ("network.admin", "serve the HTTP API of a network"),
    "bridge": ("gateways.bridge", "run one bridge to another MQTT broker in this process"),
    "keys": ("keys", "make the keys and certificates of a network or a node"),
    "context": ("context", "name how to reach a network, for commands of this user"),
    "token": ("token", "make, narrow or inspect tokens: what native clients may do"),
    "store": ("stores.store", "show, verify or change what a node has on disk"),
    "passwd": ("gateways.passwd", "set passwords of MQTT clients"),
    "import": ("gateways.mosquitto", "make a topology of a mosquitto.conf"),
}
"""Each command's module below `hbroker.cli`, and its summary, in the order of the help."""


class Option(click.Option):
    """A flag whose help is below a heading."""

    def __init__(self, *declarations: Any, heading: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.heading = heading


class Command(click.Command):
    """A command whose help ends with its epilog, word for word."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the flags, those with a heading last."""
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                sections.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the epilog without wrapping it."""
        formatter.write(f"\n{self.epilog}")


class Commands(click.Group, Command):
    """The commands of COMMANDS. It reports the errors of a command, and returns its exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, whose module is imported now."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"hbroker.cli.{COMMANDS[cmd_name][0]}")
        found: Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the summaries, without an import of the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin so, without an import of them; and the flags."""
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name][1]) for name in names]
        return [*items, *Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> int:
        """Runs the command, and returns its exit code."""
        try:
            from hbroker.runtime.contexts import of_command

            with of_command(ctx.params["context"]):
                code: int = super().invoke(ctx)
        except (ConfigError, ConfigErrors) as error:
            return _fail(str(error), USAGE, prefix="")
        except Unreachable as error:
            return _fail(str(error), UNREACHABLE)
        except BrokenPipeError:
            from hbroker.cli.output import discard_output

            discard_output()
            return FAILED
        except (HBrokerError, OSError) as error:
            return _fail(str(error), FAILED)
        except KeyboardInterrupt:
            return INTERRUPTED
        return code


def command(name: str, text: str) -> Callable[[Callable[..., int]], Command]:
    """Declares a function as a command of COMMANDS. `text`: the end of its help, with examples."""
    summary = COMMANDS[name][1]
    return click.command(name, Command, help=f"{summary[0].upper()}{summary[1:]}.", epilog=text)


def _fail(message: str, code: int, prefix: str = "hbroker: ") -> int:
    print(f"{prefix}{message}", file=sys.stderr)
    return code
