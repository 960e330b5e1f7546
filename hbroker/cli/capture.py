"""`hbroker capture`: dissects the datagrams of a network, packet by packet."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from hbroker.capture.command import EPILOG, add_flags
from hbroker.cli.flags import command
from hbroker.errors import LocalError

if TYPE_CHECKING:
    from hbroker.cli.flags import Commands


def add(commands: Commands) -> None:
    """Declares the command."""
    add_flags(command(commands, "capture", run, "dissect the network's datagrams", EPILOG))


def run(options: argparse.Namespace) -> int:
    """Captures, or reads a file, until Ctrl-C or the end of the file. Raises LocalError without scapy."""
    from hbroker.capture import command as capture

    try:
        return capture.run(options)
    except ModuleNotFoundError as error:
        raise LocalError(f"{error.name} is not installed; pip install 'hbroker[capture]'") from error
