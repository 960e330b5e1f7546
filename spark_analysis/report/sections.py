"""What the report shows of what was measured, in the order in which one asks: is the load uneven, where does
it sit, what does it cost, how long will it do.

Owners come first, and alone wherever their load is compared; gateways are shown beside them, never added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from . import charts
from .charts import COLOURS
from .hierarchy import icicle_of, main_nodes
from .markup import Content, Markup, micros, moment, number, percent, tag
from .page import Section

Row = Mapping[str, Any]
Rows = Sequence[Row]
Tables = Mapping[str, list[dict[str, Any]]]

_NODES_SHOWN: Final = 40
_LISTED: Final = 12
_ROLES: Final = {"node": "Owners", "gateway": "Gateways"}
_LATENCY_TICKS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_REASONS: Final = {"rising": "saturates", "saturated": "saturated", "steady": "steady", "unknown": "not told"}


def header(summary: Mapping[str, Any], tables: Tables) -> Markup:
    """Title, what was looked at, and the figures that one wants first."""
    begin, end = (datetime.fromisoformat(summary[name]) for name in ("begin", "end"))
    looked_at = (
        f"{moment(begin)} to {moment(end)} UTC, in windows of {summary['window_s']} s; "
        f"{number(summary['rows']['topics'])} rows of topics from {summary['files']} files"
    )
    owners = _of(tables["imbalance"], "node")
    latency = _of([row for row in tables["latency"] if row["node"] is None], "node")
    handled = owners["load"] if owners else 0
    tiles = [
        ("messages handled", number(handled), "by owners, in and out"),
        ("largest over mean", number(owners["max_over_mean"] if owners else None), "1 is even"),
        ("p99 latency", micros(latency["p99_us"] if latency else None), "receipt to hand-over"),
        ("dropped", number(summary["dropped"]), "for all reasons"),
    ]
    drawn = [
        tag("div", [tag("span", name), tag("b", value), tag("small", hint)], class_="tile")
        for name, value, hint in tiles
    ]
    return tag(
        "header", [tag("h1", "Load of the network"), tag("p", looked_at), tag("div", drawn, class_="tiles")]
    )


def of_measurement(tables: Tables) -> list[Section]:
    """All sections of what was measured. One without data says so."""
    makers: Sequence[Callable[[Tables], Section | None]] = (
        _load_over_time,
        _imbalance,
        _hierarchy,
        _hot_topics,
        _latency,
        _drops,
        _fan_out,
        _cost,
    )
    return [section for make in makers if (section := make(tables)) is not None]


def of_files(summary: Mapping[str, Any], tables: Tables) -> list[Section]:
    """What was not read, and whether the books agree."""
    wrong = [row for row in tables["accounts"] if not row["agrees"]]
    agree = (
        "What each process counts and what its topics add up to agree."
        if not wrong
        else f"Of {len(wrong)} processes the counters and the sums of topics differ: files are missing."
    )
    skipped = summary["skipped"]
    lead = f"{agree} {len(skipped)} files were skipped." if skipped else f"{agree} No file was skipped."
    parts: list[Markup] = []
    if wrong:
        body: list[list[Content]] = [
            [row["node"], number(row["messages_in"], 6), number(row["topics_messages_in"], 6)]
            for row in wrong
        ]
        parts.append(_table(["node", "messages in", "by topics"], body))
    if skipped:
        parts.append(_table(["file", "reason"], [[f["path"], f["reason"]] for f in skipped], numbers=False))
    return [Section("Files", lead, parts)]


def _load_over_time(tables: Tables) -> Section:
    rows = tables["node_load"]
    owners = sorted((r for r in tables["nodes"] if r["role"] == "node"), key=lambda r: -r["load"])
    times = sorted({row["window_start"] for row in rows})
    maps: list[Markup] = []
    for role, title in _ROLES.items():
        order = [r["node"] for r in sorted(tables["nodes"], key=lambda r: -r["load"]) if r["role"] == role]
        if order:
            maps.extend(_heat_maps(title, [r for r in rows if r["role"] == role], order, times))
    lead = "No owner wrote anything."
    if owners:
        top = owners[0]
        lead = (
            f"{top['node']} carried {percent(top['share'])} of the owners' load; "
            f"an even share would be {percent(1 / len(owners))}."
        )
    left_out = max(0, len(owners) - _NODES_SHOWN)
    note = (
        f"The {_NODES_SHOWN} nodes with the largest load; {left_out} more are in node_load.csv."
        if left_out
        else ""
    )
    return Section("Load of each node over time", lead, tag("div", maps, class_="pairs"), note)


def _heat_maps(title: str, rows: Rows, order: Sequence[str], times: Sequence[datetime]) -> list[Markup]:
    shown = order[:_NODES_SHOWN]
    place = {time: index for index, time in enumerate(times)}
    peak = max((row["load"] / row["seconds"] for row in rows if row["seconds"]), default=0) or 1

    def cells(node: str, level: Callable[[Row], float | None]) -> list[charts.Cell]:
        return [
            charts.Cell(place[row["window_start"]], level(row) or 0.0, _tip_of_window(row))
            for row in rows
            if row["node"] == node
        ]

    def rate(row: Row) -> float | None:
        return row["load"] / row["seconds"] / peak if row["seconds"] else None

    figures: tuple[tuple[str, Callable[[Row], float | None], str], ...] = (
        ("messages handled", rate, f"{number(peak)} /s"),
        ("CPU of the workers", lambda row: row["busy"], "100%"),
    )
    return [
        tag(
            "figure",
            [
                tag("figcaption", f"{title}: {name}"),
                charts.heat_map({node: cells(node, level) for node in shown}, len(times), times),
                charts.heat_legend("0", high),
            ],
        )
        for name, level, high in figures
    ]


def _tip_of_window(row: Row) -> str:
    rate = row["load"] / row["seconds"] if row["seconds"] else None
    return (
        f"{row['node']} at {moment(row['window_start'])}: {number(rate)} messages/s, "
        f"{percent(row['share'])} of all; CPU {percent(row['busy'])}"
    )


def _imbalance(tables: Tables) -> Section:
    rows = tables["imbalance"]
    names = {
        "nodes": "nodes",
        "max_over_mean": "largest / mean",
        "variation": "variation",
        "gini": "Gini",
        "jain": "Jain",
    }
    body: list[list[Content]] = [
        [_title(row["role"]), *(number(row[name]) for name in names)]
        for row in sorted(rows, key=lambda row: row["role"] != "node")
    ]
    curves = {
        title: [row["cumulative_share"] or 0.0 for row in tables["nodes"] if row["role"] == role]
        for role, title in _ROLES.items()
        if any(row["role"] == role for row in tables["nodes"])
    }
    owners = _of(rows, "node")
    lead = "There was no load."
    if owners and owners["max_over_mean"]:
        lead = (
            f"The busiest owner handled {number(owners['max_over_mean'])} times the mean "
            f"(Gini {number(owners['gini'])}; 0 is even)."
        )
    figures = [
        tag("figure", [tag("figcaption", "Lorenz curve of the load"), charts.lorenz(curves)]),
        tag("figure", [tag("figcaption", "Largest over mean, over time"), _imbalance_lines(tables)]),
    ]
    note = (
        "Variation is standard deviation over mean. Gini is twice the shaded area: 0 is even, near 1 is all "
        "on one. Jain is 1 where even, 1/n where all is on one of n."
    )
    table = _table(["", *names.values()], body)
    return Section("How uneven it is", lead, [table, tag("div", figures, class_="pairs")], note)


def _title(role: str) -> str:
    return _ROLES.get(role, role)


def _imbalance_lines(tables: Tables) -> Markup:
    rows = tables["imbalance_over_time"]
    highest = max((row["max_over_mean"] or 1.0 for row in rows), default=1.0)
    top = max(2, -(-int(highest * 2 + 1) // 2))
    step = max(1, top // 4)
    ticks = [(float(value), str(value)) for value in range(1, top + step, step)]
    return _over_time(rows, {title: (role, "max_over_mean") for role, title in _ROLES.items()}, ticks)


def _over_time(
    rows: Rows, lines: Mapping[str, tuple[str, str]], ticks: Sequence[tuple[float, str]], *, log: bool = False
) -> Markup:
    times = sorted({row["window_start"] for row in rows})
    if not times:
        return tag("p", "nothing was measured", class_="none")
    width = max(1, len(times) - 1)
    drawn = []
    for name, (role, column) in lines.items():
        values = {row["window_start"]: row[column] for row in rows if row["role"] == role}
        if values:
            points = [(index / width, values.get(time)) for index, time in enumerate(times)]
            drawn.append(charts.Line(name, points))
    return charts.lines_over_time(drawn, times, ticks, log=log)


def _hierarchy(tables: Tables) -> Section | None:
    figures: list[Markup] = []
    for role, title in _ROLES.items():
        rows = [row for row in tables["subtrees"] if row["role"] == role]
        if rows:
            nodes = main_nodes(rows, COLOURS)
            figures.append(
                tag(
                    "figure",
                    [
                        tag("figcaption", f"{title}: subtrees by load"),
                        charts.icicle(icicle_of(rows, nodes)),
                        charts.key([*((name, index) for name, index in nodes.items()), ("others", COLOURS)]),
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


def _hottest_by_depth(rows: Rows) -> list[Markup]:
    """A short ranking for each depth, of the owners' load."""
    shown: list[Markup] = []
    for depth in sorted({row["depth"] for row in rows if row["role"] == "node"}):
        of_depth = [row for row in rows if row["role"] == "node" and row["depth"] == depth][:5]
        largest = of_depth[0]["share"] or 1
        body = [
            [row["subtree"] or "(empty)", charts.bar((row["share"] or 0) / largest, percent(row["share"]))]
            for row in of_depth
        ]
        shown.append(tag("div", [tag("h3", f"depth {depth}"), _table(None, body)]))
    return shown


def _hot_topics(tables: Tables) -> Section | None:
    rows = [row for row in tables["hot_topics"] if row["role"] == "node"][:_LISTED]
    if not rows:
        return None
    largest = rows[0]["share"] or 1
    body = [
        [
            row["topic"],
            charts.bar((row["share"] or 0) / largest, percent(row["share"])),
            number(row["messages_in"]),
            number(row["messages_out"]),
            number(row["fan_out"]),
            row["main_node"],
        ]
        for row in rows
    ]
    part = sum(row["share"] or 0 for row in rows)
    lead = f"The first {len(rows)} topics make {percent(part)} of the owners' load."
    header = ["topic", "share", "in", "out", "out / in", "node"]
    return Section("Hottest topics", lead, _table(header, body), "More are in hot_topics.csv.")


def _latency(tables: Tables) -> Section:
    rows = [row for row in tables["latency"] if row["node"] is not None]
    if not rows:
        return Section("Latency", "No latency was measured.", [])
    names = ("p50_us", "p90_us", "p99_us", "p999_us")
    low = _tick_below(min(row["p50_us"] for row in rows))
    high = _tick_above(max(row["p999_us"] for row in rows))
    rows = sorted(rows, key=lambda row: (row["role"] != "node", -row["p99_us"]))[:_NODES_SHOWN]
    body = [
        [
            row["node"],
            charts.span_on_scale(
                [(row[name], f"{row['node']}: {_percentile(name)} {micros(row[name])}") for name in names],
                low,
                high,
            ),
            *(micros(row[name]) for name in names),
        ]
        for row in rows
    ]
    ticks = [(float(t), micros(t)) for t in _LATENCY_TICKS if low <= t <= high]
    worst = rows[0]
    p99 = micros(worst["p99_us"])
    lead = f"The slowest node is {worst['node']}: one message in a hundred takes {p99} or more."
    over_time = _over_time(
        tables["latency_over_time"], {"p50": ("node", "p50_us"), "p99": ("node", "p99_us")}, ticks, log=True
    )
    figure = tag("figure", [tag("figcaption", "Owners: p50 and p99 over time"), over_time])
    scale = f"{micros(low)} to {micros(high)}"
    table = _table(["node", scale, *(_percentile(name) for name in names)], body)
    note = (
        "From receipt to the first hand-over to a socket, by histograms: off by 9.1% at most. "
        "The points are p50, p90, p99 and p99.9."
    )
    return Section("Latency", lead, [table, figure], note)


def _percentile(name: str) -> str:
    return name.removesuffix("_us").replace("p999", "p99.9")


def _tick_below(value: float) -> float:
    return float(max((tick for tick in _LATENCY_TICKS if tick <= value), default=_LATENCY_TICKS[0]))


def _tick_above(value: float) -> float:
    return float(min((tick for tick in _LATENCY_TICKS if tick > value), default=_LATENCY_TICKS[-1] * 10))


def _drops(tables: Tables) -> Section:
    sums: dict[tuple[str, str], int] = {}
    for row in tables["drops"]:
        key = (row["node"], row["reason"])
        sums[key] = sums.get(key, 0) + row["dropped"]
    if not sums:
        return Section("Drops", "Nothing was dropped.", [])
    ranked = sorted(sums.items(), key=lambda item: -item[1])
    largest = ranked[0][1]
    body = [
        [node, reason, charts.bar(count / largest, number(count, 6), "bad")]
        for (node, reason), count in ranked[:_LISTED]
    ]
    total = sum(sums.values())
    (node, reason), count = ranked[0]
    lead = f"{number(total, 6)} were dropped; most by {node}: {number(count, 6)} as {reason}."
    return Section("Drops", lead, _table(["node", "reason", "dropped"], body, numbers=False))


def _fan_out(tables: Tables) -> Section | None:
    rows = [row for row in tables["fan_out"] if row["role"] == "node"]
    if not rows:
        return None
    largest = max(row["topics"] for row in rows)
    entries = [(_edges(row), row["topics"] / largest, _tip_of_fan_out(row)) for row in rows]
    taken, handed = (sum(row[name] for row in rows) for name in ("messages_in", "messages_out"))
    mean = f"{number(handed / taken)} copies" if taken else "No copies"
    figure = tag("figure", [tag("figcaption", "topics by copies for each message"), charts.columns(entries)])
    return Section("Fan-out", f"{mean} of each message, in the mean.", figure)


def _tip_of_fan_out(row: Row) -> str:
    messages = f"{number(row['messages_in'])} messages in, {number(row['messages_out'])} out"
    return f"{number(row['topics'])} topics, {messages}"


def _edges(row: Row) -> str:
    if row["at_most"] is None:
        return f"> {number(row['above'])}"
    if not row["at_most"]:
        return "none"
    return f"≤ {number(row['at_most'])}"


def _cost(tables: Tables) -> Section:
    costs = {(row["role"], row["node"]): row for row in tables["cost"]}
    outlooks = tables["forecast"]
    body = []
    ordered = sorted(outlooks, key=lambda row: (row["role"] != "node", -(row["busy"] or 0)))
    for row in ordered[:_NODES_SHOWN]:
        cost = costs.get((row["role"], row["node"]), {})
        when = moment(row["saturates_at"]) if row["saturates_at"] else ""
        body.append(
            [
                row["node"],
                charts.bar(row["busy"] or 0, percent(row["busy"]), "hot" if (row["busy"] or 0) > 0.8 else ""),
                number(row["load_rate"]),
                number(row["capacity"]),
                number(cost.get("in_us")),
                number(cost.get("out_us")),
                number(cost.get("r2"), 2),
                tag("span", f"{_REASONS[row['outlook']]} {when}".strip(), class_=f"badge {row['outlook']}"),
            ]
        )
    soon = sorted((row for row in outlooks if row["saturates_at"]), key=lambda row: row["saturates_at"])
    lead = "No node will be saturated within ten times of what was observed."
    if soon:
        when = moment(soon[0]["saturates_at"])
        lead = f"If it goes on like this, {soon[0]['node']} is saturated at {when} UTC."
    header = ["node", "CPU", "messages/s", "at most", "µs in", "µs out", "R²", "outlook"]
    note = (
        "CPU time of a message taken over (in) and of a copy handed on (out), by regression; R² is how much "
        "of the CPU time that explains. The outlook is a straight line: it knows nothing of day and night."
    )
    return Section("What a message costs, and how long it will do", lead, _table(header, body), note)


def _table(
    header: Sequence[str] | None, body: Sequence[Sequence[Content]], *, numbers: bool = True
) -> Markup:
    """A table that scrolls by itself where it is too wide; figures to the right."""

    def cell(content: Content, index: int) -> Markup:
        is_figure = numbers and index > 0 and not isinstance(content, Markup)
        return tag("td", content, class_="figure" if is_figure else None)

    rows = [tag("tr", [cell(content, i) for i, content in enumerate(row)]) for row in body]
    head = tag("thead", tag("tr", [tag("th", name) for name in header])) if header else Markup("")
    return tag("div", tag("table", [head, tag("tbody", rows)]), class_="table")


def _of(rows: Rows, role: str) -> Row | None:
    return next((row for row in rows if row["role"] == role), None)
