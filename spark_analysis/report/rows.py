"""What the sections share: a section as a value, rows of small tables, titles of roles, and HTML tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .markup import Content, Markup, tag

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, list[dict[str, Any]]]

NODES_SHOWN: Final = 40
LISTED: Final = 12
PARTS: Final = "Load is messages, in and out; of a large one it counts each part, for each is work."
ROLES: Final = {"node": "Owners", "gateway": "Gateways"}


@dataclass(frozen=True)
class Section:
    """A section of the report."""

    title: str
    lead: str
    """One sentence about what the charts below show."""
    body: Content
    note: str = ""
    """How to read the charts."""


def of_role(rows: Rows, role: str) -> Row | None:
    """The row of a role, in a table with one row for each role; None: there is none."""
    return next((row for row in rows if row["role"] == role), None)


def table(
    header: Sequence[str] | None, body: Sequence[Sequence[Content]], *, texts: Sequence[int] = (0,)
) -> Markup:
    """A table that scrolls if it is too wide.

    The columns `texts` have names, which are wrapped if they do not fit. The others have numbers and
    drawings, which are not.
    """

    def cell(content: Content, index: int) -> Markup:
        return tag("td", content, class_="text" if index in texts else None)

    rows = [tag("tr", [cell(content, i) for i, content in enumerate(row)]) for row in body]
    head = tag("thead", tag("tr", [tag("th", name) for name in header])) if header else Markup("")
    return tag("div", tag("table", [head, tag("tbody", rows)]), class_="table")
