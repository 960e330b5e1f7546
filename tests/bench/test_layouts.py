"""`hbroker bench`: layouts with several groups, several topics, TLS, and joining nodes."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.contestants.peers import Mosquitto
from bench.secure import AUTHORITY, issue
from hbroker.bench.brokers import running
from hbroker.bench.layouts import LAYOUTS
from hbroker.bench.plan import Plan
from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED
from tests.bench.brokers import broker_with
from tests.bench.runs import PERCENTILES, assert_all_received, bench
from tests.needs import need_mosquitto

_CPUS = frozenset(sorted(os.sched_getaffinity(0))[:1])


def test_a_sparse_pair_is_measured_apart_from_its_neighbours() -> None:
    code, found = bench("mixed", "-n", "2", "--rate", "50", "-q", "1")
    assert_all_received(code, found)
    sparse, neighbours = found["groups"]
    assert (sparse["name"], sparse["publishers"], neighbours["publishers"]) == ("sparse", 1, 2)
    # Half a second of the rate, and no more than is due.
    assert 15 <= sparse["sent"] == sparse["delivered"] <= 50 * (0.1 + found["seconds"] + 0.5)
    assert neighbours["delivered_per_s"] > 4 * sparse["delivered_per_s"] > 0
    for group in (sparse, neighbours):
        assert set(group["latency_us"]) == PERCENTILES
    assert set(sparse["lateness_us"]) == PERCENTILES
    assert neighbours["lateness_us"] is None
    assert found["limit"] != "rate", "the neighbours have none"


def test_each_depth_of_a_tree_has_its_own_owner_and_figures() -> None:
    code, found = bench("tree", "--depth", "2", "-q", "1")
    assert_all_received(code, found)
    assert [group["owner"] for group in found["groups"]] == ["node-1", "node-2"]
    for group in found["groups"]:
        assert group["sent"] == group["delivered"] > 0
        assert set(group["latency_us"]) == PERCENTILES
    assert sum(group["sent"] for group in found["groups"]) == found["sent"]
    # The total is read a moment before its parts, and in ticks.
    assert 0 < sum(group["owner_cpu_s"] for group in found["groups"]) < found["broker_cpu_s"] + 0.1


@pytest.mark.parametrize("flags", [(), ("--sealed",)])
def test_joining_nodes_are_measured(flags: tuple[str, ...]) -> None:
    code, found = bench("join", "-n", "12", "--window", "5", seconds=None)
    assert (code, found["joined"], found["at_once"]) == (DONE, 12, 5), found
    assert 0 < found["join_us"]["p50"] <= found["join_us"]["p999"] < 30e6
    assert found["joined_per_s"] > 0
    assert found["packets_out"] >= 2, "JOIN, and JOIN again with its token (§5.1)"


@pytest.mark.parametrize("transport", ["hbroker", "mqtt"])
def test_a_publisher_uses_many_topics_in_turn(transport: str) -> None:
    flags = ["pairs", "-n", "2", "--topics", "30", "--rate", "2000", "-q", "1", "--transport", transport]
    code, found = bench(*flags)
    assert_all_received(code, found)
    assert (found["topics"], found["groups"]) == (30, [])


@pytest.mark.parametrize("topics", [1, 2])
def test_order_is_checked_for_each_topic(topics: int) -> None:
    kept: list[bytes] = []

    def behaviour(number: int, payload: bytes) -> list[bytes]:
        """Every second message overtakes the one before it."""
        if number % 2 == 0:
            kept.append(payload)
            return []
        return [payload, kept.pop()]

    with broker_with(behaviour) as address:
        flags = ["--transport", "nats", "--to", address, "--rate", "1000", "--topics", str(topics)]
        _, found = bench("pairs", "-n", "1", *flags)
    assert found["lost"] == len(kept), "one that is kept when the last was sent stays away"
    assert found["disordered"] == (found["sent"] // 2 if topics == 1 else 0)


def test_a_load_over_tls_trusts_only_the_given_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need_mosquitto()
    issue(tmp_path)
    # If root starts mosquitto, it becomes a user without access to the other directory.
    with (
        TemporaryDirectory() as directory,
        running(Mosquitto(tls=True).start, Path(directory), _CPUS) as broker,
    ):
        to = ["--transport", "mqtt", "--to", f"127.0.0.1:{broker.address[1]}"]
        code, found = bench("-n", "2", "-q", "1", *to, "--ca", str(Path(directory) / AUTHORITY))
        assert_all_received(code, found)
        assert main(["bench", *to, "--ca", str(tmp_path / AUTHORITY)]) == FAILED
        assert "certificate" in capsys.readouterr().err
        assert main(["bench", *to, "--ca", str(tmp_path / "host.key")]) == FAILED
        assert "there is no certificate" in capsys.readouterr().err
        assert main(["bench", *to]) == FAILED, "it is no plain listener"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_groups_of_a_layout_share_its_window_and_its_rate(layout: str) -> None:
    plan = Plan(layout, 3, 4, 1, "hbroker", 0, 64, 600, 1_200.0, 1.0, 1.0)
    shape = plan.shape
    paces = [plan.pace_of(group) for group in shape.groups]
    assert sum(publishers for publishers, _, _ in paces) == len(shape.publishers)
    assert sum(rate or 0 for _, _, rate in paces) == pytest.approx(1_200)
    assert sum(publishers * (window or 0) for publishers, window, _ in paces) == 600
    assert all(0 <= first < first + count <= len(shape.publishers) for _, first, count in shape.subscribers)
    heard = {number for _, first, count in shape.subscribers for number in range(first, first + count)}
    assert heard == set(range(len(shape.publishers)))
