"""The sections of the report, in the order of a reader's questions: is the load uneven, where is it, what
does it cost, and when will it be too much?

Owners come first, and alone wherever their load is compared. Gateways are shown beside them, and never added.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .markup import Content, Markup, micros, moment, number, size, tag
from .places import hierarchy, hot_topics
from .rows import Section, Tables, of_role, table
from .service import cost, drops, fan_out, latency
from .spread import imbalance, load_over_time
from .timeline import Timeline


def header(summary: Mapping[str, Any], tables: Tables) -> Markup:
    """Title, what was analysed, and the most important figures."""
    begin, end = (datetime.fromisoformat(summary[name]) for name in ("begin", "end"))
    looked_at = (
        f"{moment(begin)} to {moment(end)} UTC, in windows of {summary['window_s']} s; "
        f"{number(summary['rows']['topics'])} rows of topics from {summary['files']} files. {_runs(summary)}"
    )
    owners = of_role(tables["imbalance"], "node")
    latency = of_role([row for row in tables["latency"] if row["node"] is None], "node")
    of_owners = [row for row in tables["nodes"] if row["role"] == "node"]
    handled, payload, load = (
        sum(row[name] for row in of_owners for name in names)
        for names in (("whole_in", "whole_out"), ("bytes_in", "bytes_out"), ("load",))
    )
    in_parts = f"; {number(load)} with each part of large ones" if load > handled else ""
    tiles = [
        ("messages handled", number(handled), f"by owners, in and out{in_parts}"),
        ("payload", size(payload), "of these, in and out"),
        ("largest over mean", number(owners["max_over_mean"] if owners else None), "1 is even"),
        ("p99 latency", micros(latency["p99_us"] if latency else None), "receipt to hand-over"),
        ("messages lost", number(summary["lost"]), "taken, and not delivered"),
    ]
    drawn = [
        tag("div", [tag("span", name), tag("b", value), tag("small", hint)], class_="tile")
        for name, value, hint in tiles
    ]
    return tag(
        "header", [tag("h1", "Load of the network"), tag("p", looked_at), tag("div", drawn, class_="tiles")]
    )


def _runs(summary: Mapping[str, Any]) -> str:
    """The number of runs that were analysed, and of those that were not."""
    taken, others = len(summary["runs"]), len(summary["left_out"])
    reported = "Of one run of the network" if taken == 1 else f"Of {taken} runs of the network, taken for one"
    if not others:
        return f"{reported}."
    return f"{reported}; {others} {'others' if others > 1 else 'other'} in the same directory left out."


def of_measurement(summary: Mapping[str, Any], tables: Tables) -> list[Section]:
    """All sections of the measurement. A section without data says so, or is omitted."""
    timeline = Timeline.of(tables["node_load"], summary["window_s"])
    made = (
        load_over_time(tables, timeline),
        imbalance(tables, timeline),
        hierarchy(tables),
        hot_topics(tables),
        latency(tables, timeline),
        drops(tables),
        fan_out(tables),
        cost(tables),
    )
    return [section for section in made if section is not None]


def of_files(summary: Mapping[str, Any], tables: Tables) -> list[Section]:
    """The section about skipped files, and about counters that do not agree."""
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
            [row["node"], f"{row['messages_in']:,}", f"{row['topics_messages_in']:,}"] for row in wrong
        ]
        parts.append(table(["node", "messages in", "by topics"], body))
    if skipped:
        parts.append(table(["file", "reason"], [[f["path"], f["reason"]] for f in skipped], texts=(0, 1)))
    return [Section("Files", lead, parts)]
