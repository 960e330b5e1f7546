"""The results as text and as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from typing import Any, Final

from bench.plan import Plan
from bench.rounds import Round
from bench.series import Series, Spread
from hbroker.bench.process import cpu_model

_BUSY: Final = 0.85
"""With at least this share of its CPU, a side is the limit; others may use the rest."""


def as_text(series: Sequence[Series], left_out: Sequence[str]) -> str:
    """The tables, and the remarks about them. `left_out`: what was not measured, and why."""
    flat_out = [one for one in series if one.plan.rate is None]
    paced = [one for one in series if one.plan.rate is not None]
    parts = [machine(), "; ".join(_versions(series)), apart_of(series)]
    if flat_out:
        parts.append(table(_FLAT_OUT, [_flat_out_row(one) for one in flat_out]))
    if paced:
        parts.append(table(_PACED, [_paced_row(one) for one in paced]))
    parts.append(faults_of(series))
    parts.extend(_failures(series))
    parts.extend(left_out)
    return "\n\n".join(part for part in parts if part)


def as_json(series: Sequence[Series], left_out: Sequence[str]) -> dict[str, Any]:
    """Everything, with each round. The tables show the medians of the quiet rounds."""
    return {
        "machine": {"cpu": cpu_model(), "cpus": os.cpu_count(), "kernel": platform.release()},
        "left_out": list(left_out),
        "series": [
            {
                "broker": one.contestant.name,
                "version": one.contestant.version(),
                "load": load_of(one.plan),
                "pairs": one.plan.pairs,
                "publishers": one.plan.publishers,
                "subscribers": one.plan.subscribers,
                "qos": one.plan.qos,
                "rate": one.plan.rate,
                "limit": limit_of(one),
                "delivered_per_s": _median(one, "delivered_per_s"),
                "delivered_per_cpu_s": _median(one, "delivered_per_cpu_s"),
                "failures": one.failures,
                "quiet_rounds": [asdict(round) for round in one.quiet],
                "disturbed_rounds": [asdict(round) for round in one.disturbed],
            }
            for one in series
        ],
    }


def load_of(plan: Plan) -> str:
    """A load in a few words."""
    match plan.layout:
        case ("pairs", 1):
            layout = "1 pair"
        case ("pairs", count):
            layout = f"{count} pairs"
        case ("fanin", count):
            layout = f"{count:,} to 1"
        case (_, count):
            layout = f"1 to {count:,}"
    pace = "" if plan.rate is None else f", {plan.rate}/s"
    return f"{layout}, QoS {plan.qos}{pace}"


def progress_line(one: Series, round: Round | None) -> str:
    """A line about one round; None: it failed."""
    if round is None:
        return f"{one.contestant.name}, {load_of(one.plan)}: {one.failures[-1]}"
    rate = f"{_count(round.delivered_per_s)} msg/s, {_count(round.delivered_per_cpu_s)} per CPU-second"
    if round.latency_us is not None:
        rate = f"p50 {round.latency_us['p50']:.0f} µs, p99 {round.latency_us['p99']:.0f} µs"
    apart = "" if round.apart_ns is None else f", the CPUs were {round.apart_ns:.0f} ns apart"
    kept = "" if round in one.quiet else f"; discarded: others used {round.others_cpu:.0%} of a CPU{apart}"
    return f"{one.contestant.name}, {load_of(one.plan)}: {rate}{kept}"


_FLAT_OUT: Final = (
    "broker",
    "load",
    "msg/s",
    "msg/broker CPU-s",
    "broker CPU-s",
    "broker CPU",
    "load CPU",
    "limit",
    "RSS",
    "lost, doubled, disordered",
    "rounds",
)
_PACED: Final = (
    "broker",
    "load",
    "p50 µs",
    "p90 µs",
    "p99 µs",
    "p99.9 µs",
    "broker CPU",
    "load CPU",
    "lost, doubled, disordered",
    "rounds",
)


def _flat_out_row(one: Series) -> list[str]:
    rates = [rate_of(one.spread(attrgetter(name))) for name in _RATES]
    return [
        one.contestant.name,
        load_of(one.plan),
        *rates,
        _seconds(_median(one, "broker_cpu_s")),
        *(percent_of(one, name) for name in _CPUS),
        limit_of(one),
        _mebibytes(_median(one, "broker_rss_bytes")),
        mishaps_of(one),
        rounds_of(one),
    ]


_RATES: Final = ("delivered_per_s", "delivered_per_cpu_s")
_CPUS: Final = ("broker_cpu", "generator_cpu")


def _paced_row(one: Series) -> list[str]:
    def percentile(name: str) -> str:
        found = one.spread(lambda round: (round.latency_us or {}).get(name, float("nan")))
        return "-" if found is None else f"{found.median:.0f} ({found.least:.0f}-{found.most:.0f})"

    names = ("p50", "p90", "p99", "p999")
    busy = [percent_of(one, name) for name in _CPUS]
    name, load = one.contestant.name, load_of(one.plan)
    return [name, load, *map(percentile, names), *busy, mishaps_of(one), rounds_of(one)]


def apart_of(series: Sequence[Series]) -> str:
    """The distances of the CPUs; empty: they were not measured."""
    near, far = (
        [round.apart_ns for round in rounds if round.apart_ns is not None]
        for rounds in (
            [round for one in series for round in one.quiet],
            [round for one in series for round in one.disturbed],
        )
    )
    if not near:
        return ""
    reported = (
        f"From one CPU to the other and back: {min(near):.0f} to {max(near):.0f} ns in rounds that count"
    )
    further = [distance for distance in far if distance > max(near)]
    return reported + (f"; more in {len(further)} others, up to {max(further):.0f}" if further else "")


def faults_of(series: Sequence[Series]) -> str:
    lines = []
    for one in series:
        sums = {name: sum(getattr(round, name) for round in one.all) for name in _FAULTS}
        if any(sums.values()):
            reported = ", ".join(f"{count} {name}" for name, count in sums.items() if count)
            lines.append(f"{one.contestant.name}, {load_of(one.plan)}: {reported}")
    checked = [one for one in series if one.contestant.is_checked]
    delivered = sum(round.delivered for one in checked for round in one.all)
    whole = f"{delivered:,} messages in all rounds"
    return (
        "\n".join((f"{whole}; but:", *lines))
        if lines
        else f"{whole}: none lost, doubled, out of order, damaged"
    )


_FAULTS: Final = ("lost", "duplicated", "disordered", "corrupted", "stalls")


def mishaps_of(one: Series) -> str:
    """Faults of all rounds, also of discarded ones."""
    sums = (sum(getattr(round, name) for round in one.all) for name in ("lost", "duplicated", "disordered"))
    return ", ".join(f"{count:,}" for count in sums) if one.all and one.contestant.is_checked else "-"


def _failures(series: Sequence[Series]) -> list[str]:
    return [
        f"{one.contestant.name}, {load_of(one.plan)}: {len(one.failures)} rounds failed: {one.failures[-1]}"
        for one in series
        if one.failures
    ]


def limit_of(one: Series) -> str:
    """What limited the rate."""
    broker, generator = _median(one, "broker_cpu"), _median(one, "generator_cpu")
    if broker is None or generator is None:
        return "-"
    if broker >= _BUSY:
        return "broker"
    return "load" if generator >= _BUSY else "neither"


def rounds_of(one: Series) -> str:
    return f"{len(one.quiet)} of {len(one.all)}"


def _median(one: Series, name: str) -> float | None:
    spread = one.spread(attrgetter(name))
    return None if spread is None else spread.median


def percent_of(one: Series, name: str) -> str:
    """The median of a share of a CPU."""
    share = _median(one, name)
    return "-" if share is None else f"{share:.0%}"


def rate_of(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    return f"{_count(spread.median)} ({_count(spread.least)}-{_count(spread.most)})"


def _count(value: float) -> str:
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.0f} k"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _mebibytes(size: float | None) -> str:
    return f"{size / 2**20:.0f} MiB" if size else "-"


def _versions(series: Sequence[Series]) -> list[str]:
    return list(dict.fromkeys(f"{one.contestant.name}: {one.contestant.version()}" for one in series))


def machine() -> str:
    """The machine of the measurement."""
    return f"{cpu_model()}, {os.cpu_count()} CPUs, Linux {platform.release()}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns, without empty columns."""
    columns = [column for column in zip(head, *rows, strict=True) if set(column[1:]) != {"-"}]
    head, *rows = lines = list(zip(*columns, strict=True))
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    cells = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join((cells[0], rule, *cells[1:]))
