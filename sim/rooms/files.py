"""The limit of open files: every MQTT connection needs one."""

from __future__ import annotations

import resource
from typing import Final

from hbroker.errors import LocalError

__all__ = ["TooFewFiles", "allow"]

_OTHERS: Final = 200
"""Files that the process has open besides its connections."""


class TooFewFiles(LocalError):
    """The system allows this process fewer open files than it needs."""


def allow(connections: int) -> None:
    """Raises the soft limit of open files as far as these connections need. Raises TooFewFiles."""
    needed = connections + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooFewFiles(
            f"{connections} MQTT connections need {needed} open files, and {hard} are allowed: raise the hard"
            " limit (`ulimit -Hn`), have fewer devices, or a lower --mqtt share"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
