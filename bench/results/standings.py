"""The results of a contest: tables, goals, a chart, and the files that hold them.

The figures are in docs/benchmarks.md between two markers, and beside it as JSON and SVG. The rest of the page
is written by hand; what is between the markers is only written by this module.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from bench.results.chart import Panel, Point, dots
from bench.results.goals import GOALS, Figures, GoalResult, Quantity, judge
from bench.results.report import as_json, as_text, load_of
from bench.series import Series, Spread

_DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = _DOCS / "benchmarks.md"
FIGURES: Final = _DOCS / "figures"


@dataclass(frozen=True, slots=True)
class Standings:
    """The results of one run. `left_out`: what was not measured, and why. `command`: the command line."""

    series: Sequence[Series]
    left_out: Sequence[str]
    command: str

    def as_json(self) -> dict[str, Any]:
        """Every round, and the goals."""
        goals = [{**asdict(one.goal), "found": one.found, "held": one.is_held} for one in self.goal_results()]
        return {"command": self.command, **as_json(self.series, self.left_out), "goals": goals}

    def as_text(self) -> str:
        """The results in Markdown."""
        goals = "\n".join(f"- {goal_result}" for goal_result in self.goal_results())
        return f"`{self.command}`\n\n{as_text(self.series, self.left_out)}\n\nGoals:\n\n{goals}"

    def as_svg(self) -> str:
        """Medians and extremes, a panel for each load."""
        loads = dict.fromkeys(one.plan for one in self.series)
        return dots([_panel([one for one in self.series if one.plan == plan]) for plan in loads])

    def goal_results(self) -> list[GoalResult]:
        """The results of all goals."""
        return judge(_figures(self.series), GOALS)


def publish(standings: Standings) -> None:
    """Writes the results into the files. Raises ValueError if the page has no markers."""
    text = f"{standings.as_text()}\n\n![Medians and extremes of all rounds](figures/peers.svg)"
    page = with_section(PAGE.read_text("utf-8"), "peers", text)
    FIGURES.mkdir(exist_ok=True)
    (FIGURES / "peers.json").write_text(json.dumps(standings.as_json(), indent=1) + "\n", "utf-8")
    (FIGURES / "peers.svg").write_text(standings.as_svg(), "utf-8")
    PAGE.write_text(page, "utf-8")


def with_section(page: str, name: str, text: str) -> str:
    """The page with this text between the markers of that name. Raises ValueError if there are none."""
    first, last = (f"<!-- {mark} {name} -->" for mark in ("begin", "end"))
    before, found_first, rest = page.partition(first)
    _, found_last, after = rest.partition(last)
    if not (found_first and found_last):
        raise ValueError(f"the page has no {first} and {last}")
    return f"{before}{first}\n\n{text}\n\n{last}{after}"


def _figures(series: Sequence[Series]) -> Figures:
    found: dict[tuple[str, str, Quantity], float] = {}
    for one in series:
        load, name = load_of(one.plan), one.contestant.name
        if (rate := one.spread(attrgetter("delivered_per_cpu_s"))) is not None:
            found[load, name, "delivered_per_cpu_s"] = rate.median
        for quantity in _PERCENTILES:
            if (time := _percentile(one, quantity)) is not None:
                found[load, name, quantity] = time.median
    return found


_PERCENTILES: Final[tuple[Quantity, ...]] = ("p50", "p99")


def _percentile(one: Series, name: str) -> Spread | None:
    times = [round.latency_us[name] for round in one.quiet if round.latency_us is not None]
    return Spread.of(times) if times else None


def _panel(series: Sequence[Series]) -> Panel:
    plan = series[0].plan
    if plan.rate is None:
        unit = "messages for each CPU-second of the broker"
        points = [(one, "", one.spread(attrgetter("delivered_per_cpu_s"))) for one in series]
    else:
        unit = "microseconds"
        points = [(one, f", {name}", _percentile(one, name)) for one in series for name in _PERCENTILES]
    return Panel(
        title=load_of(plan),
        unit=unit,
        points=[Point(one.contestant.name + note, found) for one, note, found in points if found is not None],
    )
