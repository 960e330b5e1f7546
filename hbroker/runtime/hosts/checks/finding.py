"""One line of what `hbroker doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Finding", "Level"]


class Level(Enum):
    """`WARNING`: it works, and not as well or as safely as it could. `ERROR`: it does not work."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """`check`: what was looked at. `what`: what was found. `remedy`: a command, or what to do; empty if the
    level is OK."""

    check: str
    level: Level
    what: str
    remedy: str = ""


def ok(check: str, what: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, what)


def warning(check: str, what: str, remedy: str) -> Finding:
    """It could be better."""
    return Finding(check, Level.WARNING, what, remedy)


def error(check: str, what: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(check, Level.ERROR, what, remedy)
