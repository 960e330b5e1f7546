"""The exit codes of every command (docs/commands.md)."""

from typing import Final

DONE: Final = 0
FAILED: Final = 1
"""It could not be done, or (status) not everything is up."""
USAGE: Final = 2
"""Wrong flags, or a wrong topology: nothing was begun."""
UNREACHABLE: Final = 3
"""A node that had to answer did not."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells have it: 128 + SIGINT."""
