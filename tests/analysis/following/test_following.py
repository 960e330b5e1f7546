"""`hbroker analyze --follow` as a process: killed and started again, with alerts for MQTT clients. It has
no short form."""

from __future__ import annotations

import json
import os
import queue
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from hbroker import sync
from hbroker.cli.exits import DONE, INTERRUPTED
from hbroker.spark_analysis.data import reading
from hbroker.spark_analysis.measures import loads
from hbroker.spark_analysis.measures.alerts import Rules, Watches, measure
from hbroker.spark_analysis.measures.loads import WINDOW
from hbroker.spark_analysis.tables import collected
from tests.analysis import files, plain
from tests.analysis.files import Row
from tests.analysis.following.test_follow import BEGIN, check_tables
from tests.analysis.test_tables import by, close, node_row, table
from tests.frame.checkout import ROOT
from tests.interop.home import home_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("in_long_form")]

PATIENCE_S: Final = 240.0
WINDOW_S: Final = 10
FILE_S: Final = 20
LATE_S: Final = 20
AFTER: Final = 2
NODES: Final = ("a", "b", "c")

Event = dict[str, Any]


class Following:
    """A run of the command. All its processes are in one process group."""

    def __init__(self, place: Path, *flags: str) -> None:
        command = [
            *(sys.executable, "-m", "hbroker", "analyze", "--follow", str(place / "in")),
            *("--out", str(place / "out"), "--master", "local[2]", "--json"),
            *(
                "--window",
                str(WINDOW_S),
                "--late",
                str(LATE_S),
                "--alert-after",
                str(AFTER),
                "--every",
                "0.3",
            ),
            *("--conf", "spark.sql.shuffle.partitions=2", *flags),
        ]
        self._errors = (place / "errors").open("ab")
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
            start_new_session=True,
        )
        self.events: list[Event] = []
        self._queue: queue.Queue[Event] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def event(self, name: str) -> Event:
        """The next event of this name. Raises queue.Empty."""
        while (event := self._queue.get(timeout=PATIENCE_S))["event"] != name:
            continue
        return event

    def kill(self) -> None:
        """Kills Python and Java at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        """Its exit code, once all its output was read."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def close(self) -> None:
        """Ends all processes."""
        if self.process.poll() is None:
            self.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            self.events.append(event)
            self._queue.put(event)


@contextmanager
def following(place: Path, *flags: str) -> Iterator[Following]:
    run = Following(place, *flags)
    try:
        yield run
    finally:
        run.close()


def test_following_after_sigkill_makes_the_tables_of_the_batch(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed four times at random moments: each window is in the tables once, as in the batch. An alert
    that was reported more than once has the same text each time."""
    generator = random.Random(11)
    (tmp_path / "in").mkdir()
    said: list[Event] = []
    written = 0
    for _ in range(4):
        with following(tmp_path, "--no-publish") as run:
            for _ in range(generator.randrange(1, 4)):
                written = _write(tmp_path / "in", written)
                run.event("files" if written < 3 or generator.random() < 0.5 else "windows")
            threading.Event().wait(generator.uniform(0, 2.5))
            run.kill()
            said.extend(run.events)
    written = _write(tmp_path / "in", written)
    with following(tmp_path, "--no-publish", "--once") as run:
        assert run.wait() == DONE, (tmp_path / "errors").read_text()
        said.extend(run.events)

    closed = (FILE_S * written - 1 - LATE_S) // WINDOW_S * WINDOW_S
    rows = [_interval(node, second) for node in NODES for second in range(closed)]
    check_tables(tmp_path / "out", rows, WINDOW_S)
    _check_with_batch(request.getfixturevalue("spark"), tmp_path, rows)
    _check_alerts(said, rows)


def test_mqtt_clients_and_native_clients_receive_alerts(tmp_path: Path) -> None:
    with home_up(tmp_path) as home:
        place = home.place("one", "listener")
        (tmp_path / "in").mkdir()
        with (
            following(tmp_path, "--root", home.root) as run,
            _mosquitto_sub(place.host, place.port) as subscriber,
        ):
            written = 0
            while not (alerts := [event for event in run.events if event["event"] == "alert"]):
                written = _write(tmp_path / "in", written, even=False)
                run.event("files")
            raised = alerts[0]
            topic, payload = _line(subscriber)
            assert topic == raised["topic"] == "$SYS/analysis/alerts/imbalance/node"
            assert payload == {name: raised[name] for name in raised.keys() - {"event", "topic"}}
            assert (payload["state"], payload["severity"], payload["node"]) == ("raised", "warning", "a")
            with sync.connect(home.root) as client, client.subscribe("$SYS/analysis/#", qos=1) as messages:
                message = messages.next(timeout=PATIENCE_S)
                assert message is not None
                assert (message.topic, json.loads(message.payload), message.retained) == (
                    topic,
                    payload,
                    True,
                )
            while not any(event.get("state") == "cleared" for event in run.events):
                written = _write(tmp_path / "in", written, even=True)
                run.event("files")
            assert _line(subscriber)[1]["state"] == "cleared"
            with _mosquitto_sub(place.host, place.port) as later:
                assert _line(later)[1]["state"] == "cleared", "retained"
            run.process.send_signal(signal.SIGINT)
            assert run.wait() == INTERRUPTED


def _check_with_batch(spark: SparkSession, place: Path, rows: list[Row]) -> None:
    """Checks that the windows of the stream equal those of the batch over the same files, column by
    column."""
    found = reading.find(spark, f"file://{place / 'in'}")
    nodes = loads.in_windows(reading.read(spark, found, "nodes"), WINDOW_S)
    load = loads.node_load(nodes)
    windows = {plain.window_of(row["at"], WINDOW_S) for row in rows}
    for name, keys, batch in (
        ("node_load", ["role", "node", WINDOW], load),
        ("imbalance_over_time", ["role", WINDOW], loads.imbalance(load, ["role", WINDOW])),
    ):
        theirs = by([row for row in collected(batch) if row[WINDOW] in windows], *keys)
        ours = by(table(place / "out", name), *keys)
        assert ours.keys() == theirs.keys()
        for key, row in theirs.items():
            for column, value in row.items():
                there = ours[key][column]
                assert close(there, value) if isinstance(value, float) else there == value, (
                    name,
                    key,
                    column,
                )


def _check_alerts(said: list[Event], rows: list[Row]) -> None:
    """Checks that repeated alerts have the same text, and that all alerts follow from the windows."""
    first: dict[Any, Event] = {}
    for alert in (event for event in said if event["event"] == "alert"):
        assert first.setdefault((alert["topic"], alert["window_start"]), alert) == alert
    rules = Rules(after=AFTER)
    watches = Watches(rules, WINDOW_S)
    expected = [
        alert
        for start, values in measure(*_measured_in(rows), WINDOW_S, rules).items()
        for alert in watches.observe(start, values)
    ]
    names = ("alert", "role", "node", "state", "severity", "threshold", "window_start")
    assert [[alert[name] for name in names] for alert in first.values()] == [
        [getattr(alert, name) for name in names] for alert in expected
    ]
    assert len(expected) > 2, "raised, cleared, and raised again"


def _measured_in(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    found = plain.node_load(rows, WINDOW_S)
    of_nodes = [{"role": r, "node": n, WINDOW: w, **row} for (r, n, w), row in found.items()]
    spreads = []
    for window, of_window in plain.grouped(of_nodes, lambda row: row[WINDOW]).items():
        values = [row["load"] for row in of_window]
        whole = {"role": "node", WINDOW: window, "nodes": len(values), "load": sum(values)}
        spreads.append({**whole, **plain.imbalance(values)})
    return of_nodes, spreads


def _write(source: Path, number: int, *, even: bool | None = None) -> int:
    """Writes a file of each node. Returns the number of the next file."""
    for node in NODES:
        seconds = range(FILE_S * number, FILE_S * (number + 1))
        # Renames the file, as nodes do: a reader sees the complete file or nothing.
        rows = [_interval(node, second, even=even) for second in seconds]
        staged = files.write(source.parent / "staged", "nodes", rows, sequence=number)
        target = files.place(source, "nodes", node, rows[0]["at"], 1, number)
        staged.rename(target)
    return number + 1


def _interval(node: str, second: int, *, even: bool | None = None) -> Row:
    """An interval in which node a has the largest load, every other minute unless `even` says otherwise."""
    is_even = second // 60 % 2 == 1 if even is None else even
    return node_row(
        node,
        second,
        at=BEGIN + timedelta(seconds=second),
        messages_in=100 + second % 7 if is_even or node != "a" else 2_000 + second % 11,
        cpu_s=0.1,
        latency=[second % 5] * 96,
        drops={"queue_full": 1} if second % 3 == 1 else {},
    )


@contextmanager
def _mosquitto_sub(host: str, port: int) -> Iterator[subprocess.Popen[str]]:
    command = ["mosquitto_sub", "-h", host, "-p", str(port), "-t", "$SYS/analysis/#", "-v", "-q", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def _line(subscriber: subprocess.Popen[str]) -> tuple[str, Any]:
    assert subscriber.stdout is not None
    assert select.select([subscriber.stdout], [], [], PATIENCE_S)[0], "nothing came"
    topic, _, payload = subscriber.stdout.readline().partition(" ")
    return topic, json.loads(payload)
