"""Stores that are written anew: compacted, or merged."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from hbroker._native import StoppedStore, merge_stores
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.output import print_json
from hbroker.cli.progress import progress
from hbroker.cli.stores.show import state_files_of

__all__ = ["compact", "merge"]

_STEP = 1 << 20


def compact(directory: Path, *, as_json: bool, is_silent: bool) -> int:
    """Removes what nobody needs any more. Raises OSError."""
    store = StoppedStore(str(directory))
    before = store.log_bytes
    with progress(is_silent=is_silent) as shown:
        shown.say(f"compacts {before:,} bytes")
        store.compact(lambda _: shown.advance())
    after = store.log_bytes
    if as_json:
        print_json({"directory": str(directory), "bytes_before": before, "bytes_after": after})
    else:
        print(f"the log had {before:,} bytes, and has {after:,} bytes now")
    return DONE


def merge(first: Path, second: Path, into: Path, as_json: bool, *, memory_bytes: int, is_silent: bool) -> int:
    """Makes a store of two. Returns 1 if one of them is damaged. Raises UsageError if there is not enough
    memory, and OSError."""
    targets = state_files_of(into).paths
    if existing := [file for file in targets if file.exists()]:
        raise click.BadParameter(f"{existing[0]} exists already")
    stores = StoppedStore(str(first)), StoppedStore(str(second))
    total = sum(count for store in stores for _, count, _ in store.queues())
    try:
        problems = _merge_state(first, second, into)
        with progress(is_silent=is_silent, parts=max(1, total // _STEP)) as shown:
            shown.say(f"merges {total:,} messages that wait")
            parts = iter(range(_STEP, total + _STEP, _STEP))
            due = next(parts, total)

            def note(written: int) -> None:
                nonlocal due
                while written >= due:
                    due = next(parts, 1 << 63)
                    shown.advance()

            waiting, common, settled, disordered, retained, damage = merge_stores(
                *stores, StoppedStore(str(into)), memory_bytes, note
            )
    except BaseException as error:
        shutil.rmtree(into, ignore_errors=True)
        for file in targets:
            file.unlink(missing_ok=True)
        if isinstance(error, MemoryError):
            raise click.UsageError(f"{error}: give it more than --memory {memory_bytes >> 20}") from None
        raise
    for path, store, found in zip((first, second), stores, damage, strict=True):
        problems += [f"{path / 'log'}: {line}" for line in (*store.damage, *found)]
    for line in problems:
        print(line, file=sys.stderr)
    if as_json:
        print_json(
            {
                "directory": str(into),
                "messages": waiting,
                "common": common,
                "settled": settled,
                "disordered": disordered,
                "retained": retained,
            }
        )
    else:
        print(
            f"{waiting:,} messages wait in {into}; {common:,} were in both stores, "
            f"{settled:,} were settled in one; {retained:,} retained messages"
        )
        if disordered:
            print(f"{disordered:,} are not in the order of their publisher: more --memory keeps it")
    return FAILED if problems else DONE


def _merge_state(first: Path, second: Path, into: Path) -> list[str]:
    """Makes the state files for a merged store, if the stores have some. Returns a line for each problem."""
    into.mkdir(parents=True, mode=0o700)
    target = state_files_of(into)
    for file, copy in zip(state_files_of(first).paths, target.paths, strict=True):
        if file.exists():
            shutil.copy2(file, copy)
    other = state_files_of(second).read()
    restored = target.add_sessions(other)
    return [f"state files: {damage}" for found in (restored, other) for damage in found.damage]
