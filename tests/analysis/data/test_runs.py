"""One run of the network is analysed, and of it exactly the requested time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.cli.analysis.times import when
from hbroker.spark_analysis.batch import Settings, analyse
from hbroker.spark_analysis.data import reading, selection
from hbroker.spark_analysis.data.runs import Choice, Process, Run, RunSelection, choose, runs_of
from hbroker.spark_analysis.errors import AnalysisError
from hbroker.spark_analysis.progress import Progression
from tests.analysis import files, plain
from tests.analysis.files import Row
from tests.analysis.networks import BEGIN
from tests.analysis.test_tables import by, node_row, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

ROWS_OF_FILE = 8


def at(second: float) -> datetime:
    """A time, in seconds from the beginning."""
    return BEGIN + timedelta(seconds=second)


def micros(second: float) -> int:
    """The same time in microseconds, as telemetry names a process."""
    return int(BEGIN.timestamp() * 1_000_000) + int(second * 1_000_000)


PROCESSES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), min_size=1, max_size=9, unique=True)


@given(PROCESSES)
def test_processes_that_overlap_are_of_one_run(lengths: list[tuple[int, int]]) -> None:
    processes = [(began, began + length) for began, length in lengths]
    found = runs_of(Process(began, ended, ()) for began, ended in processes)
    assert [[(p.began, p.ended) for p in run.processes] for run in found] == plain.runs(processes)


THREE = [
    Run((Process(micros(0), micros(20), ()),)),
    Run((Process(micros(100), micros(120), ()), Process(micros(110), micros(125), ()))),
    Run((Process(micros(200.75), micros(220), ()),)),
]


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        (RunSelection(), [2]),
        (RunSelection(every=True), [0, 1, 2]),
        (RunSelection(at=at(115)), [1]),
        (RunSelection(at=at(200)), [2]),  # as it is printed, without fractions of a second
        (RunSelection(since=at(30)), [2]),
        (RunSelection(until=at(150)), [1]),
        (RunSelection(since=at(10), until=at(105), every=True), [0, 1]),
        (RunSelection(since=at(125), until=at(200)), []),
        (RunSelection(at=at(150)), []),
    ],
)
def test_the_wanted_runs_are_chosen(wanted: RunSelection, taken: list[int]) -> None:
    if not taken:
        with pytest.raises(
            AnalysisError, match="no run of the network has telemetry of that time; there are"
        ):
            choose(THREE, wanted)
        return
    others = tuple(run for index, run in enumerate(THREE) if index not in taken)
    assert choose(THREE, wanted) == Choice(tuple(THREE[index] for index in taken), others)


def test_the_runs_left_out_are_named() -> None:
    told = str(choose(THREE, RunSelection()))
    assert told.startswith("2026-03-02 00:03:00 to 00:03:20 UTC, 1 process; left out: 2 other runs")
    assert "2026-03-01 23:59:40 to 2026-03-02 00:00:00" in told


@pytest.fixture(scope="module")
def telemetry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Row]]:
    """A network of two nodes that ran twice. In the second run one node was restarted. With all rows."""
    place = tmp_path_factory.mktemp("runs")
    rows: list[Row] = []
    for node, began, seconds in (
        *(("a", 0, range(20)), ("b", 0, range(20))),
        *(("a", 100, range(100, 130)), ("b", 100, range(100, 109)), ("b", 112, range(112, 130))),
    ):
        of_process = [
            node_row(node, second, run=micros(began), messages_in=1 + second % 7, messages_out=2)
            for second in seconds
        ]
        for number, first in enumerate(range(0, len(of_process), ROWS_OF_FILE)):
            files.write(place, "nodes", of_process[first : first + ROWS_OF_FILE], number)
        rows.extend(of_process)
    (place / "notes.txt").write_text("no telemetry")
    return place, rows


@pytest.mark.parametrize(
    ("wanted", "low", "high", "taken"),
    [
        (RunSelection(), 100, 200, 1),
        (RunSelection(every=True), 0, 200, 2),
        (RunSelection(at=at(5)), 0, 50, 1),
        (RunSelection(since=at(105), until=at(119)), 105, 119, 1),
        (RunSelection(since=at(10), every=True), 10, 200, 2),
        (RunSelection(until=at(12.5)), 0, 13, 1),
    ],
)
def test_exactly_the_rows_of_the_wanted_time_are_read(
    spark: SparkSession,
    telemetry: tuple[Path, list[Row]],
    wanted: RunSelection,
    low: int,
    high: int,
    taken: int,
) -> None:
    place, rows = telemetry
    selected = selection.select(spark, f"file://{place}", wanted)
    expected = sum(at(low) <= row["at"] < at(high) for row in rows)
    assert selected.found.rows("nodes") == expected
    assert reading.read(spark, selected.found, "nodes").count() == expected
    assert len(selected.choice.taken) == taken
    assert [Path(file.path).name for file in selected.found.skipped] == ["notes.txt"]


def test_a_part_of_the_latest_run_is_analysed(
    spark: SparkSession, telemetry: tuple[Path, list[Row]], tmp_path: Path
) -> None:
    """The part begins and ends within files. One of the files across its bounds is damaged."""
    place, rows = telemetry
    broken = next(place.rglob(f"nodes-{micros(112)}-0.parquet"))
    whole = broken.read_bytes()
    try:
        files.damage(broken, "messages_in")
        wanted = RunSelection(since=at(103), until=at(119))
        settings = Settings(window_s=10, wanted=wanted)
        summary = analyse(spark, f"file://{place}", f"file://{tmp_path}/out", settings, Progression(spark))
    finally:
        broken.write_bytes(whole)
    lost = [row["at"] for row in rows if row["run"] == micros(112)][:ROWS_OF_FILE]
    there = [row for row in rows if at(103) <= row["at"] < at(119)]
    there = [row for row in there if not (row["node"] == "b" and row["at"] in lost)]
    loads = {name: plain.load(of) for name, of in plain.grouped(there, lambda row: row["node"]).items()}
    found = by(table(tmp_path / "out", "nodes"), "node")
    assert {name: row["load"] for (name,), row in found.items()} == loads
    assert [run["processes"] for run in summary["runs"]] == [3]
    assert [run["processes"] for run in summary["left_out"]] == [2]
    assert (summary["since"], summary["until"]) == (at(103).isoformat(), at(119).isoformat())
    assert {Path(file["path"]).name for file in summary["skipped"]} == {"notes.txt", broken.name}


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("1h30m", 5_400), ("2d", 172_800)]
)
def test_a_duration_is_parsed_as_a_time_ago(text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    found = when(text) + timedelta(seconds=seconds)
    assert before <= found <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-03-01T12:00", 12),
        ("2026-03-01 12:00:00+02:00", 10),
        ("2026-03-01T12:00Z", 12),
        ("2026-03-01", 0),
    ],
)
def test_a_time_without_a_zone_is_in_utc(text: str, hour: int) -> None:
    assert when(text) == datetime(2026, 3, 1, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "30", "m", "30 m", "1m2h", "yesterday", "2026-13-01", "0001-01-01T00:00+02:00"]
)
def test_an_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        when(text)
