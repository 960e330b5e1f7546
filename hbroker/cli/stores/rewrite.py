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
from hbroker.cli.stores.show import state_file_of

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
    stores = StoppedStore(str(first)), StoppedStore(str(second))
    total = sum(count for store in stores for _, count, _ in store.queues())
    _merge_state(first, second, into)
    try:
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
    except MemoryError as error:
        shutil.rmtree(into)
        raise click.UsageError(f"{error}: give it more than --memory {memory_bytes >> 20}") from None
    for path, store, found in zip((first, second), stores, damage, strict=True):
        for line in (*store.damage, *found):
            print(f"{path / 'log'}: {line}", file=sys.stderr)
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
    return FAILED if any(damage) or any(store.damage for store in stores) else DONE


def _merge_state(first: Path, second: Path, into: Path) -> None:
    """Makes the state files for a merged store, if the stores have some."""
    from hbroker.runtime.node.state_files import NodeStateFiles

    source, target = state_file_of(first), state_file_of(into)
    into.mkdir(parents=True, mode=0o700)
    for file in source.parent.glob(f"{source.name}*"):
        rest = file.name.removeprefix(source.name)
        if file.is_file() and rest in ("", ".claims", ".subscriptions", ".checkpoint"):
            shutil.copy2(file, target.with_name(target.name + rest))
    other = NodeStateFiles(state_file_of(second), []).read()
    NodeStateFiles(target, []).add_sessions(other)
