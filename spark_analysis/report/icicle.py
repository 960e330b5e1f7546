"""The layout of an icicle of subtrees: each box inside that of its parent, the largest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from .charts import Box
from .markup import number, percent, size

_NARROWEST: Final = 0.002
"""Smaller shares of the whole are not drawn."""

_DEEPEST: Final = 6

Row = Mapping[str, Any]


def main_nodes(rows: Sequence[Row], count: int) -> dict[str, int]:
    """The nodes that handle most, each with its colour's number, in the order of their names."""
    deepest_boxes: dict[str, float] = {}
    for row in rows:
        node = row["main_node"]
        deepest_boxes[node] = deepest_boxes.get(node, 0.0) + (row["share"] or 0.0)
    hottest = sorted(deepest_boxes, key=lambda node: (-deepest_boxes[node], node))[:count]
    return {node: index for index, node in enumerate(sorted(hottest))}


def icicle_of(rows: Sequence[Row], colours: Mapping[str, int]) -> list[Box]:
    """Boxes for all subtrees that are wide enough and whose parents are in the ranking."""
    children: dict[tuple[int, str], list[Row]] = {}
    for row in rows:
        parent = row["subtree"].rpartition("/")[0] if row["depth"] > 1 else ""
        children.setdefault((row["depth"] - 1, parent), []).append(row)
    return list(_boxes(children, (0, ""), 0.0, colours))


def _boxes(
    children: Mapping[tuple[int, str], Sequence[Row]],
    parent: tuple[int, str],
    left: float,
    colours: Mapping[str, int],
) -> Iterator[Box]:
    depth = parent[0] + 1
    if depth > _DEEPEST:
        return
    for row in sorted(children.get(parent, ()), key=lambda row: (-row["load"], row["subtree"])):
        width = row["share"] or 0.0
        if width < _NARROWEST:
            return
        name = row["subtree"].rpartition("/")[2] if depth > 1 else row["subtree"]
        tip = (
            f"{row['subtree']}: {percent(width)} of the load, {number(row['whole_in'])} messages in, "
            f"{size(row['bytes_in'])}, {number(row['topics'])} topics, most at {row['main_node']}"
        )
        colour = colours.get(row["main_node"], len(colours))
        yield Box(depth - 1, left, width, f"{name or '(empty)'} {percent(width)}", tip, colour)
        yield from _boxes(children, (depth, row["subtree"]), left, colours)
        left += width
