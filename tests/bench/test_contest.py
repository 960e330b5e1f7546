"""The contest: how it evaluates rounds, and a short contest of the installed brokers."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.apart import Ruler
from bench.contest import LOADS
from bench.contestants.brokers import Broker
from bench.contestants.kernel import parse_udplat, parse_udplimit
from bench.contestants.narrow import obstacle, with_mtu
from bench.contestants.peers import Mosquitto, Nats
from bench.plan import Plan
from bench.results.chart import Curve, Panel, Point, dots, lines
from bench.results.goals import GOALS, Figures, Goal, judge
from bench.results.report import apart_of, load_of
from bench.results.standings import PAGE, Standings, with_section
from bench.rounds import Round, Timing
from bench.series import Contestant, Policy, Series, Spread, run_all
from hbroker.bench.launching import NoAnswer
from hbroker.bench.layouts import LAYOUTS
from tests.bench.runs import assert_complete, has_two_cpus, measured, remaining_processes, start
from tests.waiting import until

_CPUS = frozenset({1})
_PAIRS = LOADS["pairs-0"](_CPUS)
_PACED = LOADS["latency"](_CPUS)

UDPLIMIT = (
    "msg_in/s 3426914 msg_out/s 3425708 | relay cpu 27% sender 38% sink 22% | msg/cpu-s 12865203 | "
    "others cpu 114%\n"
)
UDPLAT = (
    "relay blocks rate 2000: sent 4000 got 3999 | us p50 36.6 p90 52.8 p99 64.1 p99.9 1257.1 max 1749 | "
    "relay cpu 8.8%\n"
)


def a_round(**figures: object) -> Round:
    """A round of the kernel's limit, with these fields changed."""
    return dataclasses.replace(parse_udplimit(UDPLIMIT, 2, _PAIRS), others_cpu=0.0, **figures)  # type: ignore[arg-type]


def series_of(name: str, plan: Plan, *rounds: Round) -> Series:
    """A series, as if it had been measured."""

    def never(*_: object) -> Round:
        raise AssertionError("it was measured already")

    return Series(Contestant(name, lambda: "1", never), plan, quiet=list(rounds))


def test_the_output_of_udplimit_is_parsed() -> None:
    found = parse_udplimit(UDPLIMIT, 2, _PAIRS)
    assert found.delivered_per_s == 3_425_708
    assert found.delivered_per_cpu_s == 12_865_203
    assert (found.broker_cpu, found.broker_cpu_s) == pytest.approx((0.27, 0.54))
    assert (found.generator_cpu, found.others_cpu) == pytest.approx((0.60, 1.14))


def test_the_output_of_udplat_is_parsed() -> None:
    found = parse_udplat(UDPLAT, 2, _PACED)
    assert found.latency_us == {"p50": 36.6, "p90": 52.8, "p99": 64.1, "p999": 1_257.1}
    assert (found.sent, found.delivered) == (4_000, 3_999)
    assert found.broker_cpu == pytest.approx(0.088)


@pytest.mark.parametrize("line", ["", "relay cpu 27% sender", UDPLIMIT.replace("msg/cpu-s", "messages")])
def test_an_invalid_line_is_refused(line: str) -> None:
    with pytest.raises(NoAnswer):
        parse_udplimit(line, 2, _PAIRS)


def test_a_goal_is_held_from_its_factor_on() -> None:
    twice = Goal("load", "delivered_per_cpu_s", "we", 2, "they")
    near = Goal("load", "p50", "we", 1.25, "they", "at most")
    alone = Goal("load", "delivered_per_cpu_s", "we", 2.5e6, None)
    rates: Figures = {
        ("load", "we", "delivered_per_cpu_s"): 2.4e6,
        ("load", "they", "delivered_per_cpu_s"): 1.2e6,
    }
    times: Figures = {("load", "we", "p50"): 50.0, ("load", "they", "p50"): 39.0}
    goal_results = judge({**rates, **times}, [twice, near, alone])
    assert [goal_result.is_held for goal_result in goal_results] == [True, False, False]
    assert str(goal_results[0]) == "load, msg/broker CPU-s, we: at least 2 x they: 2.00: held"
    assert str(goal_results[2]) == "load, msg/broker CPU-s, we: at least 2.5 M: 2.40 M: not held"
    (unknown,) = judge(rates, [near])
    assert unknown.is_held is None
    assert str(unknown).endswith("not measured")


@pytest.mark.parametrize("peer", [Mosquitto(), Nats()])
def test_a_broker_that_is_not_installed_has_no_version(peer: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert peer.version() is None


def test_the_goals_are_about_the_measured_loads() -> None:
    loads = {load_of(plan(_CPUS)) for plan in LOADS.values()}
    assert {goal.load for goal in GOALS} == loads


@pytest.mark.parametrize("name", LOADS)
def test_every_load_has_a_layout_of_the_generator(name: str) -> None:
    plan = LOADS[name](_CPUS)
    layout, clients = plan.layout
    shape = LAYOUTS[layout].of(clients, 0)
    assert len(shape.publishers) == plan.pairs * plan.publishers
    assert len(shape.subscribers) == plan.pairs * plan.subscribers


def test_goals_are_ratios_of_medians() -> None:
    ours = series_of("hbroker", _PAIRS, *(a_round(delivered_per_cpu_s=rate) for rate in (4e6, 6e6, 5e6)))
    theirs = series_of("mosquitto", _PAIRS, *(a_round(delivered_per_cpu_s=rate) for rate in (8e4, 9e4, 1e5)))
    standings = Standings([ours, theirs], ["zenoh TCP is not installed: not measured"], "bench")
    (goal_result,) = (one for one in standings.goal_results() if one.found is not None)
    assert goal_result.goal.peer == "mosquitto"
    assert goal_result.found == pytest.approx(5e6 / 9e4)
    text = standings.as_text()
    assert "| hbroker " in text
    assert "zenoh TCP is not installed" in text
    assert "50 x mosquitto: 55.56: held" in text
    told = json.loads(json.dumps(standings.as_json()))
    assert [goal["held"] for goal in told["goals"]].count(True) == 1


def test_faults_of_every_round_are_in_the_table() -> None:
    one = series_of("hbroker", _PAIRS, a_round(lost=3), a_round(duplicated=1))
    one.disturbed.append(a_round(disordered=2))
    text = Standings([one], [], "bench").as_text()
    assert "| 3, 1, 2 " in text
    assert "3 lost, 1 duplicated, 2 disordered" in text


def test_charts_are_valid_xml_and_show_every_value() -> None:
    paced = dataclasses.replace(parse_udplat(UDPLAT, 2, _PACED), others_cpu=0.0)
    standings = Standings(
        [series_of("hbroker <1>", _PAIRS, a_round()), series_of("kernel", _PACED, paced)], [], "bench"
    )
    texts = [
        node.text for node in ElementTree.fromstring(standings.as_svg()).iter() if node.tag.endswith("text")
    ]
    assert {"hbroker <1>", "12.9 M", "kernel, p50", "36.6"} <= set(texts)
    plot = lines("title", "size", "cost", [Curve("a", [(1, 10), (1_000, 0)]), Curve("b", [(10, 5)])])
    circles = [node for node in ElementTree.fromstring(plot).iter() if node.tag.endswith("circle")]
    assert len(circles) == 3
    assert ElementTree.fromstring(dots([Panel("empty", "none", [])])) is not None
    assert ElementTree.fromstring(dots([Panel("one", "x", [Point("p", Spread(0, 0, 0))])])) is not None


def test_only_the_named_section_of_a_page_is_replaced() -> None:
    page = "before\n<!-- begin a -->\nold\n<!-- end a -->\nafter <!-- begin b --><!-- end b -->"
    once = with_section(page, "a", "new")
    assert once == "before\n<!-- begin a -->\n\nnew\n\n<!-- end a -->\nafter <!-- begin b --><!-- end b -->"
    assert with_section(once, "a", "new") == once
    with pytest.raises(ValueError, match="begin c"):
        with_section(page, "c", "new")


@pytest.mark.parametrize("name", ["peers", "growth", "pythons"])
def test_the_page_has_every_section(name: str) -> None:
    page = PAGE.read_text("utf-8")
    assert "new text" in with_section(page, name, "new text")


def test_a_failing_broker_is_given_up_and_the_others_are_measured() -> None:
    def fails(*_: object) -> Round:
        raise NoAnswer("it is gone")

    good = Contestant("good", lambda: "1", lambda *_: a_round())
    series = [Series(Contestant("bad", lambda: "1", fails), _PAIRS), Series(good, _PAIRS)]
    policy = Policy(3, Timing(0, 0), _CPUS, most_others=9, patience_s=0, most_s=60)
    assert sum(round is None for _, round in run_all(series, policy)) == 2
    assert series[0].failures == ["it is gone"] * 2
    assert len(series[1].quiet) == 3
    assert "bad, 8 pairs, QoS 0: 2 rounds failed: it is gone" in Standings(series, [], "bench").as_text()
    late = [Series(good, _PAIRS)]
    assert list(run_all(late, dataclasses.replace(policy, most_s=-1))) == []


def test_rounds_on_more_distant_cpus_do_not_count() -> None:
    distances = iter([320.0, 330.0, 60.0, 310.0, 55.0, 58.0, 70.0, 52.0, 54.0, 61.0])
    one = Series(Contestant("good", lambda: "1", lambda *_: a_round()), _PAIRS)
    policy = Policy(3, Timing(0, 0), _CPUS, most_others=9, patience_s=0, most_s=60)
    seen = []
    for _, round in run_all([one], dataclasses.replace(policy, apart=lambda: next(distances))):
        assert round is not None
        seen.append(round in one.quiet)
    # The first two rounds counted until a round ran on nearer CPUs.
    assert seen == [True, True, True, True, True]
    assert [round.apart_ns for round in one.quiet] == [58.0, 70.0, 61.0]
    assert [round.apart_ns for round in one.disturbed] == [330.0, 310.0]
    assert apart_of([one]) == (
        "From one CPU to the other and back: 58 to 70 ns in rounds that count; more in 2 others, up to 330"
    )
    assert apart_of([series_of("x", _PAIRS, a_round())]) == ""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.skipif(not has_two_cpus, reason="it wants two CPUs")
def test_the_ruler_measures_two_cpus_and_returns_none_otherwise(tmp_path: Path) -> None:
    one, other = sorted(os.sched_getaffinity(0))[:2]
    ruler = Ruler.build(tmp_path, (one, other))
    assert ruler is not None
    distance = ruler.measure()
    assert distance is not None
    assert 1 < distance < 1e6
    assert dataclasses.replace(ruler, cpus=(one, one)).measure() is None
    assert dataclasses.replace(ruler, program=tmp_path / "gone").measure() is None


@pytest.mark.skipif(obstacle() is not None, reason="a network namespace needs root")
def test_a_smaller_mtu_applies_to_one_thread_only() -> None:
    def mtu() -> int:
        return int(Path("/sys/class/net/lo/mtu").read_text())

    def in_namespace() -> str:
        return Path("/proc/thread-self/net/dev").read_text()

    before = in_namespace()
    inside = with_mtu(1_500, in_namespace)
    assert inside != before
    assert inside.count(":") == 1, "loopback alone"
    assert in_namespace().count(":") == before.count(":")
    assert mtu() > 1_500


@pytest.mark.skipif(not has_two_cpus, reason="a CPU for the broker and one for the load")
def test_a_short_contest_delivers_every_message() -> None:
    flags = ["--only", "hbroker", "--loads", "pairs-1,fanin", "--json", "--apart", "inf"]
    found = measured(start("bench.contest", *flags))
    assert found["left_out"] == []
    assert {(one["broker"], one["load"]) for one in found["series"]} == {
        ("hbroker", "8 pairs, QoS 1"),
        ("hbroker", "8 to 1, QoS 0"),
    }
    for one in found["series"]:
        assert_complete(one)


@pytest.mark.skipif(not has_two_cpus, reason="a CPU for the broker and one for the load")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_contest_and_its_processes(sent: signal.Signals) -> None:
    process = start("bench.contest", "--rounds", "9", "--duration", "2", "--only", "hbroker")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("round 1:")
    until(
        lambda: len(remaining_processes()) >= 3,
        "itself, a broker and its load run",
        20,
        found=remaining_processes,
    )
    process.send_signal(sent)
    told, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "messages in all rounds" in told
    assert not remaining_processes()
