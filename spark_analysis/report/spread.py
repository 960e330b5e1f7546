"""The sections about the load of each node over time, and its imbalance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import charts
from .markup import Content, Markup, moment, number, percent, size, tag
from .rows import NODES_SHOWN, PARTS, ROLES, Row, Rows, Section, Tables, of_role, table
from .timeline import Timeline

_SCALES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""The shares of the workers' CPU time that the darkest colour may stand for."""


def load_over_time(tables: Tables, timeline: Timeline) -> Section:
    rows = tables["node_load"]
    owners = sorted((r for r in tables["nodes"] if r["role"] == "node"), key=lambda r: -r["load"])
    maps: list[Markup] = []
    for role, title in ROLES.items():
        order = [r["node"] for r in sorted(tables["nodes"], key=lambda r: -r["load"]) if r["role"] == role]
        if order:
            maps.extend(_heat_maps(title, [r for r in rows if r["role"] == role], order, timeline))
    lead = "No owner wrote anything."
    if owners:
        top = owners[0]
        lead = (
            f"{top['node']} carried {percent(top['share'])} of the owners' load; "
            f"an even share would be {percent(1 / len(owners))}."
        )
    left_out = max(0, len(owners) - NODES_SHOWN)
    note = PARTS + (
        f" Shown are the {NODES_SHOWN} nodes with the largest load; {left_out} more are in nodes.csv."
        if left_out
        else ""
    )
    parts = [tag("div", maps, class_="pairs"), _totals(tables["nodes"])]
    return Section("Load of each node over time", lead, parts, note)


def imbalance(tables: Tables, timeline: Timeline) -> Section:
    rows = tables["imbalance"]
    names = {
        "nodes": "nodes",
        "max_over_mean": "largest / mean",
        "variation": "variation",
        "gini": "Gini",
        "jain": "Jain",
    }
    body: list[list[Content]] = [
        [ROLES.get(row["role"]) or row["role"], *(number(row[name]) for name in names)]
        for row in sorted(rows, key=lambda row: row["role"] != "node")
    ]
    curves = {
        title: [row["cumulative_share"] or 0.0 for row in tables["nodes"] if row["role"] == role]
        for role, title in ROLES.items()
        if any(row["role"] == role for row in tables["nodes"])
    }
    owners = of_role(rows, "node")
    lead = "There was no load."
    if owners and owners["max_over_mean"]:
        lead = (
            f"The busiest owner handled {number(owners['max_over_mean'])} times the mean "
            f"(Gini {number(owners['gini'])}; 0 is even)."
        )
    figures = [
        tag("figure", [tag("figcaption", "Lorenz curve of the load"), charts.lorenz(curves)]),
        tag(
            "figure", [tag("figcaption", "Largest over mean, over time"), _imbalance_lines(tables, timeline)]
        ),
    ]
    note = (
        "Variation is standard deviation over mean. Gini is twice the shaded area: 0 is even, near 1 is all "
        "on one. Jain is 1 where even, 1/n where all is on one of n."
    )
    indices = table(["", *names.values()], body)
    return Section("How uneven it is", lead, [indices, tag("div", figures, class_="pairs")], note)


def _totals(nodes: Rows) -> Markup:
    """Load, messages and bytes of each node over all time, owners first."""
    ordered = sorted(nodes, key=lambda row: (row["role"] != "node", -row["load"]))[:NODES_SHOWN]
    body: list[list[Content]] = [
        [
            row["node"],
            "owner" if row["role"] == "node" else "gateway",
            charts.bar(row["share"] or 0.0, percent(row["share"])),
            *(number(row[name]) for name in ("load", "whole_in", "whole_out")),
            *(size(row[name]) for name in ("bytes_in", "bytes_out")),
        ]
        for row in ordered
    ]
    return table(["node", "", "share of its kind", "load", "messages in", "out", "payload in", "out"], body)


def _heat_maps(title: str, rows: Rows, order: Sequence[str], timeline: Timeline) -> list[Markup]:
    shown = order[:NODES_SHOWN]
    has_gaps = sum(row["node"] in shown for row in rows) < len(shown) * timeline.count
    peak = max((row["load"] / row["seconds"] for row in rows if row["seconds"]), default=0) or 1
    busiest = max((row["busy"] for row in rows if row["busy"] is not None), default=0.0)
    full = next((scale for scale in _SCALES if busiest <= scale), 1.0)

    def cells(node: str, level: Callable[[Row], float | None]) -> list[charts.Cell]:
        return [
            charts.Cell(timeline.column(row["window_start"]), level(row) or 0.0, _tip_of_window(row))
            for row in rows
            if row["node"] == node
        ]

    def rate(row: Row) -> float | None:
        return row["load"] / row["seconds"] / peak if row["seconds"] else None

    figures: tuple[tuple[str, Callable[[Row], float | None], str], ...] = (
        ("load", rate, f"{number(peak)} /s"),
        ("CPU of the workers", lambda row: (row["busy"] or 0.0) / full, percent(full)),
    )
    return [
        tag(
            "figure",
            [
                tag("figcaption", f"{title}: {name}"),
                charts.heat_map({node: cells(node, level) for node in shown}, timeline),
                charts.heat_legend("0", high, has_gaps=has_gaps),
            ],
        )
        for name, level, high in figures
    ]


def _tip_of_window(row: Row) -> str:
    rate = row["load"] / row["seconds"] if row["seconds"] else None
    return (
        f"{row['node']} at {moment(row['window_start'])}: {number(rate)} handled/s, "
        f"{percent(row['share'])} of all; CPU {percent(row['busy'])}"
    )


def _imbalance_lines(tables: Tables, timeline: Timeline) -> Markup:
    rows = tables["imbalance_over_time"]
    highest = max((row["max_over_mean"] or 1.0 for row in rows), default=1.0)
    top = max(2, -(-int(highest * 2 + 1) // 2))
    step = max(1, top // 4)
    ticks = [(float(value), str(value)) for value in range(1, top + step, step)]
    lines = {title: (role, "max_over_mean") for role, title in ROLES.items()}
    return charts.over_time(rows, timeline, lines, ticks)
