"""`hbroker bench`: loads on real brokers are complete, and faults of a bad broker are reported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.contestants.peers import Mosquitto, Nats
from hbroker.bench.brokers import pids_at, running
from hbroker.bench.process import cpu_seconds, descendants
from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.runtime.launcher.run_directory import GatewayRun, NetworkRun, NodeRun
from tests.bench.brokers import broker_with
from tests.bench.runs import PERCENTILES, assert_all_received, bench
from tests.frame.checkout import ROOT
from tests.needs import need_mosquitto, need_nats
from tests.waiting import until

_CPUS = frozenset(sorted(os.sched_getaffinity(0))[:1])


def assert_has_broker_costs(found: dict[str, Any]) -> None:
    """The result contains the CPU time and the memory of the broker's processes."""
    assert found["broker_cpu_s"] > 0
    assert found["broker_rss_bytes"] > 1 << 20
    assert found["delivered_per_cpu_s"] > 0
    assert found["others_cpu"] >= 0


@pytest.mark.parametrize(
    "flags",
    [
        ["fanin", "-n", "3", "-q", "2", "--window", "30", "--payload", "2000"],
        ["fanout", "-n", "20", "-q", "1"],
        ["fanout", "-n", "50", "--sockets", "7"],
        ["fanout", "-n", "20", "-q", "2", "--sockets", "3"],
        ["pairs", "-n", "2", "-q", "1", "--transport", "mqtt5"],
    ],
)
def test_a_load_on_its_own_broker_is_complete(flags: list[str]) -> None:
    code, found = bench(*flags)
    assert_all_received(code, found)
    assert_has_broker_costs(found)
    assert found["lateness_us"] is None


def test_a_paced_load_keeps_its_rate_and_reports_its_lateness() -> None:
    code, found = bench("-n", "2", "--rate", "1000")
    assert_all_received(code, found)
    assert found["rate"] == 1_000
    # Half a second of the rate, and no more than is due.
    assert 400 <= found["sent"] <= 1_000 * (0.1 + found["seconds"] + 0.5)
    assert set(found["lateness_us"]) == PERCENTILES
    assert found["lateness_us"]["p50"] <= found["latency_us"]["p50"]


def test_a_polling_load_uses_more_cpu() -> None:
    (sleeping, found), (polling, found_polling) = (
        bench("-n", "1", "--rate", "100", *flags) for flags in ([], ["--poll"])
    )
    assert_all_received(sleeping, found)
    assert_all_received(polling, found_polling)
    assert found_polling["generator_cpu"] > 2 * found["generator_cpu"]


@pytest.mark.parametrize(("transport", "qos"), [("mqtt", "1"), ("mqtt5", "2")])
def test_a_load_on_mosquitto_is_complete(transport: str, qos: str, tmp_path: Path) -> None:
    need_mosquitto()
    with running(Mosquitto().start, tmp_path, _CPUS) as broker:
        to = f"{broker.address[0]}:{broker.address[1]}"
        flags = ["-n", "3", "-q", qos, "--transport", transport, "--to", to]
        code, found = bench(*flags, "--broker-pid", str(broker.pids[0]))
    assert_all_received(code, found)
    assert_has_broker_costs(found)


@pytest.mark.parametrize("layout", ["pairs", "fanin"])
def test_a_load_on_nats_is_complete(layout: str, tmp_path: Path) -> None:
    need_nats()
    with running(Nats().start, tmp_path, _CPUS):
        address = f"127.0.0.1:{json.loads((tmp_path / 'broker.conf').read_text())['port']}"
        code, found = bench(layout, "-n", "3", "--transport", "nats", "--to", address)
    assert_all_received(code, found)
    assert found["broker_cpu_s"] is None, "nobody said which processes it has"
    assert found["delivered_per_cpu_s"] is None


def test_lost_duplicated_disordered_and_damaged_messages_are_counted() -> None:
    kept: list[bytes] = []

    def behaviour(number: int, payload: bytes) -> list[bytes]:
        match number % 10:
            case 1:
                return []
            case 2:
                return [payload, payload]
            case 3:
                kept.append(payload)
                return []
            case 4:
                return [payload, kept.pop()]
            case 5:
                return [payload[:-1] + bytes([payload[-1] ^ 1])]
            case _:
                return [payload]

    with broker_with(behaviour) as address:
        code, found = bench("-n", "1", "--transport", "nats", "--rate", "1000", "--to", address)
    sent = found["sent"]
    of_each = [len(range(residue, sent, 10)) for residue in range(10)]
    assert code == FAILED
    assert sent > 100
    # A payload that is held back when the last message is sent is lost.
    assert found["lost"] == of_each[1] + of_each[5] + len(kept)
    assert found["duplicated"] == of_each[2]
    assert found["disordered"] == of_each[4]
    assert found["damaged"] == of_each[5]
    assert found["delivered"] == sent - found["lost"]


def test_a_broker_that_delivers_nothing_stalls_the_window_and_the_load_ends() -> None:
    with broker_with(lambda *_: []) as address:
        code, found = bench("-n", "1", "--transport", "nats", "--window", "8", "--to", address)
    assert code == FAILED
    assert found["stalls"] > 0
    assert found["lost"] == found["sent"] > 8
    assert found["latency_us"] is None


def test_idle_sessions_stay_open_and_their_memory_is_measured() -> None:
    code, found = bench("sessions", "-n", "300", "--duration", "0.4", seconds=None)
    assert (code, found["alive"]) == (DONE, 300), found
    assert 500 < found["bytes_each"] < 20_000
    assert found["connected_per_s"] > 0


def test_idle_mqtt_connections_stay_open_and_their_memory_is_measured(tmp_path: Path) -> None:
    need_mosquitto()
    with running(Mosquitto().start, tmp_path, _CPUS) as broker:
        to = f"{broker.address[0]}:{broker.address[1]}"
        pid = str(broker.pids[0])
        flags = ["-n", "100", "--transport", "mqtt", "--to", to, "--broker-pid", pid, "--duration", "0.4"]
        code, found = bench("sessions", *flags, seconds=None)
    assert (code, found["alive"]) == (DONE, 100), found
    assert found["bytes_each"] > 0


def test_a_resolution_without_a_cache_costs_one_query_and_one_response_at_any_depth() -> None:
    code, found = bench("resolve", "--depth", "2", "-n", "20", seconds=None)
    assert code == DONE
    assert [row["owner"] for row in found["depths"]] == ["node-0", "node-1", "node-2"]
    for row in found["depths"]:
        # A late query may be sent again.
        assert 1 <= row["packets_out"] < 2
        assert 1 <= row["packets_in"] < 2
        assert row["cached_ns"] < row["cold_us"]["p50"] * 1_000


def test_an_unreachable_broker_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with broker_with(lambda *_: []) as address:
        pass
    assert main(["bench", "--transport", "mqtt", "--to", address]) == FAILED
    assert "refused" in capsys.readouterr().err


def test_a_broker_that_ends_during_the_load_is_reported(tmp_path: Path) -> None:
    need_mosquitto()
    with running(Mosquitto().start, tmp_path, _CPUS) as broker:
        to = f"{broker.address[0]}:{broker.address[1]}"
        command = [sys.executable, "-m", "hbroker", "bench", "--transport", "mqtt", "--to", to]
        process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        until(lambda: cpu_seconds(broker.pids) > 0.1, "the load runs", 20)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == FAILED
    assert "a connection of the load ended" in errors


@pytest.mark.parametrize(
    "flags",
    [
        ["pears"],
        ["--transport", "nats"],
        ["--transport", "nats", "--to", "127.0.0.1:1", "--qos", "1"],
        ["--payload", "15"],
        ["--window", "5", "--open"],
        ["--window", "0"],
        ["--cpus", "x"],
        ["--cpus", "100000"],
        ["-n", "0"],
        ["resolve", "--to", "127.0.0.1:1"],
        ["sessions", "--transport", "nats"],
        ["--ca", "x", "--to", "127.0.0.1:1"],
        ["--ca", "x", "--transport", "mqtt"],
        ["--ca", "/none", "--transport", "mqtt", "--to", "127.0.0.1:1"],
        ["--broker-pid", "1"],
        ["--to", "127.0.0.1:1", "--workers", "2"],
        ["--to", "127.0.0.1:1", "--broker-cpus", "0"],
        ["--topics", "500001", "-n", "2"],
        ["tree", "--depth", "0"],
        ["join", "-n", "1001"],
    ],
)
def test_invalid_flags_are_refused_before_the_load_starts(flags: list[str]) -> None:
    assert main(["bench", *flags]) == USAGE


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        (
            "sessions",
            ["--qos=1", "--payload=99", "--rate=1", "--window=1", "--open", "--warm-up=1", "--topics=2"],
        ),
        ("resolve", ["--qos=0", "--duration=5", "--transport=hbroker", "--workers=1", "--broker-pid=1"]),
        ("join", ["--to=127.0.0.1:1", "--depth=1", "--open", "--rate=5", "--poll"]),
        ("tree", ["--to=127.0.0.1:1", "--transport=mqtt", "--ca=x"]),
        ("pairs", ["--depth=8"]),
    ],
)
def test_a_flag_without_effect_in_a_layout_is_refused_by_name(
    layout: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for flag in flags:
        assert main(["bench", layout, flag]) == USAGE
        assert f"{layout} has no use for {flag.partition('=')[0]}" in capsys.readouterr().err


def test_the_processes_of_a_network_are_found_by_any_of_its_addresses() -> None:
    node = NodeRun("root", "", "127.0.0.1:7700", "up", 1, None, 0)
    gateway = GatewayRun("gateway", ("mqtt://0.0.0.0:1883", "ws://0.0.0.0:8083/mqtt"), "up", 2, None, 0)
    network = NetworkRun("home", "home.yaml", os.getpid(), 0.0, (node,), (gateway,))
    ours = (os.getpid(), *descendants(os.getpid()))
    for port in (7700, 1883, 8083):
        assert pids_at(("127.0.0.1", port), [network]) == ours
    assert pids_at(("127.0.0.1", 1), [network]) == ()
    assert pids_at(("192.0.2.1", 7700), [network]) == (), "that is another machine (RFC 5737)"
