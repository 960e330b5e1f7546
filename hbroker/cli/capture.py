"""`hbroker capture`: what crosses the network, packet by packet."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from hbroker.cli.flags import command

__all__ = ["add"]


def add(commands: Any) -> None:
    """Adds the command and its flags."""
    from hbroker.capture.command import EPILOG, add_flags

    add_flags(command(commands, "capture", run, "dissect the network's datagrams", EPILOG))


def run(options: Namespace) -> int:
    """Captures, or reads a file, until Ctrl-C or the end; returns the exit code."""
    from hbroker.capture import command as capture

    return capture.run(options)
