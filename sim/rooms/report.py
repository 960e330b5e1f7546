"""The result of a run in words and tables, with columns like those of the other commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from .delivery_counters import CounterSums
from .summary import NodeCounters, Summary, is_clean

__all__ = ["MOST_ROOMS", "Table", "nodes_table", "rooms_table", "summary_lines", "verdict"]

Table: TypeAlias = tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]
"""Header, rows, and the columns that hold numbers."""

MOST_ROOMS: Final = 25
"""Rooms in the table: those with the most messages. `--json` has all."""
LATE_MS: Final = 50.0
BUSY: Final = 0.9

_COUNTS: Final = ("SAID", "RECEIVED", "LOST", "TWICE", "p50 ms", "p99 ms", "max ms")


def summary_lines(summary: Summary) -> list[str]:
    """Lines about the whole run."""
    result, total, plan = summary.result, summary.total, summary.result.plan
    achieved = summary.achieved_per_s / summary.asked_per_s if summary.asked_per_s else 1.0
    late, effort = result.lateness, result.effort
    lines = [
        f"{result.connected} of {plan.devices} devices connected, in {result.connect_s:.1f} s;"
        f" {len(plan.clients)} clients in all, {sum(c.is_native for c in plan.clients)} of them native",
        f"asked {summary.asked_per_s:.1f} messages a second for {result.due_s:.1f} s,"
        f" achieved {summary.achieved_per_s:.1f} ({achieved:.1%})",
        f"said {total.published} of {total.asked} that were due; {total.acknowledged} acknowledged,"
        f" {total.rejected} refused, {total.unanswered} without an answer",
        f"received {total.received} of {total.expected} copies; {total.lost} lost,"
        f" {total.duplicates} came twice, {total.disordered} out of order;"
        f" {total.broken} of them against what is promised",
        f"this process: {effort.busy:.0%} of a processor, its event loop {effort.loop_busy:.0%},"
        f" kept waiting by others for {_share(effort.starved)} of the time",
        f"events fired {_ms(late.quantile(0.5))} ms late (p50), {_ms(late.quantile(0.99))} ms (p99)",
    ]
    troubles = result.troubles
    if troubles.lost_connections or troubles.retried_connections:
        lines.append(
            f"{troubles.lost_connections} connections lost, {troubles.retried_connections} tried again"
        )
    return lines


def verdict(summary: Summary) -> list[str]:
    """Whether the network kept its promises, and what to consider besides: a busy machine makes latencies
    long, but breaks no promise."""
    lines = ["all that is promised was kept"] if is_clean(summary) else []
    if summary.total.broken:
        lines.append(f"{summary.total.broken} messages lost or doubled that should not be")
    if summary.total.rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in summary.result.troubles.refusals.items())
        lines.append(f"{summary.total.rejected} messages were refused: {reasons or 'nobody says why'}")
    if summary.result.troubles.failed:
        lines.append(f"{len(summary.result.troubles.failed)} clients could not connect again")
    late, effort = summary.result.lateness.quantile(0.99) or 0.0, summary.result.effort
    if effort.loop_busy > BUSY:
        lines.append("the simulator itself was the limit: have fewer devices, or a lower --speed")
    elif late > LATE_MS:
        lines.append("events fired late, and latencies are partly this process's: the machine was busy")
    return lines


def rooms_table(summary: Summary) -> Table:
    """A row for each room, those with the most messages."""
    header = ("ROOM", "DEVICES", "SAID/s", *_COUNTS)
    ranked = sorted(summary.rooms.items(), key=lambda item: -item[1].published)
    shown = {room for room, _ in ranked[:MOST_ROOMS]}
    seconds = max(summary.result.effort.seconds, 1e-9)
    rows = [
        (
            room or "-",
            str(summary.devices_by_room.get(room, 0)),
            f"{sums.published / seconds:.1f}",
            *_cells(sums),
        )
        for room, sums in summary.rooms.items()
        if room in shown
    ]
    if len(ranked) > MOST_ROOMS:
        rows.append((f"… and {len(ranked) - MOST_ROOMS} more: --json", *[""] * (len(header) - 1)))
    return header, rows, header[1:]


def nodes_table(summary: Summary, losses: Iterable[str]) -> Table:
    """A row for each node: what devices published to it, beside what it counted.

    `losses`: the reasons of drops of messages that the node had taken in.
    """
    header = ("NODE", "SUBTREE", *_COUNTS, "COUNTED", "OTHERS", "DROPS", "CPU s")
    rows = [
        (
            node.name,
            node.subtree or '""',
            *_cells(node.sums),
            _or_dash(node.messages_in),
            _or_dash(node.others),
            _or_dash(_lost(node, losses)),
            _or_dash(node.cpu_s, "{:.1f}".format),
        )
        for node in summary.nodes
    ]
    return header, rows, header[2:]


def _lost(node: NodeCounters, losses: Iterable[str]) -> int | None:
    """Dropped messages that the node had taken in; None: unknown."""
    if node.messages_in is None:
        return None
    return sum(node.drops.get(reason, 0) for reason in losses)


def _cells(sums: CounterSums) -> Sequence[str]:
    latency = sums.latency
    return (
        str(sums.published),
        str(sums.received),
        str(sums.lost),
        str(sums.duplicates),
        _ms(latency.quantile(0.5)),
        _ms(latency.quantile(0.99)),
        _ms(latency.most / 1000 if latency.count else None),
    )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "an unknown share" if value is None else f"{value:.0%}"


def _or_dash(value: float | None, shown: Callable[[float], str] = str) -> str:
    return "-" if value is None else shown(value)
