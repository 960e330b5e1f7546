"""The checkout under test: its place, its sources, and how to run a program in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
RUST: Final = ROOT / "hbroker" / "native" / "src"

_MADE = {"__pycache__", "target", "_proto", "site", "node_modules"}


def python_sources(*tops: str) -> Iterator[Path]:
    """The hand-written Python files in these directories of the checkout. Links are not followed."""
    for top in tops:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not _MADE.intersection(path.relative_to(ROOT).parts):
                yield path


def rust_sources() -> list[Path]:
    """The hand-written files of the crate (`schema.rs` is generated)."""
    return [path for path in sorted(RUST.rglob("*.rs")) if path.name != "schema.rs"]


def is_rust_test(path: Path) -> bool:
    """Whether a file of the crate has nothing but tests: it is `tests.rs`, or somewhere below a `tests`."""
    return "tests" in path.relative_to(RUST).with_suffix("").parts


def rust_code(path: Path) -> str:
    """A Rust file without its comments, doc comments included."""
    return re.sub(r"//.*", "", path.read_text(encoding="utf-8"))


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, with this environment's programs first on PATH. Captures its output.

    The program does not inherit the variables of a `make` that started the tests.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**inherited, "PATH": path, **env},
        capture_output=True,
        text=True,
        check=False,
    )
