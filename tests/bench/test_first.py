"""`make bench`, in short: it measures real brokers, finds them whole, and leaves no process behind."""

from __future__ import annotations

import signal

import pytest

from tests.bench.runs import assert_whole, has_two_cpus, left_behind, measured, start
from tests.waiting import until

pytestmark = pytest.mark.skipif(not has_two_cpus, reason="a CPU for the broker and one for the load")


def test_what_it_measures_is_whole() -> None:
    series = measured(start("bench.first", "--pairs", "2", "--rate", "1000", "--json"))["series"]
    assert {(one["qos"], one["rate"]) for one in series} == {(0, None), (1, None), (0, 1000), (1, 1000)}
    for one in series:
        assert_whole(one)
        (round,) = one["quiet_rounds"]
        assert one["rate"] is not None or round["delivered"] > 1_000 * round["seconds"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all(sent: signal.Signals) -> None:
    process = start("bench.first", "--rounds", "9", "--duration", "2")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("round 1:")
    until(lambda: len(left_behind()) >= 3, "itself, a broker and its load run", 20, found=left_behind)
    process.send_signal(sent)
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "messages in all rounds" in told
    assert not left_behind()
