"""The output and the exit codes of the commands."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hbroker.cli import main
from hbroker.cli.exits import DONE, FAILED, USAGE
from hbroker.cli.output import duration
from hbroker.runtime.launcher.run_directory import RunDirectory
from tests.runtime.launcher.launched import PATIENCE, Launch, await_gone, launch

__all__ = ["launch"]

PROJECT = Path(__file__).parent.parent.parent
HOME = str(PROJECT / "topologies" / "home.yaml")
BROKEN = str(PROJECT / "tests" / "topologies" / "many.yaml")
COMMANDS = [
    *("up", "status", "down", "check", "tree", "resolve", "move", "apply", "leave", "capture", "node"),
    *("analyze", "bench", "keys", "token", "join", "doctor", "log"),
]

Capture = pytest.CaptureFixture[str]

NODE = ["--name", "x", "--listen", "127.0.0.1:0", "--subtree"]


def usage_error(*arguments: str) -> None:
    assert main(arguments) == USAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_and_exit_codes(command: str, capsys: Capture) -> None:
    assert main([command, "--help"]) == DONE
    text = capsys.readouterr().out
    assert f"  hbroker {command}" in text
    assert "exit codes: 0 " in text
    assert all(len(line) <= 100 for line in text.split("\n"))


def test_help_of_the_module_loads_few_modules() -> None:
    code = "import sys; from hbroker.cli import main\nmain(['--help'])\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PROJECT,
        timeout=PATIENCE,
    )
    loaded = set(result.stdout.split())
    assert not loaded & {
        "asyncio",
        "yaml",
        "google.protobuf",
        "hbroker._native",
        "hbroker.runtime.launcher.launcher",
    }


def test_wrong_flags_exit_with_2(capsys: Capture) -> None:
    usage_error()
    usage_error("fly")
    usage_error("tree", "--timeout", "-1")
    usage_error("tree", "--root", "host:port")
    assert "'port' is not a port number" in capsys.readouterr().err


def test_check_reports_a_valid_file(capsys: Capture) -> None:
    assert main(["check", HOME]) == DONE
    assert capsys.readouterr().out == f"{HOME}: valid, 6 nodes\n"


def test_check_reports_file_line_and_remedy(capsys: Capture) -> None:
    assert main(["check", HOME, BROKEN]) == USAGE
    captured = capsys.readouterr()
    assert captured.out == f"{HOME}: valid, 6 nodes\n"
    assert f"{BROKEN}:4: node 3 has an unknown key 'nam'; did you mean `name`?\n" in captured.err
    assert len(captured.err.splitlines()) > 8


def test_check_reports_errors_as_json(capsys: Capture) -> None:
    assert main(["check", "--json", HOME, BROKEN]) == USAGE
    result = json.loads(capsys.readouterr().out)
    assert result["valid"] is False
    assert [file["valid"] for file in result["files"]] == [True, False]
    assert {"file", "line", "message", "remedy"} == set(result["files"][1]["errors"][0])


def test_up_refuses_a_file_that_check_refuses(tmp_path: Path, capsys: Capture) -> None:
    main(["check", BROKEN])
    told = capsys.readouterr().err
    assert main(["up", BROKEN, "--state-dir", str(tmp_path)]) == USAGE
    assert capsys.readouterr().err == told
    assert list(tmp_path.iterdir()) == []


def test_up_refuses_a_port_in_use(tmp_path: Path, capsys: Capture) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        file = tmp_path / "one.yaml"
        file.write_text(f'nodes: [{{name: root, subtree: "", listen: "127.0.0.1:{port}"}}]')
        assert main(["up", str(file), "--state-dir", str(tmp_path)]) == FAILED
    assert f"127.0.0.1:{port} is in use by another process" in capsys.readouterr().err
    assert RunDirectory(tmp_path, "one").launcher() is None


def test_status_and_down_report_that_no_network_runs(tmp_path: Path, capsys: Capture) -> None:
    assert main(["status", "--state-dir", str(tmp_path)]) == FAILED
    assert main(["status", "house", "--state-dir", str(tmp_path)]) == FAILED
    assert main(["down", "--state-dir", str(tmp_path)]) == DONE
    assert capsys.readouterr().out == "no network runs\nhouse does not run\nno network runs\n"
    assert main(["status", "--json", "--state-dir", str(tmp_path)]) == FAILED
    assert json.loads(capsys.readouterr().out) == {
        "network": None,
        "up": False,
        "nodes": [],
        "gateways": [],
        "bridges": [],
        "admin": None,
    }


def test_status_and_down_of_a_running_network(launch: Launch, capsys: Capture) -> None:
    launched = launch("well")
    launched.event("ready")
    state = ["--state-dir", str(launched.base)]
    pids = launched.pids()
    assert main(["status", "--json", *state]) == DONE
    status = json.loads(capsys.readouterr().out)
    assert (status["network"], status["up"], status["pid"]) == ("house", True, launched.process.pid)
    assert [node["pid"] for node in status["nodes"]] == pids
    assert main(["status", "house.yaml", *state]) == DONE
    assert "house: 3 of 3 nodes up" in capsys.readouterr().out
    assert main(["down", *state]) == DONE
    assert capsys.readouterr().out == "stopped house\n"
    await_gone([*pids, launched.process.pid])
    assert main(["status", *state]) == FAILED


def test_status_fails_if_a_node_is_down(launch: Launch) -> None:
    launched = launch("failing")
    launched.event("ended")
    assert main(["status", "--state-dir", str(launched.base)]) == FAILED


def test_status_fails_after_the_launcher_was_killed(launch: Launch) -> None:
    launched = launch("well")
    launched.event("ready")
    os.kill(launched.process.pid, signal.SIGKILL)
    await_gone([launched.process.pid])
    assert main(["status", "--state-dir", str(launched.base)]) == FAILED


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--name", "x"], "has no `subtree`"),
        (["--name", "x", "--subtree", "a"], "has no `listen`"),
        ([*NODE, "a"], "no root to join for the subtree 'a'; add --root"),
        ([*NODE, "", "--root", "127.0.0.1:1"], "joins nobody"),
        ([*NODE, "a//b", "--root", "127.0.0.1:1"], "write 'a/b'"),
        ([*NODE, "", "--workers", "x"], "write a whole number from 1"),
        ([*NODE, "", "--sessions", "0"], "sessions is 0, out of range"),
        (["--name", "x", "--config", HOME], "no node is called 'x'; name one of root, bedroom, "),
        (["--name", "root", "--config", HOME, "--workers", "2"], "--workers does not go with --config"),
        (["--name", "root", "--config", BROKEN], "many.yaml:2: "),
    ],
)
def test_node_refuses_wrong_flags(arguments: list[str], told: str, capsys: Capture) -> None:
    assert main(["node", *arguments]) == USAGE
    assert told in capsys.readouterr().err


def test_a_duration_is_printed_with_sensible_precision() -> None:
    told = [duration(seconds) for seconds in (0.042, 9.99, 59.4, 61, 3_700, 90_000)]
    assert told == ["0.04 s", "9.99 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]
