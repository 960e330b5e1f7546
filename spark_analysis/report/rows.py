"""What the sections share: the rows of small tables, how roles are called, tables made of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .markup import Content, Markup, tag

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, list[dict[str, Any]]]

NODES_SHOWN: Final = 40
LISTED: Final = 12
PARTS: Final = "Load is messages, in and out; of a large one it counts each part, for each is work."
ROLES: Final = {"node": "Owners", "gateway": "Gateways"}


def of_role(rows: Rows, role: str) -> Row | None:
    """The row of a role, in a table that has one for each."""
    return next((row for row in rows if row["role"] == role), None)


def title_of(role: str) -> str:
    """What a role is called."""
    return ROLES.get(role, role)


def table(
    header: Sequence[str] | None, body: Sequence[Sequence[Content]], *, texts: Sequence[int] = (0,)
) -> Markup:
    """A table that scrolls by itself where it is too wide. The columns `texts` hold names, which are broken
    where they do not fit; the others hold figures and drawings, which are not."""

    def cell(content: Content, index: int) -> Markup:
        return tag("td", content, class_="text" if index in texts else None)

    rows = [tag("tr", [cell(content, i) for i, content in enumerate(row)]) for row in body]
    head = tag("thead", tag("tr", [tag("th", name) for name in header])) if header else Markup("")
    return tag("div", tag("table", [head, tag("tbody", rows)]), class_="table")
