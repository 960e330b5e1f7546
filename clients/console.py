"""Runs a program: how it reads its command line, what it prints, and how it ends.

The command line is read as mosquitto's programs read theirs. Arguments are read one after the other. A flag
is an argument with exactly its spelling. It takes the arguments that follow it, whatever they look like
(`-m -x` sends "-x"). The first error ends the reading.

Messages go to standard output as their bytes, each flushed at once. Errors go to standard error, in
mosquitto's words where it has some. Exit codes are mosquitto's: 0 done, 1 failed or used wrongly, 27 the time
of `-W` is over; and as in the shell 130 for Ctrl-C and 143 for SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import click

import hbroker
from hbroker.errors import HBrokerError
from hbroker.runtime.contexts import of_command

from .flags import Flag, Values, encode_text
from .options import CONTEXT, DEBUG, HELP, QUIET, UNSUPPORTED, VERSION

__all__ = ["DONE", "FAILED", "TIMED_OUT", "Console", "Program"]

DONE: Final = 0
FAILED: Final = 1
TIMED_OUT: Final = 27
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143

_HELP_WIDTH: Final = 100
_FLAG_WIDTH: Final = 29


class Console:
    """The output of one run of a program. `name`: its client id."""

    def __init__(self, values: Values, name: str) -> None:
        self._name = name
        self._debug = values[DEBUG]
        self._quiet = values[QUIET]

    def write(self, data: bytes) -> None:
        """Prints bytes, and flushes."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def debug(self, text: str) -> None:
        """Prints a line about a packet, if `-d` is given."""
        if self._debug:
            self.write(encode_text(f"Client {self._name} {text}\n"))

    def error(self, text: str) -> None:
        """Prints an error, unless `--quiet` is given."""
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)


class Program(click.Command):
    """A command of click that is read in mosquitto's way. `body`: what it does; returns the exit code."""

    context_class = Values

    def __init__(
        self, name: str, synopsis: str, flags: Sequence[Flag[Any]], body: Callable[[Values], int]
    ) -> None:
        super().__init__(name, {"terminal_width": _HELP_WIDTH}, params=[*flags], help=synopsis)
        self._by_name = {name: flag for flag in flags for name in flag.opts}
        self._body = body

    def run(self, arguments: Sequence[str] | None) -> int:
        """Runs the program with a command line, or else with the process's. Returns the exit code."""
        signal.signal(signal.SIGTERM, _terminate)
        try:
            code: int = self.main(arguments, self.name, standalone_mode=False)
        except click.UsageError as error:
            print(f"Error: {error}\n\nUse '{self.name} --help' to see usage.", file=sys.stderr)
            return FAILED
        except click.Abort:  # Ctrl-C while the command line was read
            return _INTERRUPTED
        return code

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads the arguments one after the other. Raises UsageError."""
        if ctx.resilient_parsing:  # a shell asks how the line could go on
            return super().parse_args(ctx, args)
        assert isinstance(ctx, Values)
        ctx.params = {flag.name: flag.get_default(ctx) for flag in self.params}
        remaining = iter(args)
        for name in remaining:
            flag = self._by_name.get(name)
            if flag is None:
                reason = UNSUPPORTED.get(name)
                raise click.UsageError(
                    f"Option '{name}' is not supported: {reason}." if reason else f"Unknown option '{name}'."
                )
            value = flag.read(remaining)
            ctx.params[flag.name] = (*ctx.params[flag.name], value) if flag.multiple else value
            ctx.given += (flag,)
        return []

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the help. A spelling that is too long has a line of its own."""
        formatter.write(f"{self.help}\n\n")
        formatter.current_indent = 1
        formatter.write_dl(
            [(f"{', '.join(flag.opts)} {flag.metavar}".rstrip(), flag.help or "") for flag in self.params],
            _FLAG_WIDTH,
        )

    def invoke(self, ctx: click.Context) -> int:
        """Does what the values say. Returns the exit code; errors of the network are printed."""
        assert isinstance(ctx, Values)
        try:
            if ctx[HELP]:
                print(ctx.get_help())
                return DONE
            if ctx[VERSION]:
                print(f"{self.name} {hbroker.__version__}")
                return DONE
            with of_command(ctx[CONTEXT]):
                return self._body(ctx)
        except BrokenPipeError:
            raise  # click ends the program without a word
        except (HBrokerError, OSError) as error:
            if not ctx[QUIET]:
                print(f"Error: {error}", file=sys.stderr)
            return FAILED
        except KeyboardInterrupt:
            return _INTERRUPTED


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(_TERMINATED)
