"""The output of `hbroker bench` for a person."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from hbroker.cli.output import Style, print_table, styled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hbroker.bench.joining import Joined
    from hbroker.bench.measurement import Measured, Percentiles
    from hbroker.bench.resolve import Resolved
    from hbroker.bench.sessions import Sessions

__all__ = ["print_joins", "print_load", "print_look_ups", "print_sessions"]


def print_load(measured: Measured) -> None:
    """Prints the result of a load."""
    print(styled(str(measured.plan), Style.STRONG))
    print()
    _print_lines(_lines(measured))
    _print_times({"latency": measured.latency_us, "sent late by": measured.lateness_us})
    if measured.groups:
        print()
        _print_groups(measured)


def print_sessions(found: Sessions) -> None:
    """Prints the result of idle sessions."""
    print(styled(f"{found.sessions:,} idle sessions over {found.transport}", Style.STRONG))
    print()
    _print_lines(_session_lines(found))


def print_look_ups(found: Resolved) -> None:
    """Prints the result of look-ups."""
    print(styled(f"{found.look_ups:,} look-ups at each depth, then the same from the cache", Style.STRONG))
    print()
    rows = [
        (
            row.depth,
            row.owner,
            *(f"{value:,.0f}" for value in (row.cold_us.p50, row.cold_us.p90, row.cold_us.p99)),
            f"{row.packets_out:.2f}",
            f"{row.packets_in:.2f}",
            f"{row.cached_ns:.0f}",
            row.cached_packets,
        )
        for row in found.depths
    ]
    header = ("DEPTH", "OWNER", "P50 µs", "P90 µs", "P99 µs", "OUT", "IN", "CACHED ns", "PACKETS")
    print_table(header, rows, numbers=[name for name in header if name != "OWNER"])
    print()
    shares = (("nodes", found.broker_cpu), ("load", found.generator_cpu), ("others", found.others_cpu))
    _print_lines((name, f"{share:.0%} of a CPU") for name, share in shares)


def print_joins(found: Joined) -> None:
    """Prints the result of nodes that joined."""
    print(styled(f"{found.nodes:,} nodes join a root, {found.at_once:,} at one time", Style.STRONG))
    print()
    _print_lines(_join_lines(found))
    _print_times({"from JOIN to serving": found.join_us})


def _print_times(times: Mapping[str, Percentiles | None]) -> None:
    rows = [
        (name, *(f"{value:,.0f}" for value in asdict(percentiles).values()))
        for name, percentiles in times.items()
        if percentiles is not None
    ]
    if rows:
        header = ("MICROSECONDS", "P50", "P90", "P99", "P99.9")
        print()
        print_table(header, rows, numbers=header[1:])


def _print_groups(measured: Measured) -> None:
    header = ("GROUP", "MESSAGES/s", "FOR A CPU-s", "P50 µs", "P90 µs", "P99 µs", "P99.9 µs", "LOST")
    rows = []
    for group in measured.groups:
        times = group.latency_us
        reported = ("-",) * 4 if times is None else tuple(f"{value:,.0f}" for value in asdict(times).values())
        cost = "-" if group.delivered_per_cpu_s is None else f"{group.delivered_per_cpu_s:,.0f}"
        rows.append((group.name, f"{group.delivered_per_s:,.0f}", cost, *reported, f"{group.lost:,}"))
    print_table(header, rows, numbers=header[1:])


def _join_lines(found: Joined) -> Iterator[tuple[str, str]]:
    yield "joined", f"{found.joined:,}, {found.joined_per_s:,.0f}/s"
    yield "datagrams of each", f"{found.packets_out:.1f} out, {found.packets_in:.1f} in"
    yield "root", f"{found.root_cpu:.0%} of a CPU, {found.root_cpu_s / found.nodes * 1e3:,.2f} ms for each"
    yield "root's memory", f"{found.root_bytes_each:,.0f} bytes each"
    yield "joining nodes, together", f"{found.generator_cpu:.0%} of a CPU"
    yield "others", f"{found.others_cpu:.0%} of a CPU"


def _session_lines(found: Sessions) -> Iterator[tuple[str, str]]:
    yield "connected", f"{found.connected_per_s:,.0f}/s"
    yield "there in the end", f"{found.alive:,}"
    if found.bytes_each is not None and found.broker_rss_bytes is not None:
        yield "memory", f"{found.bytes_each:,.0f} bytes each, {found.broker_rss_bytes / 2**20:.0f} MiB in all"
    if found.broker_cpu_s is not None:
        yield "broker, to connect", f"{found.broker_cpu_s:.2f} CPU-seconds"
    if found.idle_cpu is not None:
        yield "broker, idle", f"{found.idle_cpu:.1%} of a CPU"
    yield "load generator, idle", f"{found.generator_cpu:.1%} of a CPU"
    if found.others_cpu is not None:
        yield "others", f"{found.others_cpu:.0%} of a CPU"


def _print_lines(lines: Iterable[tuple[str, str]]) -> None:
    for name, value in lines:
        print(f"  {name:<24}{value}")


def _lines(measured: Measured) -> Iterator[tuple[str, str]]:
    yield "delivered", f"{measured.delivered_per_s:,.0f} messages/s for {measured.seconds:.1f} s"
    if measured.delivered_per_cpu_s is not None:
        yield "for each CPU-second", f"{measured.delivered_per_cpu_s:,.0f} messages"
    if measured.broker_cpu is not None and measured.broker_rss_bytes is not None:
        resident = measured.broker_rss_bytes / 2**20
        yield "broker", f"{measured.broker_cpu:.0%} of a CPU, {resident:.0f} MiB"
    else:
        yield "broker", "unknown: name it with --broker-pid"
    yield "load generator", f"{measured.generator_cpu:.0%} of a CPU"
    if measured.others_cpu is not None:
        yield "others", f"{measured.others_cpu:.0%} of a CPU"
    yield "limit", measured.limit
    yield "all in all", f"{measured.sent:,} messages sent, {measured.delivered:,} copies delivered"
    yield "", _faults(measured)


def _faults(measured: Measured) -> str:
    counts = {
        "lost": measured.lost,
        "doubled": measured.duplicated,
        "out of order": measured.disordered,
        "damaged": measured.damaged,
        "refused": measured.refused,
        "stalls": measured.stalls,
    }
    reported = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return reported or "none lost, doubled, out of order or damaged"
