"""The generated pages are current, and the generator's check notices if they are not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.frame.checkout import ROOT, run

DIAGRAMS = [sys.executable, "-m", "scripts.diagrams"]


def test_the_diagrams_are_current() -> None:
    check = run([*DIAGRAMS, "--check"])
    assert check.returncode == 0, check.stdout + check.stderr


def test_the_diagrams_do_not_depend_on_the_order_of_sets() -> None:
    for seed in ("1", "2"):
        check = run([*DIAGRAMS, "--check"], PYTHONHASHSEED=seed)
        assert check.returncode == 0, check.stdout + check.stderr


def test_the_check_fails_if_a_page_differs(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    for name in ("states.md", "lives.md"):
        shutil.copy(ROOT / "docs" / name, tmp_path / "docs")
    page = tmp_path / "docs" / "states.md"
    page.write_text(page.read_text("utf-8").replace("AWAIT_GRANT", "AWAIT_GRAND"), "utf-8")
    check = run([*DIAGRAMS, "--check"], cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert (check.returncode, check.stdout) == (
        1,
        "docs/states.md: differs from the code: run make diagrams\n",
    )
    assert run(DIAGRAMS, cwd=tmp_path, PYTHONPATH=str(ROOT)).returncode == 0
    assert page.read_text("utf-8") == (ROOT / "docs" / "states.md").read_text("utf-8")
