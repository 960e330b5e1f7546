"""The output of a simulation: the progress display, and the text and tables at the end."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from hbroker.cli import main, sim
from hbroker.errors import Unreachable
from hbroker.operations.node_statuses import Status
from hbroker.protocol.packets import Reason
from hbroker.sim.rooms.delivery_counters import DeliveryCounters
from hbroker.sim.rooms.display import line, progress_display
from hbroker.sim.rooms.effort import Effort, Stopwatch
from hbroker.sim.rooms.latency import Histogram
from hbroker.sim.rooms.plan import Plan, plan
from hbroker.sim.rooms.play import PlayedCounts, PlayOptions, Progress, Result
from hbroker.sim.rooms.player import Troubles
from hbroker.sim.rooms.report import MOST_ROOMS, nodes_table, rooms_table, summary_lines, verdict
from hbroker.sim.rooms.scenario import load
from hbroker.sim.rooms.stamp import add_stamp
from hbroker.sim.rooms.summary import is_clean, summarise

RUN = 5


def _progress(phase: str) -> Progress:
    late = Histogram()
    late.add(1_500)
    return Progress(phase, 12.0, 3.0, 60.0, 50, 48, 100, 90, 120, 7, 30.5, 40.25, late, late, 0.25)


def test_the_progress_is_one_line() -> None:
    assert line(_progress("connecting")) == "connecting: 48 of 50 devices, 12 s"
    playing = line(_progress("playing"))
    for text in (
        "playing, 12 s",
        "48 devices",
        "30 said/s",
        "40 received/s",
        "7 on their way",
        "25%",
        "2 ms late",
    ):
        assert text in playing


def test_without_a_terminal_the_progress_is_lines_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress_display("home") as show:
        for _ in range(50):
            show(_progress("playing"))
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1, "and not for each of them"


def test_on_a_terminal_the_progress_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    terminal = Console(file=drawn, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("hbroker.sim.rooms.display.Console", lambda **_: terminal)
    with progress_display("home, 50 devices") as show:
        show(_progress("connecting"))
        show(_progress("playing"))
    for text in ("home, 50 devices: playing", "48 of 50 connected", "90 of 100 due", "p50 1.5 ms", "25%"):
        assert text in drawn.getvalue()


@pytest.fixture
def planned() -> Plan:
    return plan(load("city"))


def _result(planned: Plan, counters: DeliveryCounters, *, effort: Effort, lateness: Histogram) -> Result:
    owners = tuple("root" if stream.room == "outlook" else "district" for stream in planned.streams)
    publications = counters.published
    return Result(
        planned,
        counters,
        Troubles(),
        owners,
        planned.devices,
        PlayedCounts(publications, publications),
        1.0,
        10.0,
        effort,
        lateness,
        False,
    )


def _lost_one(planned: Plan, counters: DeliveryCounters) -> None:
    """Delivers an acknowledged message to all its receivers but one."""
    stream = next(s for s in planned.streams if s.qos and planned.receivers[s.number])
    stamp = counters.next_stamp(stream, 1)
    counters.count_due(stream)
    counters.count_published(stream, 20)
    counters.count_result(stream, stamp.number, True)
    for receiver in planned.receivers[stream.number][1:]:
        counters.receive(receiver, add_stamp(stamp, b"x"), 2_001)


STATUS = {
    "run": 9,
    "own": 4,
    "subtree": "",
    "messages_in": 10,
    "messages_out": 5,
    "cpu_s": 1.0,
    "drops": {"queue_full": 1},
}
LATER = {
    **STATUS,
    "own": 6,
    "messages_in": 15,
    "messages_out": 9,
    "cpu_s": 1.5,
    "drops": {"queue_full": 3, "offline": 0},
}


def test_a_loss_of_an_acknowledged_message_is_reported_beside_the_nodes_own_counters(planned: Plan) -> None:
    counters = DeliveryCounters(planned, RUN)
    _lost_one(planned, counters)
    result = _result(planned, counters, effort=Effort(10.0, 2.0, 1.0, 0.5), lateness=Histogram())
    before, after = (
        [{"name": "district", **STATUS}],
        [{"name": "district", **LATER}, {"name": "new", **STATUS}],
    )
    summary = summarise(result, before, after)
    assert not is_clean(summary)
    assert verdict(summary) == ["1 messages lost or doubled that should not be"]
    by_name = {node.name: node for node in summary.nodes}
    assert (by_name["district"].messages_in, by_name["district"].others) == (3, 2)
    assert by_name["district"].drops == {"queue_full": 2}
    assert by_name["new"].messages_in is None, "nobody knows what it counted before"
    assert by_name["root"].messages_in is None, "it did not tell"
    header, rows, _ = nodes_table(summary, {"queue_full"})
    district = dict(zip(header, next(row for row in rows if row[0] == "district"), strict=True))
    assert (district["SAID"], district["COUNTED"], district["OTHERS"]) == ("1", "3", "2")
    assert (district["LOST"], district["DROPS"], district["CPU s"]) == ("1", "2", "0.5")
    output = " ".join(summary_lines(summary))
    for text in (
        "1000 of 1000 devices",
        "1 lost",
        "1 of them against",
        "20% of a processor",
        "5% of the time",
    ):
        assert text in output
    written = summary.to_json()
    assert written["starved"] == 0.05
    assert written["is_clean"] is False


def test_a_run_is_reported_even_if_no_node_answers_afterwards(
    planned: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    counters = DeliveryCounters(planned, RUN)
    _lost_one(planned, counters)
    looks = iter([[{"name": "district", **STATUS}]])

    def look(root: str, timeout: float) -> list[Status]:
        for statuses in looks:
            return statuses
        raise Unreachable(f"no root answers at {root} within {timeout} s", Reason.REASON_OWNER_UNREACHABLE)

    async def run(planned: Plan, play_options: PlayOptions) -> Result:
        return _result(planned, counters, effort=Effort(10.0, 2.0, 1.0, 0.5), lateness=Histogram())

    monkeypatch.setattr(sim, "node_statuses", look)
    monkeypatch.setattr(sim, "_run", run)
    assert main(["sim", "city", "--mqtt", "0", "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["total"]["broken"] == 1
    assert {node["node"]: node["messages_in"] for node in output["nodes"]} == {
        "district": None,
        "root": None,
    }


def test_the_table_of_rooms_shows_those_with_the_most_messages(planned: Plan) -> None:
    counters = DeliveryCounters(planned, RUN)
    _lost_one(planned, counters)
    result = _result(planned, counters, effort=Effort(10.0, 2.0, 1.0, None), lateness=Histogram())
    summary = summarise(result, [], [])
    header, rows, numbers = rooms_table(summary)
    assert len(summary.rooms) > MOST_ROOMS
    assert len(rows) == MOST_ROOMS + 1
    assert "more: --json" in rows[-1][0]
    assert set(numbers) < set(header)
    assert "an unknown share" in " ".join(summary_lines(summary))


@pytest.mark.parametrize(
    ("loop_s", "late_us", "text"),
    [
        (9.5, 0, "the simulator itself was the limit"),
        (1.0, 200_000, "events fired late"),
        (1.0, 10, "was kept"),
    ],
)
def test_the_limits_of_the_simulator_itself_are_reported(
    planned: Plan, loop_s: float, late_us: int, text: str
) -> None:
    lateness = Histogram()
    lateness.add(late_us)
    effort = Effort(10.0, loop_s, loop_s, None)
    summary = summarise(
        _result(planned, DeliveryCounters(planned, RUN), effort=effort, lateness=lateness), [], []
    )
    output = verdict(summary)
    assert any(text in line for line in output)
    assert "all that is promised was kept" in output, "a busy machine breaks no promise"


def test_the_stopwatch_measures_the_time_on_the_processor_and_in_the_loop() -> None:
    watch = Stopwatch()
    while (effort := watch.read()).cpu_s < 0.05:
        pass
    assert effort.seconds >= effort.loop_s > 0.02
    assert effort.starved is None or 0 <= effort.starved <= 1
