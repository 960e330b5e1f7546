"""What became of the lines of a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hbroker.mosquitto.conf_file import Line

__all__ = ["Fate", "Outcome", "Report"]


class Fate(Enum):
    """What became of a line. The value is what the report prints."""

    CONVERTED = "converted"
    SAME = "not needed"
    """hbroker does the same without a setting, or has nothing that the option could be about."""
    MISSING = "not converted"
    """hbroker cannot do this, or the operator has to."""
    UNKNOWN = "unknown"
    """mosquitto 2 has no such option."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one line, and why or into what."""

    place: str
    option: str
    fate: Fate
    text: str


@dataclass(slots=True)
class Report:
    """What became of the lines that were looked at. `remarks`: what the operator should know besides."""

    outcomes: list[Outcome] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def converted(self, line: Line | None, text: str) -> None:
        """A line that is in the topology file now. None: there is no such line."""
        self.note(line, Fate.CONVERTED, text)

    def same(self, line: Line | None, text: str) -> None:
        """A line that needs no setting."""
        self.note(line, Fate.SAME, text)

    def missing(self, line: Line | None, text: str) -> None:
        """A line that hbroker cannot follow."""
        self.note(line, Fate.MISSING, text)

    def note(self, line: Line | None, fate: Fate, text: str) -> None:
        """Notes what became of a line, once. None: there is no such line."""
        if line is None:
            return
        outcome = Outcome(line.place, line.option, fate, text)
        if outcome not in self.outcomes:
            self.outcomes.append(outcome)

    def has(self, line: Line) -> bool:
        """Whether something was noted of a line."""
        return any(o.place == line.place and o.option == line.option for o in self.outcomes)

    @property
    def is_complete(self) -> bool:
        """Whether every line was converted, or is not needed."""
        return all(o.fate in (Fate.CONVERTED, Fate.SAME) for o in self.outcomes)
