"""How large stores behave: `python -m bench.stores`.

Two stores are filled with messages of 64 bytes for a thousand sessions, half of them in both. Measured are,
each in a process of its own: opening one of them, reading the first message of a session, and merging both,
with the memory that each takes.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from hbroker._native import StoppedStore, merge_stores
from hbroker._proto import packet_pb2 as pb

_SESSIONS: Final = 1_000
_PUBLISHERS: Final = 8
_FIRST: Final = 1 << 21
"""The first sequence, so that all of them have four bytes."""
_AT_US: Final = 1_700_000_000_000_000
_DELIVERY: Final = b"\1"
"""QoS 1, to the session itself."""
_MEMORY: Final = 128 << 20
"""The bytes that a merge may use for the numbers of messages."""


def fill(folder: Path, first: int, count: int) -> dict[str, float]:
    """Fills a store with the messages of these numbers. Each waits for one session."""
    store, began = StoppedStore(str(folder)), time.monotonic()
    parts = [_template(publisher) for publisher in range(1, _PUBLISHERS + 1)]
    add, pack = store.add, struct.Struct("<I").pack
    for number in range(first, first + count):
        before, behind = parts[number % _PUBLISHERS]
        n = _FIRST + number // _PUBLISHERS
        sequence = pack(n & 127 | (n & 0x3F80) << 1 | (n & 0x1FC000) << 2 | (n & 0xFE00000) << 3 | 0x808080)
        add(1 + number % _SESSIONS, None, _DELIVERY, before + sequence + behind)
    store.finish()
    return {"messages": count, "s": time.monotonic() - began, "bytes": _bytes_of(folder)}


def open_and_read(folder: Path) -> dict[str, float]:
    """Opens a store, and reads the first messages of sessions."""
    began = time.monotonic()
    store = StoppedStore(str(folder))
    took, times = time.monotonic() - began, []
    for session in range(1, 101):
        began = time.monotonic()
        messages, _, _ = store.read(session, 0, 1)
        assert len(messages) == 1
        times.append(time.monotonic() - began)
    return {"s": took, "first_read_ms": times[0] * 1e3, "worst_read_ms": max(times) * 1e3}


def merge(first: Path, second: Path, into: Path) -> dict[str, float]:
    """Merges two stores."""
    stores = StoppedStore(str(first)), StoppedStore(str(second))
    began = time.monotonic()
    waiting, common, settled, disordered, _, damage = merge_stores(
        *stores, StoppedStore(str(into)), _MEMORY, lambda _: None
    )
    assert damage == ([], []) or list(damage) == [[], []]
    return {
        "s": time.monotonic() - began,
        "waiting": waiting,
        "common": common,
        "settled": settled,
        "disordered": disordered,
    }


def _template(publisher: int) -> tuple[bytes, bytes]:
    """A message's field before and behind its sequence."""
    publish = pb.Publish(
        topic=f"bench/{publisher}",
        payload=bytes(64),
        publisher=publisher,
        sequence=_FIRST,
        qos=pb.Qos.Name(1),
        published_at_us=_AT_US,
    )
    field = pb.Packet(publish=publish).SerializeToString()
    before, _, behind = field.partition(b"\x80\x80\x80\x01")
    return before, behind


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _apart(step: str, *arguments: object) -> dict[str, Any]:
    """Does a step in a process of its own. Also returns its memory at most, and its CPU time."""
    command = [sys.executable, "-m", "bench.stores", "--step", step, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


_STEPS: Final[dict[str, Callable[..., dict[str, float]]]] = {
    "fill": lambda folder, first, count: fill(Path(folder), int(first), int(count)),
    "open": lambda folder: open_and_read(Path(folder)),
    "merge": lambda first, second, into: merge(Path(first), Path(second), Path(into)),
}


@click.command(help=__doc__)
@click.option("--messages", default=30_000_000, show_default=True, help="messages in each of the two stores")
@click.option("--step", hidden=True)
@click.argument("arguments", nargs=-1)
def main(messages: int, step: str | None, arguments: tuple[str, ...]) -> None:
    if step is not None:
        found = _STEPS[step](*arguments)
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({**found, "mib": used.ru_maxrss / 1024, "cpu_s": used.ru_utime + used.ru_stime}))
        return
    console = Console(stderr=True)
    with TemporaryDirectory(dir=Path.cwd()) as directory:
        first, second, both = (Path(directory) / name for name in ("first", "second", "both"))
        table = Table("", "seconds", "CPU-seconds", "MiB", "")
        for name, step_name, step_arguments in (
            ("fill the first", "fill", (first, 0, messages)),
            ("fill the second", "fill", (second, messages // 2, messages)),
            ("open the first, and read", "open", (first,)),
            ("merge both", "merge", (first, second, both)),
            ("open what was merged, and read", "open", (both,)),
        ):
            console.print(name, style="dim")
            found = _apart(step_name, *step_arguments)
            rest = {k: round(v, 1) for k, v in found.items() if k not in ("s", "cpu_s", "mib")}
            table.add_row(
                name, f"{found['s']:.1f}", f"{found['cpu_s']:.1f}", f"{found['mib']:.0f}", str(rest)
            )
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
