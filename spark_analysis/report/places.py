"""The sections about subtrees and topics with the most load."""

from __future__ import annotations

from . import charts
from .charts import COLOURS
from .icicle import icicle_of, main_nodes
from .markup import Markup, number, percent, size, tag
from .rows import LISTED, PARTS, ROLES, Rows, Section, Tables, table


def hierarchy(tables: Tables) -> Section | None:
    figures: list[Markup] = []
    for role, title in ROLES.items():
        rows = [row for row in tables["subtrees"] if row["role"] == role]
        if rows:
            nodes = main_nodes(rows, COLOURS)
            others = [("others", len(nodes))] if any(row["main_node"] not in nodes for row in rows) else []
            figures.append(
                tag(
                    "figure",
                    [
                        tag("figcaption", f"{title}: subtrees by load"),
                        charts.icicle(icicle_of(rows, nodes)),
                        charts.key([*nodes.items(), *others]),
                    ],
                )
            )
    if not figures:
        return None
    hottest = max(
        (row for row in tables["subtrees"] if row["depth"] > 1), key=lambda r: r["share"] or 0, default=None
    )
    lead = (
        f"Below the first level the hottest is {hottest['subtree']}, with {percent(hottest['share'])}."
        if hottest
        else "All topics are at the first level."
    )
    tables_of_depths = tag("div", _hottest_by_depth(tables["subtrees"]), class_="depths")
    note = "Wide is much load; below a subtree lie its parts. The colour is the node that handles most of it."
    return Section("Where in the hierarchy it sits", lead, [*figures, tables_of_depths], note)


def hot_topics(tables: Tables) -> Section | None:
    rows = [row for row in tables["hot_topics"] if row["role"] == "node"][:LISTED]
    if not rows:
        return None
    largest = rows[0]["share"] or 1
    body = [
        [
            row["topic"],
            charts.bar((row["share"] or 0) / largest, percent(row["share"])),
            *(number(row[name]) for name in ("load", "whole_in", "whole_out")),
            *(size(row[name]) for name in ("bytes_in", "bytes_out")),
            row["main_node"],
        ]
        for row in rows
    ]
    part = sum(row["share"] or 0 for row in rows)
    lead = f"The first {len(rows)} topics make {percent(part)} of the owners' load."
    header = ["topic", "share", "load", "messages in", "out", "payload in", "out", "node"]
    note = f"{PARTS} More topics are in hot_topics.csv."
    return Section("Hottest topics", lead, table(header, body, texts=(0, 7)), note)


def _hottest_by_depth(rows: Rows) -> list[Markup]:
    """A short ranking of the owners' load for each depth."""
    shown: list[Markup] = []
    for depth in sorted({row["depth"] for row in rows if row["role"] == "node"}):
        of_depth = [row for row in rows if row["role"] == "node" and row["depth"] == depth][:5]
        largest = of_depth[0]["share"] or 1
        body = [
            [row["subtree"] or "(empty)", charts.bar((row["share"] or 0) / largest, percent(row["share"]))]
            for row in of_depth
        ]
        shown.append(tag("div", [tag("h3", f"depth {depth}"), table(None, body)]))
    return shown
