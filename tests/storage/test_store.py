"""Records are written in groups, and a failing disk loses no waiting record."""

from __future__ import annotations

import errno
from itertools import count
from pathlib import Path
from random import Random

from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage import checkpoint
from hbroker.storage.checkpoint import Checkpoint, Instant
from hbroker.storage.record_file import RecordFile
from hbroker.storage.store import Store

FOLDER = Path("/state")
MARK = FOLDER / "checkpoint"
_IDS = count(1)


def a_store(disk: SimulatedDisk, at: int = 0, boot: bytes = bytes(16)) -> Store:
    names = {1: "one", 2: "two"}
    files = {
        kind: RecordFile(FOLDER / name, kind, new_id=_IDS.__next__, disk=disk) for kind, name in names.items()
    }
    return Store(files, MARK, disk, lambda: Instant(boot, at))


def opened_store(at: int = 0) -> tuple[SimulatedDisk, Store]:
    """A store on an empty disk."""
    disk = SimulatedDisk(Random(1))
    store = a_store(disk, at)
    store.open()
    return disk, store


def test_many_records_need_one_sync_for_each_file() -> None:
    disk, store = opened_store()
    marks = [store.put(1 + number % 2, b"%d" % number, b"value") for number in range(10_000)]
    assert store.durable < marks[0]
    before = disk.syncs
    assert store.flush()
    assert store.durable == marks[-1]
    assert disk.syncs - before <= 4, "each file is made, and synced, once"
    disk.crash()
    opened, _ = a_store(disk).open()
    assert len(opened[1].entries) == len(opened[2].entries) == 5_000


def test_a_record_that_cannot_be_written_waits_and_the_latest_value_is_written() -> None:
    disk, store = opened_store()
    store.put(1, b"a", b"1")
    assert store.flush()
    disk.free_bytes = 10
    store.put(1, b"a", b"2")
    mark = store.put(2, b"b", b"3")
    assert not store.flush()
    assert str(store.fault) == "/state/one: No space left on device"
    assert store.durable < mark
    store.put(1, b"a", b"4")
    disk.free_bytes = None
    assert store.flush()
    assert not store.fault
    assert store.durable == store.written
    opened, _ = a_store(disk).open()
    assert (opened[1].entries, opened[2].entries) == ({b"a": b"4"}, {b"b": b"3"})


def test_the_next_run_knows_the_time_since_the_last_checkpoint() -> None:
    disk, store = opened_store(at=5_000_000)
    store.save_checkpoint()
    assert a_store(disk, at=7_000_000).open()[1] == 2_000_000
    assert a_store(disk, at=7_000_000, boot=b"another boot id!").open()[1] is None
    spoilt = bytearray(disk.read(MARK))
    for at in range(len(spoilt)):
        disk.damage(MARK, bytes(spoilt[:at]) + bytes([spoilt[at] ^ 4]) + bytes(spoilt[at + 1 :]))
        assert a_store(disk, at=7_000_000).open()[1] is None


def test_an_outdated_checkpoint_is_removed_where_a_new_one_cannot_be_written() -> None:
    disk, store = opened_store()
    store.save_checkpoint()
    disk.error = errno.EIO
    store.save_checkpoint()
    assert checkpoint.load(disk, MARK) is None
    assert store.minor_fault is not None


def test_a_file_shorter_than_its_checkpoint_is_damaged() -> None:
    """If the file ends at the border of two records, nothing in it shows that there were more."""
    disk, store = opened_store()
    store.put(1, b"a", b"1")
    store.flush()
    whole = disk.read(FOLDER / "one")
    store.put(1, b"b", b"2")
    store.flush()
    disk.damage(FOLDER / "one", whole)
    opened, _ = a_store(disk).open()
    assert opened[1].is_incomplete
    assert opened[1].entries == {b"a": b"1"}
    disk.remove(FOLDER / "two") if FOLDER / "two" in disk.paths() else None
    mark = Checkpoint(Instant(bytes(16), 1), {2: (99, 64)})
    checkpoint.save(disk, MARK, mark)
    assert a_store(disk).open()[0][2].is_incomplete, "it is missing"
