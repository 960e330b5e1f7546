"""`python -m bench.growth`: rows as JSON and a plot for each quantity.

`filters` measures the core's own table (`bench.growth.filters`), `width` a simulated network
(`bench.growth.width`). All others are runs of `hbroker bench`, with a new broker each. Each size is measured
once: the trend with the size counts, and the neighbours of a value show its noise. docs/benchmarks.md has the
results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Final, TypeAlias, get_args

import click

from bench.command import write_option
from bench.growth.filters import Kind, measure_filters
from bench.growth.width import measure_width
from bench.results.chart import Curve, lines
from bench.results.report import machine, table
from bench.results.standings import FIGURES, PAGE, with_section
from bench.rounds import told_by
from hbroker.bench.launching import NoAnswer

Row: TypeAlias = dict[str, Any]
Value: TypeAlias = Callable[[Row], float | None]
"""Returns None if the value was too small to measure."""

_PATIENCE_S: Final = 300.0
_ROWS: Final = FIGURES / "growth.json"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A cost that depends on a size.

    `across`: the field with the size. `up`: the title of the cost. `curves`: values of each row; with `by`,
    one curve for each value of that field. `goal_results`: the results of a goal, from the rows.
    """

    title: str
    across: str
    up: str
    rows: Callable[[float], Iterator[Row]]
    curves: dict[str, Value]
    by: str | None = None
    goal_results: Callable[[Sequence[Row]], list[str]] = lambda rows: []

    def plot(self, rows: Sequence[Row]) -> str:
        """The plot as SVG."""
        groups = {row[self.by]: None for row in rows} if self.by else {None: None}
        curves = [
            Curve(
                " ".join(filter(None, (str(group) if self.by else "", name))),
                [
                    (row[self.across], found)
                    for row in rows
                    if (self.by is None or row[self.by] == group) and (found := value(row)) is not None
                ],
            )
            for group, (name, value) in product(groups, self.curves.items())
        ]
        return lines(self.title, self.across, self.up, curves)


def _filters(_: float) -> Iterator[Row]:
    for kind, exponent in product(get_args(Kind), range(1, 7)):
        yield asdict(measure_filters(kind, 10**exponent))


def _topics(duration: float) -> Iterator[Row]:
    for exponent in range(7):
        topics = 10**exponent
        yield _loaded(["pairs", "-n", "1", "--topics", str(topics)], duration, topics=topics)


def _subscribers(duration: float) -> Iterator[Row]:
    for count in (1, 10, 100, 1_000):
        window = max(_LEAST_WINDOW, _COPIES_UNDER_WAY // count)
        flags = ["fanout", "-n", str(count), "--window", str(window)]
        yield {"sockets": "own", **_loaded(flags, duration, subscribers=count)}
    for count in (1_000, 4_000, 16_000, 64_000):
        flags = ["fanout", "-n", str(count), "--window", str(_LEAST_WINDOW)]
        flags += ["--sockets", str(min(_MOST_SOCKETS, count // _OF_A_SOCKET))]
        # With 64,000 subscribers, one window takes seconds.
        long = max(duration, _LEAST_WINDOW * count / _SLOW_PER_S)
        yield {"sockets": "shared", **_loaded(flags, long, warm_up=long / 2, subscribers=count)}


_LEAST_WINDOW: Final = 64
_COPIES_UNDER_WAY: Final = 4_096
_MOST_SOCKETS: Final = 1_000
_OF_A_SOCKET: Final = 4
"""The least number of subscribers on a shared socket."""
_SLOW_PER_S: Final = 400_000
"""Copies a second that are certainly reached."""


def _payloads(duration: float) -> Iterator[Row]:
    for payload in (16, 64, 256, 1_024, 4_096, 16_384, 65_536, 262_144, 1 << 20):
        window = max(_PAIRS, min(4_096, _UNDER_WAY_BYTES // payload))
        flags = ["pairs", "-n", str(_PAIRS), "--payload", str(payload), "--window", str(window)]
        yield _loaded(flags, duration, payload=payload)


_PAIRS: Final = 8
_UNDER_WAY_BYTES: Final = 8 << 20


def _workers(duration: float) -> Iterator[Row]:
    for under_way in (256, 4_096):
        rounds = [[_of_workers(under_way, count, duration) for count in _WORKERS] for _ in range(_ROUNDS)]
        for of_one in zip(*rounds, strict=True):
            yield sorted(of_one, key=lambda row: row["delivered_per_s"])[_ROUNDS // 2]


_WORKERS: Final = (1, 2)
_ROUNDS: Final = 3
"""Several rounds, because the differences are a few per cent."""


def _of_workers(under_way: int, count: int, duration: float) -> Row:
    flags = ["pairs", "-n", str(_PAIRS), "--window", str(under_way), "--workers", str(count)]
    row = _loaded([*flags, "--broker-cpus", "0,1", "--cpus", "0,1"], duration, workers=count)
    return {"load": f"{under_way:,} under way", **row}


def _scaling(rows: Sequence[Row]) -> list[str]:
    """The gain of a second worker, and what it would be without the load on the same CPUs."""
    reported = []
    for one, two in product(rows, rows):
        if (one["load"], one["workers"], two["workers"]) == (two["load"], *_WORKERS):
            gained = two["delivered_per_s"] / one["delivered_per_s"]
            alone = 2 * two["delivered_per_cpu_s"] / one["delivered_per_cpu_s"]
            goal_result = "held" if gained > 1 else "not held"
            reported.append(
                f"- {one['load']}: two workers move more messages a second than one: {gained:.2f} times as "
                f"many: {goal_result}; without the load's share of the CPUs: {alone:.2f}"
            )
    return reported


def _sessions(duration: float) -> Iterator[Row]:
    for count in (100, 1_000, 10_000):
        reported = _bench(["sessions", "-n", str(count), "--duration", str(duration)])
        yield {
            name: reported[name]
            for name in ("sessions", "alive", "bytes_each", "connected_per_s", "idle_cpu")
        }


def _depths(_: float) -> Iterator[Row]:
    for row in _bench(["resolve", "--depth", "8"])["depths"]:
        times = {f"cold_{name}_us": row["cold_us"][name] for name in ("p50", "p99")}
        costs = {name: row[name] for name in ("packets_out", "packets_in", "cached_ns", "cached_packets")}
        yield {"depth": row["depth"] + 1, **times, **costs}


def _tree(duration: float) -> Iterator[Row]:
    for group in _bench(["tree", "--depth", "8", "--duration", str(duration), "--warm-up", "0.5"])["groups"]:
        depth = int(group["name"].rpartition(" ")[2])
        yield {"depth": depth, **{name: group[name] for name in _OF_A_GROUP}}


_OF_A_GROUP: Final = (
    "delivered_per_s",
    "delivered_per_cpu_s",
    "owner_cpu_s",
    "lost",
    "duplicated",
    "disordered",
)


def _widths(_: float) -> Iterator[Row]:
    for children in (1, 10, 100, 300, 1_000):
        yield asdict(measure_width(children))


def _loaded(flags: Sequence[str], duration: float, *, warm_up: float = 0.5, **size: int) -> Row:
    """Runs one load in a closed loop."""
    reported = _bench([*flags, "--duration", str(duration), "--warm-up", str(max(0.5, warm_up))])
    return {**size, **{name: reported[name] for name in _OF_A_LOAD}}


_OF_A_LOAD: Final = (
    "delivered_per_s",
    "delivered_per_cpu_s",
    "broker_cpu",
    "generator_cpu",
    "others_cpu",
    "broker_rss_bytes",
    "lost",
    "duplicated",
    "disordered",
    "limit",
)


def _bench(flags: Sequence[str]) -> Row:
    """The result of `hbroker bench`, also if messages are lost. Raises NoAnswer."""
    command = [sys.executable, "-m", "hbroker", "bench", *flags, "--json"]
    return told_by("hbroker bench", command, _PATIENCE_S)


def _look_ups(rows: Sequence[Row]) -> list[str]:
    """The results for the goal about the cost of a larger table, for working sets of equal size.

    The effect of cache misses, with topics spread over the table, is shown beside it.
    """
    reported = []
    for kind in get_args(Kind):
        of_kind = {row["filters"]: row for row in rows if row["kind"] == kind}
        if _FEW in of_kind and _MANY in of_kind:
            few, many = of_kind[_FEW], of_kind[_MANY]
            worked, spread = (many[name] / max(few[name], 1.0) for name in ("look_up_ns", "spread_ns"))
            goal_result = "held" if worked <= _MOST_TIMES else "not held"
            reported.append(
                f"- {kind}: a look-up among {_MANY:,} filters takes at most {_MOST_TIMES} x that "
                f"among {_FEW:,}, of a working set: {worked:.2f}: {goal_result}; "
                f"spread over the table: {spread:.2f}"
            )
    return reported


_FEW: Final = 1_000
_MANY: Final = 1_000_000
_MOST_TIMES: Final = 2


def _cost(row: Row) -> float | None:
    """Nanoseconds of the broker's CPU time for each copy."""
    rate: float | None = row["delivered_per_cpu_s"]
    return 1e9 / rate if rate else None


def _cost_of_a_kibibyte(row: Row) -> float | None:
    cost = _cost(row)
    return None if cost is None else cost * 1_024 / row["payload"]


QUANTITIES: Final[dict[str, Quantity]] = {
    "filters": Quantity(
        "Finding who wants a message, against the filters that are stored",
        "filters",
        "nanoseconds for each look-up",
        _filters,
        {"working set": lambda row: row["look_up_ns"], "spread": lambda row: row["spread_ns"]},
        by="kind",
        goal_results=_look_ups,
    ),
    "topics": Quantity(
        "1 pair, QoS 0: the cost of a message, against the topics that come in turn",
        "topics",
        "nanoseconds of the broker's CPU for each message",
        _topics,
        {"": _cost},
    ),
    "subscribers": Quantity(
        "One topic, QoS 0: the cost of a copy, against its subscribers",
        "subscribers",
        "nanoseconds of the broker's CPU for each copy",
        _subscribers,
        {"": _cost},
        by="sockets",
    ),
    "payload": Quantity(
        "8 pairs, QoS 0: the cost of a message, against its payload in bytes",
        "payload",
        "nanoseconds of the broker's CPU",
        _payloads,
        {"each message": _cost, "each KiB": _cost_of_a_kibibyte},
    ),
    "workers": Quantity(
        "8 pairs, QoS 0: messages a second, against workers, on all CPUs with the load",
        "workers",
        "messages a second, and for each CPU-second of the broker",
        _workers,
        {"a second": lambda row: row["delivered_per_s"], "a CPU-s": lambda row: row["delivered_per_cpu_s"]},
        by="load",
        goal_results=_scaling,
    ),
    "sessions": Quantity(
        "Idle sessions: the owner's memory for each, against how many there are",
        "sessions",
        "bytes",
        _sessions,
        {"each": lambda row: row["bytes_each"]},
    ),
    "tree": Quantity(
        "A pair at each depth of a chain of nodes, QoS 0: the cost of a message at its owner",
        "depth",
        "nanoseconds of the owner's CPU for each message",
        _tree,
        {"": _cost},
    ),
    "width": Quantity(
        "A root and its children, in the simulated network, against how many there are",
        "children",
        "simulated ms; datagrams at the root, for each child",
        _widths,
        {
            "join, ms": lambda row: row["join_ms"],
            "# at all, ms": lambda row: row["subscribe_ms"],
            "join, datagrams": lambda row: (row["join_in"] + row["join_out"]) / row["children"],
            "lease, datagrams/s": lambda row: row["lease_in_per_s"] / row["children"],
        },
    ),
    "depth": Quantity(
        "Finding a topic's owner, against how deep it lies (1: the root)",
        "depth",
        "nanoseconds",
        _depths,
        {"cold": lambda row: row["cold_p50_us"] * 1e3, "cached": lambda row: row["cached_ns"]},
    ),
}


def _publish(measured: dict[str, list[Row]]) -> None:
    """Writes these results, replacing earlier ones of the same quantities."""
    parts = [machine()]
    FIGURES.mkdir(exist_ok=True)
    kept = json.loads(_ROWS.read_text("utf-8")) if _ROWS.exists() else {}
    found = {name: measured.get(name, kept.get(name, [])) for name in QUANTITIES}
    for name, rows in found.items():
        if rows:
            (FIGURES / f"growth-{name}.svg").write_text(QUANTITIES[name].plot(rows), "utf-8")
            cells = [[_shown(value) for value in row.values()] for row in rows]
            parts += [table(list(rows[0]), cells), f"![{QUANTITIES[name].title}](figures/growth-{name}.svg)"]
            if goal_results := QUANTITIES[name].goal_results(rows):
                parts.append("\n".join(["Goals:", "", *goal_results]))
    _ROWS.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    PAGE.write_text(with_section(PAGE.read_text("utf-8"), "growth", "\n\n".join(parts)), "utf-8")


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@click.command
@click.argument("quantities", nargs=-1, type=click.Choice(list(QUANTITIES)), metavar="[QUANTITY]...")
@click.option("--duration", default=2.0, show_default=True, help="Seconds of each load.")
@click.option("--json", "in_json", is_flag=True, help="Print the rows.")
@write_option
def main(quantities: Sequence[str], duration: float, *, in_json: bool, write: bool) -> None:
    """Measures what things cost against how many there are: these quantities, or all.

    Exit codes: 0 done, 1 a quantity could not be measured.
    """
    found: dict[str, list[Row]] = {}
    code = 0
    for name in quantities or QUANTITIES:
        found[name] = []
        try:
            for row in QUANTITIES[name].rows(duration):
                found[name].append(row)
                print(f"{name}: {json.dumps(row)}", file=sys.stderr, flush=True)
        except NoAnswer as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
    if in_json:
        print(json.dumps(found, indent=1))
    if write:
        _publish(found)
    sys.exit(code)


if __name__ == "__main__":
    main()
