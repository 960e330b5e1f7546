"""The archive of telemetry files: files are complete, no file overwrites another, and the total size is
bounded.

The archive is compared with a list of the files put there, through restarts, steps of the clock, and kills.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hbroker.runtime.telemetry.file_archive import FileArchive

DAY = "2026-11-21"
HOUR = 3_600.0


class Clock:
    """Seconds since the epoch, as the test sets them."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def filled(size: int, clock: Clock) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_bytes(b"x" * size)
        os.utime(path, (clock.now, clock.now))

    return write


def files(directory: Path) -> list[str]:
    """The files that a reader sees, as paths relative to the directory."""
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*.parquet") if path.name[0] != "."
    )


def archive_in(
    directory: Path, clock: Clock, *, keep_bytes: int = 1 << 30, keep_hours: float = 1.0
) -> FileArchive:
    return FileArchive(directory, "kitchen", keep_bytes=keep_bytes, keep_hours=keep_hours, clock=clock)


def test_a_file_gets_its_name_once_it_is_complete(tmp_path: Path) -> None:
    archive = archive_in(tmp_path, Clock())

    def write(path: Path) -> None:
        path.write_bytes(b"half")
        assert path.name == ".topics-7-0.parquet"
        assert files(tmp_path) == []
        path.write_bytes(b"whole")

    archive.put("topics", DAY, 7, 0, write)
    assert files(tmp_path) == [f"date={DAY}/node=kitchen/topics-7-0.parquet"]
    assert (tmp_path / files(tmp_path)[0]).read_bytes() == b"whole"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, error: BaseException) -> None:
    archive = archive_in(tmp_path, Clock())

    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise error

    with pytest.raises(type(error)):
        archive.put("topics", DAY, 7, 0, write)
    assert list(tmp_path.rglob("*.parquet")) == []
    archive.enforce_bounds()


def test_incomplete_files_of_a_killed_run_are_removed_and_its_names_are_not_used_again(
    tmp_path: Path,
) -> None:
    clock = Clock()
    archive_in(tmp_path, clock).put("nodes", DAY, 7, 0, filled(10, clock))
    archive_in(tmp_path, clock).put("nodes", DAY, 8, 0, filled(10, clock))
    begun = tmp_path / f"date={DAY}" / "node=kitchen" / ".topics-8-1.parquet"
    begun.write_bytes(b"half")
    others = tmp_path / f"date={DAY}" / "node=bedroom" / ".topics-8-1.parquet"
    others.parent.mkdir()
    others.write_bytes(b"half")
    assert archive_in(tmp_path, clock).remove_unfinished(7) == 9, "the clock stepped back between the runs"
    assert not begun.exists()
    assert others.exists(), "another process's are not its own"


def test_the_oldest_files_are_removed_at_the_size_limit_whatever_the_clock_does(tmp_path: Path) -> None:
    clock = Clock()
    archive = archive_in(tmp_path, clock, keep_bytes=300)
    for number in range(8):
        archive.put("nodes", DAY, 7, number, filled(100, clock))
        clock.now -= 10 * HOUR if number == 3 else -1
        archive.enforce_bounds()
    assert files(tmp_path) == [f"date={DAY}/node=kitchen/nodes-7-{number}.parquet" for number in (5, 6, 7)]


def test_files_of_an_earlier_day_to_which_the_clock_stepped_back_are_removed_first(tmp_path: Path) -> None:
    clock = Clock()
    archive = archive_in(tmp_path, clock, keep_bytes=100)
    for number, day in enumerate(("2026-11-21", "2026-11-20")):
        archive.put("nodes", day, 7, number, filled(100, clock))
        archive.enforce_bounds()
    assert files(tmp_path) == ["date=2026-11-21/node=kitchen/nodes-7-0.parquet"]


def test_the_folder_of_a_day_is_removed_with_its_last_file(tmp_path: Path) -> None:
    clock = Clock()
    archive = archive_in(tmp_path, clock)
    archive.put("nodes", "2026-11-20", 7, 0, filled(100, clock))
    other = tmp_path / "date=2026-11-20" / "node=bedroom"
    clock.now += 2 * HOUR
    archive.put("nodes", "2026-11-21", 7, 1, filled(100, clock))
    other.mkdir()
    archive.enforce_bounds()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["date=2026-11-20", "date=2026-11-21"]
    assert [path.name for path in (tmp_path / "date=2026-11-20").iterdir()] == ["node=bedroom"]
    clock.now += 2 * HOUR
    archive.enforce_bounds()
    assert files(tmp_path) == []


def test_files_that_are_not_telemetry_are_left_alone(tmp_path: Path) -> None:
    clock = Clock()
    place = tmp_path / f"date={DAY}" / "node=kitchen"
    place.mkdir(parents=True)
    strange = [
        place / "README.parquet",
        place / "topics-x-0.parquet",
        place / "notes.txt",
        tmp_path / "date=x",
    ]
    for path in strange:
        path.write_text("mine")
    archive = archive_in(tmp_path, clock, keep_bytes=0)
    archive.put("nodes", DAY, 7, 0, filled(100, clock))
    archive.enforce_bounds()
    assert all(path.exists() for path in strange)
    assert [Path(name).name for name in files(tmp_path)] == ["README.parquet", "topics-x-0.parquet"]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.integers(1, 400)),
        st.tuples(st.just("wait"), st.integers(-7_200, 7_200), st.just(0)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
        st.tuples(st.just("lose"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.integers(0, 1_000))
def test_the_archive_keeps_the_same_files_as_a_list(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], keep_bytes: int
) -> None:
    directory, clock = tmp_path_factory.mktemp("archive"), Clock()
    archive = archive_in(directory, clock, keep_bytes=keep_bytes)
    kept: list[tuple[str, int, int, float]] = []  # (day, number, size, time of writing), the oldest first
    for number, (step, argument, size) in enumerate(steps):
        match step:
            case "wait":
                clock.now += argument
            case "restart":
                archive = archive_in(directory, clock, keep_bytes=keep_bytes)
            case "lose" if kept:
                day, lost, _, _ = kept[0]
                (directory / f"date={day}" / "node=kitchen" / f"nodes-7-{lost}.parquet").unlink()
            case "put":
                day = f"2026-11-2{argument}"
                archive.put("nodes", day, 7, number, filled(size, clock))
                kept.append((day, number, size, clock.now))
        kept.sort()
        while kept and (kept[0][3] < clock.now - HOUR or sum(size for _, _, size, _ in kept) > keep_bytes):
            kept.pop(0)
        if step == "lose" and kept:
            # The oldest file was removed by something else. It counts until its turn comes.
            kept = kept[1:]
            archive = archive_in(directory, clock, keep_bytes=keep_bytes)
        archive.enforce_bounds()
        expected = sorted(f"date={day}/node=kitchen/nodes-7-{number}.parquet" for day, number, _, _ in kept)
        assert files(directory) == expected
