"""A record file is complete after any fault, or reports the loss."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage.disk import Disk
from hbroker.storage.record_file import RecordFile
from hbroker.storage.record_format import HEADER_BYTES

PATH = Path("/state/root.cuts")
KIND = 1
_IDS = count(7)


def a_file(disk: Disk, path: Path = PATH, **options: int) -> RecordFile:
    return RecordFile(path, KIND, new_id=_IDS.__next__, disk=disk, **options)


def three_records(disk: Disk, path: Path = PATH) -> dict[bytes, bytes]:
    file = a_file(disk, path)
    file.open()
    entries = {b"a": b"first", b"bb": b"second", b"ccc": b"third"}
    file.append(entries.items())
    file.sync()
    file.close()
    return entries


def test_the_last_value_of_each_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "records"
    file = a_file(Disk(), path)
    assert file.open().entries == {}
    file.append([(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", b"")])
    file.sync()
    opened = a_file(Disk(), path).open()
    assert opened.entries == {b"a": b"3"}
    assert not opened.is_incomplete
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_truncated_last_record_does_not_affect_the_others() -> None:
    disk = SimulatedDisk(Random(1))
    entries = three_records(disk)
    whole = disk.read(PATH)
    for length in range(1, len(whole) - HEADER_BYTES):
        disk.damage(PATH, whole + whole[HEADER_BYTES:][:length])
        opened = a_file(disk).open()
        assert opened.entries == entries
        assert not opened.is_incomplete
        file = a_file(disk)
        file.open()
        file.append([(b"d", b"fourth")])
        assert a_file(disk).open().entries == {**entries, b"d": b"fourth"}


def test_every_damage_is_detected() -> None:
    """Each flipped bit, and each truncation of synced bytes, is reported, and the other records are read."""
    disk = SimulatedDisk(Random(1))
    entries = three_records(disk)
    whole = disk.read(PATH)
    for at in range(len(whole)):
        spoilt = bytearray(whole)
        spoilt[at] ^= 1 << at % 8
        disk.damage(PATH, bytes(spoilt))
        opened = a_file(disk).open(lambda _: len(whole))
        assert opened.is_incomplete
        (damage,) = opened.damage
        assert damage.offset <= at < damage.offset + damage.length
        assert damage.kept is not None
        assert disk.read(damage.kept) == spoilt
        assert opened.entries.items() < entries.items()
        assert len(opened.entries) == 2 or at < HEADER_BYTES
        assert a_file(disk).open().is_incomplete, "the next start knows of it, too"
        disk.remove(damage.kept)
    for length in range(len(whole)):
        disk.damage(PATH, whole[:length])
        assert a_file(disk).open(lambda _: len(whole)).is_incomplete
    disk.remove(PATH)
    assert a_file(disk).open(lambda _: len(whole)).is_incomplete


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_a_damaged_file_is_kept_where_hard_links_are_not_possible(error: int) -> None:
    class NoLinks(SimulatedDisk):
        def link(self, source: Path, target: Path) -> None:
            raise OSError(error, os.strerror(error))

    disk = NoLinks(Random(1))
    three_records(disk)
    spoilt = b"\0" + disk.read(PATH)[1:]
    for number in range(1, 4):
        disk.damage(PATH, spoilt)
        (damage,) = a_file(disk).open().damage
        assert damage.kept == PATH.with_name(f"{PATH.name}.damaged-{number}")
        disk.crash()
        assert disk.read(damage.kept) == spoilt


def test_a_completed_file_reports_no_earlier_loss() -> None:
    disk = SimulatedDisk(Random(1))
    three_records(disk)
    disk.damage(PATH, b"\0" + disk.read(PATH)[1:])
    file = a_file(disk)
    assert file.open().is_incomplete
    file.append([(b"a", b"again")])
    file.complete()
    opened = a_file(disk).open()
    assert not opened.is_incomplete
    assert opened.entries == {b"a": b"again"}


def test_records_of_another_file_are_not_read() -> None:
    """A file system may show old blocks after a power loss."""
    disk = SimulatedDisk(Random(1))
    three_records(disk)
    foreign = disk.read(PATH)[HEADER_BYTES:]
    file = a_file(disk)
    file.open()
    file.replace([(b"z", b"own")])
    disk.damage(PATH, disk.read(PATH) + foreign)
    opened = a_file(disk).open()
    assert opened.entries == {b"z": b"own"}
    assert opened.is_incomplete


@pytest.mark.parametrize("room", range(0, 90, 7))
def test_a_record_that_does_not_fit_on_a_full_disk_is_removed(room: int) -> None:
    disk = SimulatedDisk(Random(1))
    entries = three_records(disk)
    file = a_file(disk)
    file.open()
    disk.free_bytes = room
    with pytest.raises(OSError, match="No space"):
        file.append([(b"d", b"x" * 40), (b"e", b"y" * 40)])
    disk.free_bytes = None
    file.append([(b"f", b"later")])
    assert a_file(disk).open().entries == {**entries, b"f": b"later"}


def test_all_records_are_written_again_after_a_failed_sync() -> None:
    """The kernel reports a lost page once: another sync would succeed, and the page would be lost."""
    disk = SimulatedDisk(Random(1))
    entries = three_records(disk)
    file = a_file(disk)
    file.open()
    file.append([(b"d", b"fourth")])
    disk.error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    disk.error = None
    before = file.header.id
    file.sync()
    assert file.header.id != before
    disk.crash()
    assert a_file(disk).open().entries == {**entries, b"d": b"fourth"}


def test_the_size_of_a_file_stays_proportional_to_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "records"
    file = a_file(Disk(), path, slack_bytes=1_000)
    file.open()
    for number in range(1_000):
        file.append([(b"key", b"%d" % number)])
        file.compact()
        assert file.size == path.stat().st_size < 1_300
    assert a_file(Disk(), path).open().entries == {b"key": b"999"}


@pytest.mark.parametrize("seed", range(40))
def test_no_synced_record_is_lost_by_random_faults(seed: int) -> None:
    """Random appends, syncs and replacements on a disk that fills up, fails and crashes."""
    random = Random(seed)
    disk = SimulatedDisk(random)
    file = a_file(disk, slack_bytes=200)
    file.open()
    synced: dict[bytes, bytes] = {}
    since: list[tuple[bytes, bytes]] = []
    for step in range(60):
        disk.free_bytes = random.choice((None, None, random.randrange(200)))
        disk.error = random.choice((None, None, None, errno.EIO))
        entries = [(b"k%d" % random.randrange(5), random.choice((b"", b"%d" % step))) for _ in range(2)]
        with suppress(OSError):
            file.append(entries)
            since += entries
            file.sync()
            synced = _after(synced, since)
            since = []
            file.compact()
        if random.random() < 0.2:
            disk.free_bytes = disk.error = None
            disk.crash()
            file = a_file(disk, slack_bytes=200)
            opened = file.open()
            assert not opened.is_incomplete
            for key, value in synced.items():
                later = [v for k, v in since if k == key]
                assert opened.entries.get(key, b"") in (value, *later), (step, key)
            synced, since = dict(opened.entries), []


def _after(before: dict[bytes, bytes], entries: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    after = {**before, **dict(entries)}
    return {key: value for key, value in after.items() if value}
