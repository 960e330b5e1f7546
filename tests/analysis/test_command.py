"""`hbroker analyze` as a user runs it: its output and how it ends."""

from __future__ import annotations

import ast
import json
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import psutil
import pytest

from hbroker.cli import main
from hbroker.cli.analysis.analyze import analyze
from hbroker.cli.analysis.follow import FollowFlags
from hbroker.cli.exits import DONE, FAILED, INTERRUPTED, USAGE
from hbroker.spark_analysis import session
from hbroker.spark_analysis.errors import NotInstalled
from hbroker.spark_analysis.follow import Settings
from tests.analysis import files
from tests.analysis.test_tables import node_row
from tests.frame.checkout import ROOT, python_sources
from tests.waiting import until

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

PATIENCE_S = 500.0
MAY_IMPORT = {"click", "py4j", "pyspark", "rich"}

QUICK = (
    *("--conf", "spark.sql.shuffle.partitions=2"),
    *("--conf", "spark.sql.codegen.wholeStage=false"),
    *("--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"),
)
"""For twelve rows no code generation is worth its time."""


def test_analyze_writes_a_report_and_a_summary_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    files.write_all(tmp_path / "in", "nodes", [node_row("a", i, messages_in=i) for i in range(12)])
    (tmp_path / "in" / "notes.txt").write_text("no telemetry")
    ran = subprocess.run(
        _command(tmp_path, "--json", *QUICK), capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S
    )
    assert ran.returncode == DONE, ran.stderr
    told = json.loads(ran.stdout)
    assert told["rows"] == {"topics": 0, "nodes": 12}
    assert told["imbalance"]["node"]["load"] == sum(range(12))
    assert [Path(file["path"]).name for file in told["skipped"]] == ["notes.txt"]
    assert (tmp_path / "out" / "report.html").read_text("utf-8").startswith("<!doctype html>")
    steps = ran.stderr.splitlines()
    assert all(" s  " in line for line in steps), steps
    assert steps[-1].endswith("report")
    assert (tmp_path / "out" / "spark.log").is_file()


def test_ctrl_c_ends_analyze_and_its_java_process(tmp_path: Path) -> None:
    files.write_all(tmp_path / "in", "nodes", [node_row("a", i) for i in range(12)])
    process = subprocess.Popen(
        _command(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert process.stderr is not None
        assert "files" in process.stderr.readline()
        assert "run: " in process.stderr.readline()
        java = psutil.Process(process.pid).children(recursive=True)
        assert java
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == INTERRUPTED
        assert rest == ""
        until(lambda: not any(_runs(child) for child in java), "Java has ended", PATIENCE_S)
        assert not (tmp_path / "out" / "report.html").exists()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.usefixtures("without_java")
def test_analyze_without_java_says_what_to_install(tmp_path: Path, capsys: Capture) -> None:
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == FAILED
    assert "apt install default-jre-headless" in capsys.readouterr().err


@pytest.mark.usefixtures("without_java")
def test_a_java_that_is_too_old_is_refused(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_292\"' >&2\n")
    java.chmod(0o755)
    with pytest.raises(NotInstalled, match="is Java 8"):
        session.require_java()


def test_analyze_without_pyspark_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    for module in [name for name in sys.modules if name.startswith("hbroker.spark_analysis")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert main(["analyze", str(tmp_path), "--out", str(tmp_path / "out")]) == FAILED
    assert "pip install 'hbroker[analysis]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["x"], ["x", "--out", "y", "--window", "0"], ["x", "--out", "y", "--conf", "z"]),
        *(["x", "--out", "y", "--since", text] for text in ("yesterday", "30")),
        ["x", "--out", "y", "--all-runs", "--run", "2026-03-01"],
        *(["x", "--out", "y", "--follow", "--alert-busy", pair] for pair in ("0", "0.9,0.5", "high")),
    ],
)
def test_invalid_flags_are_refused(arguments: list[str]) -> None:
    assert main(["analyze", *arguments]) == USAGE


def test_the_flags_of_follow_have_the_defaults_of_its_settings() -> None:
    with analyze.make_context("analyze", ["x", "--out", "y", "--follow"]) as context:
        flags = FollowFlags(**{field.name: context.params[field.name] for field in fields(FollowFlags)})
    assert flags.settings(None) == Settings()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--late", "5"], "--late goes with --follow"),
        (["--no-publish"], "--no-publish goes with --follow"),
        (["--follow", "--top", "3"], "--top does not go with --follow"),
        (["--follow", "--since", "30m"], "--since does not go with --follow"),
        (["--follow", "--run", "2026-03-01"], "--run does not go with --follow"),
        (["--follow", "--all-runs"], "--all-runs does not go with --follow"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: list[str], said: str, capsys: Capture) -> None:
    assert main(["analyze", "x", "--out", "y", *flags]) == USAGE
    assert said in capsys.readouterr().err


def test_the_analysis_imports_nothing_of_hbroker() -> None:
    """Nor anything that an executor or the driver in a cluster may lack."""
    for path in python_sources("spark_analysis"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            for name in names:
                top = name.partition(".")[0]
                assert top in MAY_IMPORT | set(sys.stdlib_module_names), f"{path}: {name}"


def _runs(process: psutil.Process) -> bool:
    """Whether the process still runs. A process that has ended may be a zombie."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command(place: Path, *more: str) -> list[str]:
    return [
        sys.executable,
        *("-m", "hbroker", "analyze", str(place / "in"), "--out", str(place / "out")),
        *("--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2", *more),
    ]
