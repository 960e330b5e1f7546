"""The launcher with real processes: a killed process is started again, and none is left at the end."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from hbroker.runtime.launcher.run_directory import running
from tests.runtime.launcher.launched import PATIENCE, Launch, await_gone, launch
from tests.waiting import until

__all__ = ["launch"]


def test_ready_is_reported_once_every_node_is_ready(launch: Launch) -> None:
    launched = launch("well")
    ready = launched.event("ready")
    assert ready["root"] == "127.0.0.1:7700"
    assert [node["name"] for node in ready["nodes"]] == ["root", "bedroom", "kitchen"]
    pids = launched.pids()
    assert len(set(pids)) == 3
    assert launched.process.pid not in pids
    assert all(psutil.Process(pid).ppid() == launched.process.pid for pid in pids)
    assert [directory.network for directory in running(launched.base)] == ["house"]
    assert launched.directory.launcher() == launched.process.pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_processes_in_time(launch: Launch, number: signal.Signals) -> None:
    launched = launch("well")
    launched.event("ready")
    pids = launched.pids()
    launched.process.send_signal(number)
    assert launched.event("stopped")["seconds"] < 3.0
    assert launched.process.wait(PATIENCE) == 0
    await_gone(pids)
    assert launched.directory.launcher() is None
    assert {node.state for node in launched.state().nodes} == {"down"}
    assert launched.pids() == []


def test_sighup_is_passed_on_to_the_nodes_and_ends_no_process(launch: Launch) -> None:
    launched = launch("hearing")
    launched.event("ready")
    before = launched.pids()
    launched.process.send_signal(signal.SIGHUP)
    for name in ("root", "kitchen", "bedroom"):
        log = launched.directory.log_file(name)
        until(lambda log=log: "SIGHUP" in log.read_text(), f"{name} is told", PATIENCE)  # type: ignore[misc]
    assert launched.pids() == before
    assert launched.process.poll() is None
    launched.process.send_signal(signal.SIGTERM)
    launched.event("stopped")


def test_a_killed_gateway_is_started_again_with_the_same_ports(launch: Launch) -> None:
    launched = launch("gateways")
    urls = ["mqtt://127.0.0.1:4242", "ws://[::1]:4242/mqtt"]
    assert launched.event("ready")["gateways"] == [{"name": "gate", "listeners": urls}]
    before = launched.pid("gate")
    os.kill(before, signal.SIGKILL)
    assert launched.event("ended")["node"] == "gate"
    assert launched.event("back")["node"] == "gate"
    (gate,) = launched.state().gateways
    assert (list(gate.listeners), gate.state, gate.restarts) == (urls, "up", 1)
    assert gate.pid not in (None, before)
    assert launched.state().is_up
    pids = launched.pids()
    launched.process.send_signal(signal.SIGTERM)
    launched.event("stopped")
    await_gone(pids)


def test_a_process_that_ignores_sigterm_is_killed(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    pids = launched.pids()
    launched.process.send_signal(signal.SIGINT)
    assert 1.9 < launched.event("stopped")["seconds"] < 3.0
    await_gone(pids)


def test_a_second_signal_kills_at_once(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    launched.process.send_signal(signal.SIGINT)
    launched.process.send_signal(signal.SIGTERM)
    assert launched.event("stopped")["seconds"] < 1.9


def test_a_killed_node_is_started_again(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    before = launched.pid("kitchen")
    others = launched.pid("root"), launched.pid("bedroom")
    os.kill(before, signal.SIGKILL)
    ended = launched.event("ended")
    assert (ended["node"], ended["how"]) == ("kitchen", "SIGKILL")
    back = launched.event("back")
    assert back["node"] == "kitchen"
    assert back["seconds"] < 5.0
    launched.process.send_signal(signal.SIGTERM)
    launched.event("stopped")
    kitchen = next(node for node in launched.state().nodes if node.name == "kitchen")
    assert kitchen.restarts == 1
    await_gone([before, *others])


def test_nodes_end_with_a_launcher_that_is_killed(launch: Launch) -> None:
    launched = launch("stubborn")
    launched.event("ready")
    pids = launched.pids()
    assert len(pids) == 3
    launched.process.kill()
    await_gone(pids)
    assert launched.directory.launcher() is None
    assert running(launched.base) == []


def test_the_last_line_of_a_failed_node_is_reported_and_the_node_is_started_again(launch: Launch) -> None:
    launched = launch("failing")
    for _ in range(6):
        ended = launched.event("ended")
        assert ended["how"] == "exit code 1"
        assert ended["last_line"] == f"OSError: {ended['node']} has no luck"
    assert ended["restart_in_s"] > 0.25
    launched.process.send_signal(signal.SIGINT)
    launched.event("stopped")


def test_a_node_inherits_no_descriptor_of_its_launcher(launch: Launch) -> None:
    launched = launch("inspecting")
    launched.event("ready")
    for name in ("root", "kitchen", "bedroom"):
        lines = launched.directory.log_file(name).read_text().splitlines()
        assert lines == ["descriptors [0, 1, 2, 3] leader True", f"hello from {name}"]


def test_ctrl_c_in_the_terminal_reaches_only_the_launcher(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    assert all(os.getpgid(pid) == pid for pid in launched.pids())


def test_the_same_network_does_not_start_twice(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    second = launch("well")
    assert second.process.wait(PATIENCE) == 1
    assert second.process.stderr is not None
    assert "the network 'house' runs already" in second.process.stderr.read()
    assert launched.directory.launcher() == launched.process.pid
