"""The behaviour of an overloaded owner: how it is measured and reported."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from bench.overload import Overload, main
from hbroker.bench.measurement import Percentiles


def test_goodput_is_a_share_of_the_capacity() -> None:
    overload = Overload(
        capacity=1e6,
        offered=2e6,
        delivered=9e5,
        lost=0.01,
        answered_us=Percentiles(1_000.0, 2_000.0, 3_000.0, 4_000.0),
        longest_us=5_000.0,
        rss_before=2**20,
        rss_most=2**21,
        limit="broker",
        others_cpu=0.05,
    )
    assert overload.goodput == 0.9
    assert overload.cells()[3:10] == ("90%", "1.00%", "1.0", "3.0", "5.0", "1", "2")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a CPU for the owner, and one for the load")
def test_a_short_round_is_measured() -> None:
    cpus = os.sched_getaffinity(0)
    flags = ["--rounds", "1", "--duration", "0.5", "--warm-up", "0.2", "--topics", "10"]
    ran = CliRunner().invoke(main, flags)
    assert ran.exit_code == 0, ran.output
    lines = ran.stdout.splitlines()
    assert len(lines) == 4
    assert lines[-1].startswith("medians: ")
    assert os.sched_getaffinity(0) == cpus


def test_flags_without_effect_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in (["--json"], ["--most", "5"], ["--others", "1"]):
        with pytest.raises(SystemExit, match="2"):
            main(flag)
        assert f"No such option '{flag[0]}'" in capsys.readouterr().err
