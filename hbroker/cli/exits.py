"""The exit codes of every command (docs/commands.md)."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""The command failed; for `status`, not every process is up."""
USAGE: Final = 2
"""Wrong flags, or a wrong topology. The command has changed nothing."""
UNREACHABLE: Final = 3
"""A node that had to answer did not answer."""
INTERRUPTED: Final = 130
"""Ctrl-C, as in shells: 128 + SIGINT."""
