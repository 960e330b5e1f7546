"""What is in a store, and whether it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hbroker._native import StoppedStore, verify_store
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.output import print_json, print_table
from hbroker.runtime.node.state_files import NodeStateFiles

__all__ = ["clients_of", "info", "state_files_of", "verify"]

_COLUMNS: Final = ("client", "session", "messages", "bytes")


def info(directory: Path, as_json: bool) -> int:
    """Prints which sessions have messages in a store. Raises OSError."""
    store = StoppedStore(str(directory))
    queues, retained = store.queues(), store.retained
    queues.sort(key=lambda queue: -queue[2])
    clients = clients_of(directory)  # Not before it is known that no node runs.
    sessions = [
        {"session": f"{session:016x}", "client": clients.get(session, ""), "messages": count, "bytes": size}
        for session, count, size in queues
        if count
    ]
    on_disk = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    if as_json:
        print_json(
            {
                "directory": str(directory),
                "bytes_on_disk": on_disk,
                "retained": retained,
                "sessions": sessions,
            }
        )
        return DONE
    messages = sum(count for _, count, _ in queues)
    print(
        f"{messages:,} messages for {len(sessions):,} sessions; {retained:,} retained messages; "
        f"{on_disk:,} bytes on disk"
    )
    if sessions:
        rows = [[str(session[name]) for name in _COLUMNS] for session in sessions]
        print_table(_COLUMNS, rows, numbers=("messages", "bytes"))
    return DONE


def verify(directory: Path, as_json: bool) -> int:
    """Prints what is damaged in a store. Raises OSError."""
    segments = verify_store(str(directory))
    damage = [
        {"file": file, "offset": offset, "promised": promised}
        for file, *_, damaged in segments
        for offset, promised in damaged
    ]
    is_damaged = any(place["promised"] for place in damage)
    if as_json:
        names = ("file", "bytes", "records", "messages")
        parts = [dict(zip(names, segment, strict=False)) for segment in segments]
        print_json({"directory": str(directory), "segments": parts, "damage": damage})
        return FAILED if is_damaged else DONE
    rows = [(file, size, records, messages) for file, size, records, messages, _ in segments]
    print_table(("file", "bytes", "records", "messages"), rows, numbers=("bytes", "records", "messages"))
    for place in damage:
        what = "damaged" if place["promised"] else "the end is torn, or is being written"
        print(f"{directory / 'log' / str(place['file'])}: offset {place['offset']}: {what}")
    if not damage:
        print("every record is intact")
    return FAILED if is_damaged else DONE


def clients_of(directory: Path) -> dict[int, str]:
    """The client ids of the sessions in the state files beside a store; empty: it has none."""
    if directory.suffix != ".store":
        return {}
    restored = state_files_of(directory).read()
    return {session.session: session.client for session in restored.sessions.values()}


def state_files_of(directory: Path) -> NodeStateFiles:
    """The state files of the node whose store this is."""
    return NodeStateFiles(directory.with_suffix(""), [])
