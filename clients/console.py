"""Runs a program: what it prints, and how it ends.

Messages go to standard output as their bytes, each flushed at once. Errors go to standard error, in
mosquitto's words where it has some. Exit codes are mosquitto's: 0 done, 1 failed or used wrongly, 27 the time
of `-W` is over; and as in the shell 130 for Ctrl-C and 143 for SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn

from hbroker.errors import HBrokerError

from .flags import Flag, UsageError, Values, describe, parse
from .formatting import encode_text
from .options import DEBUG, HELP, QUIET, UNSUPPORTED, VERSION

__all__ = ["DONE", "FAILED", "TIMED_OUT", "Console", "new_console", "run"]

DONE: Final = 0
FAILED: Final = 1
TIMED_OUT: Final = 27
_INTERRUPTED: Final = 130
_TERMINATED: Final = 143


class Console:
    """The output of one run of a program. `name`: its client id."""

    def __init__(self, name: str, *, debug: bool, quiet: bool) -> None:
        self._name = name
        self._debug = debug
        self._quiet = quiet

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


def run(
    program: str,
    synopsis: str,
    flags: Iterable[Flag[Any]],
    arguments: Sequence[str] | None,
    body: Callable[[Values], int],
) -> int:
    """Parses a command line and runs `body` with it. Returns the exit code; errors are printed."""
    signal.signal(signal.SIGTERM, _terminate)
    is_quiet = False
    try:
        values = parse(flags, UNSUPPORTED, sys.argv[1:] if arguments is None else arguments)
        is_quiet = QUIET in values
        if HELP in values:
            print(f"{synopsis}\n\n{describe(flags)}")
            return DONE
        if VERSION in values:
            print(f"{program} {_version()}")
            return DONE
        return body(values)
    except UsageError as error:
        print(f"Error: {error}\n\nUse '{program} --help' to see usage.", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write has no reader
        return FAILED
    except (HBrokerError, OSError) as error:
        if not is_quiet:
            print(f"Error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return _INTERRUPTED


def new_console(values: Values, name: str) -> Console:
    """The console for these flags."""
    return Console(name, debug=DEBUG in values, quiet=QUIET in values)


def _version() -> str:
    import hbroker

    return hbroker.__version__


def _terminate(*_: object) -> NoReturn:
    raise SystemExit(_TERMINATED)
