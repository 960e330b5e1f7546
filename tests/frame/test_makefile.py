"""The Makefile: every target that the documents name exists, is listed by `make help`, and runs existing
programs."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.frame.checkout import ROOT, run

TARGETS = ["bench", "check", "clean", "demo", "docs", "help", "proto", "soak", "test", "wheels"]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_help_lists_the_targets() -> None:
    listed = re.findall(r"^  make (\S+) +\S", run(["make"]).stdout, flags=re.MULTILINE)
    assert set(TARGETS) <= set(listed)
    assert run(["make", "help"]).stdout == run(["make"]).stdout


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_exists_and_runs_existing_programs(target: str) -> None:
    plan = run(["make", "--dry-run", "--always-make", target])
    assert plan.returncode == 0, plan.stderr
    for program in re.findall(r"\b[\w/]+\.(?:py|sh)\b", plan.stdout):
        assert (ROOT / program).is_file(), program
    for module in re.findall(r"-m (hbroker[\w.]*)", plan.stdout):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), module


def test_the_documents_name_only_existing_targets() -> None:
    listed = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        named = set(re.findall(r"(?:^|`)make ([a-z]+)\b", document.read_text("utf-8"), re.MULTILINE))
        assert named <= listed, document


def test_ci_runs_the_targets_of_a_developer() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert re.findall(r"^make (\w+)$", text, flags=re.MULTILINE) == ["check", "test"]


@pytest.mark.parametrize(
    ("missing", "advice"),
    [("cargo", "https://rustup.rs"), ("cc", "apt install gcc"), ("python3", "make PYTHON=")],
)
def test_a_missing_tool_is_reported_before_anything_is_built(
    tmp_path: Path, missing: str, advice: str
) -> None:
    _offer(tmp_path, {"bash", "cargo", "cc", "cut", "head", "java", "sort"} - {missing})
    (tmp_path / "python3").symlink_to(sys.executable if missing != "python3" else tmp_path / "nowhere")
    answer = run([tmp_path / "bash", ROOT / "scripts" / "preflight.sh"], PATH=str(tmp_path), PYTHON="python3")
    assert answer.returncode == 1
    assert missing.removesuffix("3").lower() in answer.stderr.lower()
    assert advice in answer.stderr


def test_preflight_prints_only_the_python(tmp_path: Path) -> None:
    _offer(tmp_path, {"bash", "cargo", "cc", "cut", "head", "sort"})
    (tmp_path / "python3").symlink_to(sys.executable)
    answer = run([tmp_path / "bash", ROOT / "scripts" / "preflight.sh"], PATH=str(tmp_path), PYTHON="python3")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == f"{tmp_path / 'python3'}\n"
    assert "java is missing" in answer.stderr


def _offer(directory: Path, programs: set[str]) -> None:
    """A directory that offers exactly these programs if it is the PATH."""
    for program in programs:
        found = shutil.which(program)
        if program == "cargo" or found is None:
            (directory / program).write_text("#!/bin/bash\necho cargo 99.0.0\n", encoding="utf-8")
            (directory / program).chmod(0o755)
        else:
            (directory / program).symlink_to(found)
