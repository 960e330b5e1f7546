"""The messages of a store as a table, in Parquet or as JSON lines."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.parquet as pq

from hbroker._native import StoppedStore
from hbroker._proto import packet_pb2 as pb
from hbroker.cli.exits import DONE, FAILED
from hbroker.cli.progress import progress
from hbroker.cli.stores.show import clients_of

__all__ = ["SCHEMA", "export", "load"]

SCHEMA: Final = pa.schema(
    [
        pa.field("retained", pa.bool_(), nullable=False),
        pa.field("session", pa.string()),
        pa.field("client", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("qos", pa.int8(), nullable=False),
        pa.field("publisher", pa.string(), nullable=False),
        pa.field("sequence", pa.uint64(), nullable=False),
        pa.field("published_at", pa.timestamp("us", tz="UTC")),
        pa.field("expires", pa.timestamp("us", tz="UTC")),
        pa.field("delivery", pa.binary()),
        pa.field("message", pa.binary(), nullable=False),
    ]
)
"""A row for each message and session, and for each retained message; a large message has one for each
fragment.

`number`: the place in the session's queue. `qos`: at which it was published. `delivery`: how its session
gets it, and `message`: the whole `Publish` with its properties, both as they are in the store; `import` needs
them.
"""

_ROWS: Final = 10_000
_READ_BYTES: Final = 4 << 20
_TIMES: Final = {"published_at": "published_at_us", "expires": "expires_us"}
"""Rows in Python and JSON have microseconds since the Unix epoch."""
_BINARY: Final = ("payload", "delivery", "message")


def export(directory: Path, file: Path, *, is_silent: bool) -> int:
    """Writes all messages of a store to a file. Returns 1 if something is damaged. Raises OSError."""
    store = StoppedStore(str(directory))
    damage = list(store.damage)
    total = sum(count for _, count, _ in store.queues()) + store.retained
    rows = _rows(store, clients_of(directory), damage)
    with ExitStack() as stack:
        write = stack.enter_context(_writer(file))
        shown = stack.enter_context(progress(is_silent=is_silent, parts=max(1, total // _ROWS)))
        shown.say(f"exports {total:,} messages")
        while batch := list(islice(rows, _ROWS)):
            write(batch)
            shown.advance()
    for line in damage:
        print(f"{directory / 'log'}: {line}", file=sys.stderr)
    return FAILED if damage else DONE


def load(file: Path, into: Path, *, is_silent: bool) -> int:
    """Makes a store of a table that `export` has written. Raises OSError, and ClickException if it is
    another file."""
    with file.open("rb"):  # Before the store is made.
        pass
    try:
        with progress(is_silent=is_silent) as shown:
            shown.say(f"imports {file}")
            store = StoppedStore(str(into))
            for batch in _batches(file):
                for row in batch:
                    if row["retained"]:
                        store.add_retained(row["message"])
                    else:
                        session = int(row["session"], 16)
                        store.add(session, row["expires_us"], row["delivery"], row["message"])
                shown.advance()
            store.finish()
    except BaseException as error:
        shutil.rmtree(into, ignore_errors=True)
        if not isinstance(error, (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException)):
            raise
        raise click.ClickException(f"{file} is no table of `hbroker store export`: {error}") from None
    return DONE


def _rows(store: StoppedStore, clients: dict[int, str], damage: list[str]) -> Iterator[dict[str, Any]]:
    for session, count, _ in sorted(store.queues()):
        known = {"retained": False, "session": f"{session:016x}", "client": clients.get(session, "")}
        start: int | None = 0 if count else None
        while start is not None:
            messages, start, damaged = store.read(session, start, _READ_BYTES)
            damage += damaged
            for number, expires, delivery, message in messages:
                more = {"number": number, "expires_us": expires, "delivery": delivery}
                yield known | more | _columns_of(message)
    retained: list[bytes] = []
    damage += store.each_retained(retained.append)
    for message in retained:
        yield {"retained": True} | _columns_of(message)


def _columns_of(message: bytes) -> dict[str, Any]:
    publish = pb.Packet.FromString(message).publish
    return {
        "topic": publish.topic,
        "payload": publish.payload,
        "qos": publish.qos,
        "publisher": f"{publish.publisher:016x}",
        "sequence": publish.sequence,
        "published_at_us": publish.published_at_us or None,
        "message": message,
    }


@contextmanager
def _writer(file: Path) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """Writes rows to a file of the kind that its name says."""
    if file.suffix == ".parquet":
        with pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
            yield lambda rows: writer.write_table(_table_of(rows))
    elif str(file) == "-":
        yield lambda rows: sys.stdout.writelines(map(_line_of, rows))
    else:
        with file.open("w", encoding="utf-8") as out:
            yield lambda rows: out.writelines(map(_line_of, rows))


def _table_of(rows: list[dict[str, Any]]) -> pa.Table:
    names = [_TIMES.get(name, name) for name in SCHEMA.names]
    columns = [
        pa.array([row.get(name) for row in rows], field.type)
        for name, field in zip(names, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _line_of(row: dict[str, Any]) -> str:
    texts = {name: base64.b64encode(row[name]).decode() for name in _BINARY if row.get(name) is not None}
    return json.dumps(row | texts) + "\n"


def _batches(file: Path) -> Iterator[list[dict[str, Any]]]:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as table:
            for batch in table.iter_batches(
                _ROWS, columns=["retained", "session", "expires", "delivery", "message"]
            ):
                expires = batch.column("expires").cast(pa.int64()).to_pylist()
                rows = batch.drop_columns(["expires"]).to_pylist()
                yield [row | {"expires_us": at} for row, at in zip(rows, expires, strict=True)]
        return
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            binary = {name: base64.b64decode(row[name]) for name in _BINARY if row.get(name) is not None}
            yield [row | binary]
