"""`hbroker down`: stops a launched network."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import network_argument, state_dir_flag

if TYPE_CHECKING:
    from hbroker.runtime.launcher.run_directory import RunDirectory

PATIENCE = 15.0
"""Seconds: more than a launcher needs to end a node that ignores SIGTERM."""

_TEXT = """\
examples:
  hbroker down                          the network that runs
  hbroker down home                     the one of that name

exit codes: 0 it is stopped (or did not run), 1 it does not stop
"""


@command("down", _TEXT)
@network_argument
@state_dir_flag
def down(network: str | None, state_dir: Path) -> int:
    """Returns when no process of the network is left, or with FAILED after `PATIENCE`."""
    from hbroker.cli.network.running import named

    directory = named(state_dir, network)
    launcher = directory.launcher() if directory else None
    if directory is None or launcher is None:
        print(f"{network} does not run" if network else "no network runs")
        return DONE
    return _stop(directory, launcher)


def _stop(directory: RunDirectory, launcher: int) -> int:
    with suppress(ProcessLookupError):
        os.kill(launcher, signal.SIGTERM)
    if not directory.await_end(PATIENCE):
        print(f"hbroker: the launcher (process {launcher}) does not end", file=sys.stderr)
        return FAILED
    print(f"stopped {directory.network}")
    return DONE
