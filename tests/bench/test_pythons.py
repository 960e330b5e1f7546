"""The cost of a message in Python: counting, pacing, the table, and a short run with hbroker alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.plan import Plan
from bench.pythons.__main__ import as_text, main, series_of
from bench.pythons.board import (
    BURST,
    PAYLOAD_BYTES,
    Board,
    Field,
    Pace,
    ReceiveChecker,
    new_board,
    own_cost_us,
)
from bench.pythons.libraries import LIBRARIES
from bench.pythons.rounds import PythonRound
from bench.series import Contestant, Series
from tests.bench.runs import has_two_cpus, measured, start
from tests.frame.checkout import ROOT

_CPUS = frozenset({1})


def _payloads(count: int) -> list[bytes]:
    """The first messages of a publisher, in complete bursts."""
    bursts = Pace(new_board(), count).bursts()
    return [payload for _ in range(count // BURST) for payload in next(bursts)]


def _counted(payloads: list[bytes], published: int) -> Board:
    """The board of a subscriber that received these payloads of `published` messages."""
    board = new_board()
    checker = ReceiveChecker(board)
    for payload in payloads:
        checker.take(payload)
    board[Field.PUBLISHED], board[Field.HAS_PUBLISHED] = published, 1
    checker.wait()
    return board


def _faults(board: Board) -> list[int]:
    return [board[field] for field in (Field.LOST, Field.DUPLICATED, Field.DISORDERED, Field.DAMAGED)]


def test_a_publisher_keeps_to_its_window() -> None:
    board = new_board()
    bursts: Iterator[list[bytes]] = Pace(board, 2 * BURST).bursts()
    first, second = next(bursts), next(bursts)
    assert {len(payload) for payload in first + second} == {PAYLOAD_BYTES}
    assert len(set(first + second)) == 2 * BURST == board[Field.PUBLISHED]
    board[Field.IS_OVER] = 1
    assert next(bursts, None) is None
    board[Field.IS_OVER], board[Field.DELIVERED] = 0, BURST
    assert next(Pace(board, 2 * BURST).bursts())
    assert board[Field.PUBLISHED] == 3 * BURST


def test_messages_received_once_and_in_order_have_no_faults() -> None:
    assert _faults(_counted(_payloads(BURST), BURST)) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("order", "faults"),
    [
        ([0, 2, 1, 3], [0, 0, 1, 0]),
        ([0, 1, 1, 2, 3], [0, 1, 0, 0]),
        ([0, 2, 1, 1, 3], [0, 1, 1, 0]),
    ],
)
def test_disordered_and_duplicated_messages_are_counted(order: list[int], faults: list[int]) -> None:
    payloads = _payloads(BURST)
    assert _faults(_counted([payloads[number] for number in order], 4)) == faults


def test_lost_messages_are_counted_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.pythons.board._LAST_S", 0.0)
    payloads = _payloads(BURST)
    assert _faults(_counted([payloads[0], payloads[3]], 6)) == [4, 0, 0, 0]


def test_damaged_messages_are_counted() -> None:
    first, *_ = _payloads(BURST)
    assert _faults(_counted([first[:-1] + b"?"], 1)) == [0, 0, 0, 1]


def test_the_cost_of_the_measurement_is_small() -> None:
    assert all(0 < cost < 50 for cost in own_cost_us())


def _round(publisher_us: float) -> PythonRound:
    return PythonRound(
        broker="x",
        qos=0,
        pairs=1,
        subscribers=1,
        rate=None,
        seconds=1.0,
        delivered_per_s=1e5,
        delivered_per_cpu_s=1e6,
        broker_cpu=0.1,
        broker_cpu_s=0.1,
        generator_cpu=0.97,
        sent=100_000,
        delivered=100_000,
        publisher_us=publisher_us,
        subscriber_us=2.5,
        broker_us=1.0,
    )


def test_the_table_has_medians_and_extremes() -> None:
    def never(*_: object) -> PythonRound:
        raise AssertionError("it was measured already")

    rounds = [_round(cost) for cost in (3.0, 1.0, 2.0)]
    one = Series(Contestant("x", lambda: "x 1", never), Plan(1, 0, 4_096, None, _CPUS), quiet=[*rounds])
    other = Series(Contestant("y", lambda: "y 2", never), Plan(1, 1, 4_096, None, _CPUS), failures=["gone"])
    text = as_text([one, other], ["z is not installed: not measured"], "command", (0.25, 0.5))
    (line,) = (line for line in text.splitlines() if line.startswith("| x "))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:5] == ["x", "QoS 0", "100 k (100 k-100 k)", "2.00 (1.00-3.00)", "2.50 (2.50-2.50)"]
    assert cells[5:] == ["1.00 (1.00-1.00)", "10%", "97%", "ends", "0, 0, 0", "3 of 3"]
    for words in ("x 1; y 2", "0.25 µs at the publisher", "y, 1 pair, QoS 1: gone", "z is not installed"):
        assert words in text


def test_libraries_without_support_for_a_qos_are_left_out() -> None:
    series, left_out = series_of(LIBRARIES, [1], 4_096, _CPUS)
    names = {one.contestant.name for one in series}
    assert {"hbroker, try_publish", "hbroker, publish_many", "hbroker.sync, try_publish"} <= names
    assert not names & {"nats-py", "eclipse-zenoh"}
    assert all(said.endswith("not measured") for said in left_out)


def test_the_command_prints_its_usage() -> None:
    asked = [sys.executable, "-m", "bench.pythons", "--help"]
    output = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert all(flag in output for flag in ("--rounds", "--duration", "--window", "--only", "--write"))


@pytest.mark.parametrize("flags", [["--window", "255"], ["--only", "paho"], ["--qos", "2"]])
def test_invalid_flags_are_refused(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(flags)
    assert flags[0] in capsys.readouterr().err


@pytest.mark.skipif(not has_two_cpus, reason="a CPU for the broker and one for the load")
@pytest.mark.parametrize("name", [one.name for one in LIBRARIES if one.package == "hbroker"])
def test_every_message_of_a_short_run_arrives(name: str) -> None:
    found = measured(start("bench.pythons", "--only", name, "--duration", "1", "--json"))
    assert found["left_out"] == []
    assert {one["broker"] for one in found["series"]} == {name}
    for one in found["series"]:
        (round,) = one["quiet_rounds"]
        assert round["sent"] == round["delivered"] > 0
        faults = ("lost", "duplicated", "disordered", "corrupted")
        assert [round[fault] for fault in faults] == [0, 0, 0, 0], round
