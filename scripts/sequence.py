"""Draws a sequence diagram in plain text.

Plain text looks alike in a terminal, an editor, a diff and the built site. Mermaid would make the site load
its renderer from another host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Arrow", "Note", "draw"]

_GAP = 14
"""Characters between the centres of two lanes."""


@dataclass(frozen=True)
class Arrow:
    """A packet from one lane to another. `joined`: a further packet of the same datagram."""

    source: str
    destination: str
    label: str
    joined: bool = False


@dataclass(frozen=True)
class Note:
    """A note about an event, written beside the lanes."""

    text: str


def draw(lanes: Sequence[str], steps: Sequence[Arrow | Note]) -> str:
    """The diagram: one lane for each name, the packets from the top down, and their contents on the right."""
    names = "".join(lane.center(_GAP) for lane in lanes).rstrip()
    lines = [names]
    for step in steps:
        match step:
            case Note(text):
                lines += [_empty(lanes), f"{_empty(lanes)}  {text}"]
            case Arrow():
                lines.append(f"{_row(lanes, step)}  {step.label}")
    return "\n".join(line.rstrip() for line in [*lines, _empty(lanes)])


def _empty(lanes: Sequence[str]) -> str:
    return "".join("|".center(_GAP) for _ in lanes)


def _row(lanes: Sequence[str], arrow: Arrow) -> str:
    row = list(_empty(lanes))
    if arrow.joined:
        return "".join(row)
    source, destination = (_column(lanes, lane) for lane in (arrow.source, arrow.destination))
    left, right = sorted((source, destination))
    row[left + 1 : right] = "-" * (right - left - 1)
    if destination == right:
        row[right - 1] = ">"
    else:
        row[left + 1] = "<"
    return "".join(row)


def _column(lanes: Sequence[str], lane: str) -> int:
    return lanes.index(lane) * _GAP + "|".center(_GAP).index("|")
