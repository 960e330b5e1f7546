"""A section of the report, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from .markup import Content


@dataclass(frozen=True)
class Section:
    """A section of the report."""

    title: str
    lead: str
    """One sentence about what the charts below show."""
    body: Content
    note: str = ""
    """How to read the charts."""
