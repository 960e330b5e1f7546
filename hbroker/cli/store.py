"""`hbroker store`: shows or verifies what a node has on disk for its sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from hbroker.cli.commands import command
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.flags import PATH

_TEXT: Final = """\
Shows or verifies the store of a node whose durability is `fsync` or `os`. DIR is its folder: the
node's state file with `.store` behind its name. `hbroker up` has it as
STATE_DIR/TOPOLOGY/NODE.cuts.store.

  info     which sessions have messages there, how many, and about how many bytes; and
           how many messages are retained (each fragment of a large one counts).
           The node must not run. As at its start, a torn end of the log is cut off.
  verify   reads every record, and compares its checksum. Nothing is changed; the node may run.

examples:
  hbroker store info .hbroker/home/root.cuts.store
  hbroker store verify --json /var/lib/hbroker/kitchen.store

exit codes: 0 done, 1 damage was found or the store cannot be read, 2 there is no store
"""


_COLUMNS: Final = ("client", "session", "messages", "bytes")


@command("store", _TEXT)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
@click.argument("action", type=click.Choice(["info", "verify"]))
@click.argument("directory", metavar="DIR", type=PATH)
def store(action: str, directory: Path, as_json: bool) -> int:
    """Returns 1 if there is damage. Raises BadParameter if there is no store, and OSError."""
    if not (directory / "log").is_dir():
        raise click.BadParameter(f"{directory} is no store: it has no folder `log`")
    return _info(directory, as_json) if action == "info" else _verify(directory, as_json)


def _info(directory: Path, as_json: bool) -> int:
    from hbroker._native import stored_messages
    from hbroker.cli.output import print_json, print_table

    queues, retained = stored_messages(str(directory))
    queues.sort(key=lambda queue: -queue[2])
    clients = _clients_of(directory)  # Not before it is known that no node runs.
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


def _clients_of(directory: Path) -> dict[int, str]:
    """The client ids of the sessions in the state files beside the store."""
    from hbroker.runtime.node.state_files import NodeStateFiles

    files = NodeStateFiles(directory.with_name(directory.name.removesuffix(".store")), [])
    return {session.session: session.client for session in files.read().sessions.values()}


def _verify(directory: Path, as_json: bool) -> int:
    from hbroker._native import verify_store
    from hbroker.cli.output import print_json, print_table

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
