"""The sections about latency, drops, copies, the cost of a message, and the forecast."""

from __future__ import annotations

from typing import Final

from ..measures.losses import LOSSES, lost
from . import charts
from .markup import Content, micros, moment, number, percent, tag
from .rows import LISTED, NODES_SHOWN, Row, Rows, Section, Tables, table
from .timeline import Timeline

_LATENCY_TICKS: Final = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_REASONS: Final = {"rising": "saturates", "saturated": "saturated", "steady": "steady", "unknown": "not told"}


def latency(tables: Tables, timeline: Timeline) -> Section:
    rows = [row for row in tables["latency"] if row["node"] is not None]
    if not rows:
        return Section("Latency", "No latency was measured.", [])
    names = ("p50_us", "p90_us", "p99_us", "p999_us")
    low = _tick_below(min(row["p50_us"] for row in rows))
    high = _tick_above(max(row["p999_us"] for row in rows))
    rows = sorted(rows, key=lambda row: (row["role"] != "node", -row["p99_us"]))[:NODES_SHOWN]
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
    percentiles = {"p50": ("node", "p50_us"), "p99": ("node", "p99_us")}
    lines = charts.over_time(tables["latency_over_time"], timeline, percentiles, ticks, log=True)
    figure = tag("figure", [tag("figcaption", "Owners: p50 and p99 over time"), lines])
    scale = f"{micros(low)} to {micros(high)}"
    values = table(["node", scale, *(_percentile(name) for name in names)], body)
    note = (
        "From receipt to the first hand-over to a socket, by histograms: off by 9.1% at most. "
        "The points are p50, p90, p99 and p99.9."
    )
    return Section("Latency", lead, [values, figure], note)


def drops(tables: Tables) -> Section:
    sums: dict[tuple[str, str], int] = {}
    for row in tables["drops"]:
        key = (row["node"], row["reason"])
        sums[key] = sums.get(key, 0) + row["dropped"]
    if not sums:
        return Section("Drops", "Nothing was dropped, and no message lost.", [])
    ranked = sorted(sums.items(), key=lambda item: (item[0][1] not in LOSSES, -item[1]))
    largest = max(sums.values())
    body: list[list[Content]] = []
    for (node, reason), count in ranked[:LISTED]:
        is_loss = reason in LOSSES
        bar = charts.bar(count / largest, f"{count:,}", "bad" if is_loss else "")
        body.append([node, reason, "lost" if is_loss else "", bar])
    gone = lost(tables["drops"])
    lead = (
        f"Messages that a node had taken and did not deliver: {number(gone)}. "
        f"The other {number(sum(sums.values()) - gone)} drops are a network at work, such as what came twice."
    )
    return Section("Drops", lead, table(["node", "reason", "", "dropped"], body, texts=(0, 1)))


def fan_out(tables: Tables) -> Section | None:
    rows = [row for row in tables["fan_out"] if row["role"] == "node"]
    if not rows:
        return None
    largest = max(row["topics"] for row in rows)
    entries = [(_edges(row), row["topics"] / largest, _tip_of_fan_out(row)) for row in rows]
    taken, handed = (sum(row[name] for row in rows) for name in ("messages_in", "messages_out"))
    mean = f"{number(handed / taken)} copies" if taken else "No copies"
    figure = tag("figure", [tag("figcaption", "topics by copies for each message"), charts.columns(entries)])
    return Section("Fan-out", f"{mean} of each message, in the mean.", figure)


def cost(tables: Tables) -> Section:
    costs = {(row["role"], row["node"]): row for row in tables["cost"]}
    outlooks = tables["forecast"]
    body = []
    ordered = sorted(outlooks, key=lambda row: (row["role"] != "node", -(row["busy"] or 0)))
    for row in ordered[:NODES_SHOWN]:
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
                _ratio(cost.get("r2")),
                tag("span", f"{_REASONS[row['outlook']]} {when}".strip(), class_=f"badge {row['outlook']}"),
            ]
        )
    header = ["node", "CPU", "load/s", "at most", "µs in", "µs out", "R²", "outlook"]
    note = (
        "CPU time of a message, or part, taken over (in) and handed on (out), by regression; R² is how much "
        "of the CPU time that explains. A dash: it cannot be told, for there was too little load, or too "
        "even, or noise explains as much; then nothing is foretold. The outlook is a straight line: it knows "
        "nothing of day and night. CPU and load are where it ends."
    )
    title = "What a message costs, and how long it will do"
    return Section(title, _outlook(outlooks), table(header, body, texts=(0, 7)), note)


def _outlook(outlooks: Rows) -> str:
    """What is predicted, and for how many nodes nothing is."""
    untold = sum(row["outlook"] == "unknown" for row in outlooks)
    if untold == len(outlooks):
        return "What a message costs cannot be told of any node, so nothing is foretold."
    rest = f" Of {untold} of {len(outlooks)} it cannot be told." if untold else ""
    soon = min(
        (row for row in outlooks if row["saturates_at"]), key=lambda row: row["saturates_at"], default=None
    )
    if soon is not None:
        when = moment(soon["saturates_at"])
        return f"If it goes on like this, {soon['node']} is saturated at {when} UTC.{rest}"
    return f"No node will be saturated within ten times of what was observed.{rest}"


def _percentile(name: str) -> str:
    return name.removesuffix("_us").replace("p999", "p99.9")


def _tick_below(value: float) -> float:
    return float(max((tick for tick in _LATENCY_TICKS if tick <= value), default=_LATENCY_TICKS[0]))


def _tick_above(value: float) -> float:
    return float(min((tick for tick in _LATENCY_TICKS if tick > value), default=_LATENCY_TICKS[-1] * 10))


def _tip_of_fan_out(row: Row) -> str:
    messages = f"{number(row['messages_in'])} messages in, {number(row['messages_out'])} out"
    return f"{number(row['topics'])} topics, {messages}"


def _edges(row: Row) -> str:
    if row["at_most"] is None:
        return f"> {number(row['above'])}"
    if not row["at_most"]:
        return "none"
    return f"{number(row['above'])} to {number(row['at_most'])}"


def _ratio(value: float | None) -> str:
    return number(value) if value is None else f"{value:.3f}"
