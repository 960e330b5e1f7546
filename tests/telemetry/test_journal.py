"""The telemetry files contain what the core counted, in the documented columns, whatever disks and clocks
do."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hbroker._native import Config, Engine
from hbroker.config import TelemetrySettings
from hbroker.runtime.logs import EventLog
from hbroker.runtime.telemetry import Facts, preload
from hbroker.runtime.telemetry.interval import IntervalClock
from hbroker.runtime.telemetry.rows import NODES, TOPICS
from tests.telemetry.reading import TRAFFIC, files, rows, sums

preload()
from hbroker.runtime.telemetry.journal import Journal  # noqa: E402

FACTS = Facts("127.0.0.1:7701", parent="root", subtrees=("home/kitchen",))
MIDNIGHT = 1_795_305_600_000_000
"""2026-11-22, 00:00 UTC, in microseconds."""

# The contract with readers: docs/telemetry.md.
COMMON = {
    "node": "string",
    "role": "string",
    "run": "int64",
    "at": "timestamp[us, tz=UTC]",
    "seconds": "double",
}
NUMBERS = dict.fromkeys(TRAFFIC, "int64")
CONTRACT = {
    "topics": {**COMMON, "topic": "string", **NUMBERS},
    "nodes": {
        **COMMON,
        "address": "string",
        "parent": "string",
        "subtrees": "list<element: string not null>",
        "workers": "int32",
        "cpu_s": "double",
        "rss_bytes": "int64",
        **dict.fromkeys(("sessions", "subscriptions", "publishers", "connections"), "int64"),
        **NUMBERS,
        **dict.fromkeys(("datagrams_in", "datagrams_out", "queued_messages", "queued_bytes"), "int64"),
        "drops": "map<string, int64 ('drops')>",
        "latency": "list<element: int64 not null>",
        "latency_sampled": "int32",
    },
}


class Clocks:
    """The wall clock in microseconds, and a monotonic clock in seconds."""

    def __init__(self, at: int = MIDNIGHT - 3_600_000_000) -> None:
        self.wall = at
        self.steady = 0.0

    def pass_time(self, seconds: float, *, step: int = 0) -> None:
        self.steady += seconds
        self.wall += round(seconds * 1e6) + step

    def watch(self) -> IntervalClock:
        return IntervalClock(lambda: self.wall, lambda: self.steady)


def owner(*, telemetry: bool = True) -> Engine:
    """A node's core in virtual time, which owns every topic."""
    config = Config(
        node=True,
        session=1,
        incarnation=1,
        token_keys=[b"k" * 16],
        seed=1,
        telemetry=telemetry,
    )
    core = Engine(config)
    core.grant("", 1, True)
    return core


def journal_in(directory: Path, clocks: Clocks, *, file: int = 10, keep_bytes: int = 1 << 30) -> Journal:
    kept = TelemetrySettings(directory=str(directory), file=file, keep_bytes=keep_bytes)
    return Journal(kept, "kitchen", "node", clocks.watch(), EventLog("telemetry"))


def note(journal: Journal, core: Engine) -> None:
    load = core.take_load()
    assert load is not None
    journal.add_interval(FACTS, load)


def write_one_of_each(directory: Path) -> None:
    """Writes one file of each kind, for a second in which one message was published."""
    clocks, core = Clocks(), owner()
    journal = journal_in(directory, clocks)
    core.publish("home/kitchen/oven", b"180")
    clocks.pass_time(1)
    note(journal, core)
    journal.close()


def test_the_columns_are_those_of_the_contract(tmp_path: Path) -> None:
    write_one_of_each(tmp_path)
    for kind, schema in (("topics", TOPICS), ("nodes", NODES)):
        (path,) = files(tmp_path, kind)
        written = pq.ParquetFile(path)
        assert {field.name: str(field.type) for field in written.schema_arrow} == CONTRACT[kind]
        assert written.schema_arrow.equals(schema)
        assert written.metadata.metadata[b"hbroker.telemetry"] == b"1"
        compressions = {written.metadata.row_group(0).column(index).compression for index in range(5)}
        assert compressions == {"ZSTD"}


def test_the_rows_of_one_interval_are_complete(tmp_path: Path) -> None:
    clocks, core = Clocks(), owner()
    journal = journal_in(tmp_path, clocks)
    began = clocks.wall
    core.publish("home/kitchen/oven", b"180")
    core.publish("home/kitchen/oven", b"1800")
    core.publish("home/küche/☕", b"")
    clocks.pass_time(1.25)
    note(journal, core)
    journal.close()
    place = tmp_path / "date=2026-11-21" / "node=kitchen"
    assert sorted(path.name for path in place.iterdir()) == [
        f"nodes-{began}-0.parquet",
        f"topics-{began}-0.parquet",
    ]
    oven, coffee = rows(tmp_path, "topics")
    common = {"node": "kitchen", "role": "node", "run": began, "seconds": 1.25}
    assert {**oven, **common, "topic": "home/kitchen/oven", "messages_in": 2, "bytes_in": 7} == oven
    assert (coffee["topic"], coffee["messages_in"], coffee["bytes_in"]) == ("home/küche/☕", 1, 0)
    (whole,) = rows(tmp_path, "nodes")
    assert whole["at"].timestamp() == began / 1e6
    assert {**whole, **common, "parent": "root", "subtrees": ["home/kitchen"], "workers": 1} == whole
    assert sums([whole]) == sums([oven, coffee])
    assert (len(whole["latency"]), whole["latency_sampled"]) == (96, 1)


TOPIC = st.integers(0, 12_000)
INTERVALS = st.lists(
    st.lists(st.tuples(TOPIC, st.integers(1, 3), st.integers(0, 200)), max_size=8), max_size=6
)


@settings(max_examples=20, deadline=None)
@given(INTERVALS)
@example([[(topic, 1, 0) for topic in range(10_050)], []])
def test_the_rows_add_up_to_what_was_published(
    tmp_path_factory: pytest.TempPathFactory,
    intervals: list[list[tuple[int, int, int]]],
) -> None:
    directory, clocks, core = tmp_path_factory.mktemp("telemetry"), Clocks(), owner()
    journal = journal_in(directory, clocks, file=2)
    sent: Counter[tuple[str, str]] = Counter()
    for published in intervals:
        for topic, messages, size in published:
            for _ in range(messages):
                core.publish(f"t/{topic}", bytes(size))
            sent.update({("messages", f"t/{topic}"): messages, ("bytes", f"t/{topic}"): messages * size})
        clocks.pass_time(1)
        note(journal, core)
    journal.close()
    found: Counter[tuple[str, str]] = Counter()
    rest = 0
    for row in rows(directory, "topics"):
        if row["topic"] is None:
            rest += row["messages_in"]
            continue
        found.update(
            {("messages", row["topic"]): row["messages_in"], ("bytes", row["topic"]): row["bytes_in"]}
        )
    beyond = (len({topic for topic, _, _ in published}) - 10_000 for published in intervals)
    assert rest == sum(max(0, topics) for topics in beyond)
    assert sum(number for (what, _), number in (sent - found).items() if what == "messages") == rest
    assert not found - sent
    totals = sums(rows(directory, "nodes"))
    assert totals == sums(rows(directory, "topics"))
    assert totals["messages_in"] == core.counters()["messages_in"]
    assert len(rows(directory, "nodes")) == len(intervals)


def test_a_file_holds_one_day_and_a_limited_number_of_seconds(tmp_path: Path) -> None:
    clocks, core = Clocks(MIDNIGHT - 2_500_000), owner()
    journal = journal_in(tmp_path, clocks, file=3)
    for _ in range(8):
        clocks.pass_time(1)
        note(journal, core)
    journal.close()
    of_file = Counter(
        str(row["file"].relative_to(tmp_path))[:15] + row["file"].stem[-2:] for row in rows(tmp_path, "nodes")
    )
    assert of_file == {
        "date=2026-11-21-0": 3,
        "date=2026-11-22-1": 3,
        "date=2026-11-22-2": 2,
    }


def test_a_clock_that_steps_back_loses_no_row_and_overwrites_no_file(tmp_path: Path) -> None:
    clocks, core = Clocks(MIDNIGHT + 2_000_000), owner()
    journal = journal_in(tmp_path, clocks, file=1)
    for step in (0, -5_000_000, 0, -86_400_000_000, 0):
        core.publish("t", b"x")
        clocks.pass_time(1, step=step)
        note(journal, core)
    journal.close()
    found = rows(tmp_path, "nodes")
    assert [row["seconds"] for row in found] == [1.0] * 5
    assert [row["messages_in"] for row in found] == [1] * 5
    assert len({row["file"].name for row in found}) == 5
    assert len({row["run"] for row in found}) == 1
    clocks.wall = found[0]["run"]
    journal = journal_in(tmp_path, clocks)
    clocks.pass_time(1)
    note(journal, core)
    journal.close()
    assert rows(tmp_path, "nodes")[-1]["run"] == found[0]["run"] + 1, "the clock said the same again"
    assert len(rows(tmp_path, "nodes")) == 6


def test_a_write_error_is_logged_once_and_the_lost_intervals_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("hbroker"), "propagate", True)
    blocked = tmp_path / "telemetry"
    blocked.write_text("a file is in the way")
    clocks, core = Clocks(), owner()
    journal = journal_in(blocked, clocks, file=1)
    for _ in range(3):
        core.publish("t", b"x")
        clocks.pass_time(1)
        note(journal, core)
    errors = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["telemetry_not_written"]
    blocked.unlink()
    core.publish("t", b"x")
    clocks.pass_time(1)
    note(journal, core)
    (row,) = rows(blocked, "nodes")
    assert (row["messages_in"], dict(row["drops"])) == (1, {"telemetry": 3})


def test_old_files_are_removed_at_the_size_limit(tmp_path: Path) -> None:
    clocks, core = Clocks(), owner()
    journal = journal_in(tmp_path, clocks, file=1, keep_bytes=60_000)
    for _ in range(30):
        core.publish("t", b"x")
        clocks.pass_time(1)
        note(journal, core)
    journal.close()
    there = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in there) <= 60_000
    kept = [row["at"] for row in rows(tmp_path, "nodes")]
    assert 1 < len(kept) < 30
    assert kept == sorted(kept)
    assert kept[-1].timestamp() == (clocks.wall - 1_000_000) / 1e6, "the newest stay"


def test_a_core_without_telemetry_has_no_load() -> None:
    assert owner(telemetry=False).take_load() is None
