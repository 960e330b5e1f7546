"""Imports go downward only (docs/architecture.md, "Layers"). The contracts are in pyproject.toml."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frame.checkout import ROOT, python_sources, run

BELOW_THE_PUBLIC_API = (
    "_proto",
    "addresses.py",
    "config.py",
    "errors.py",
    "gateway",
    "hostnames.py",
    "identity",
    "properties.py",
    "protocol",
    "rights",
    "runtime",
    "subtree.py",
    "topic_filters.py",
    "topology",
)
BESIDE_ITS_MODULES = {"_native"}
"""The one submodule of `hbroker` that is not a Python file."""


def test_the_import_contracts_are_kept() -> None:
    answer = run(["lint-imports", "--no-cache"])
    assert answer.returncode == 0, answer.stdout
    assert "0 broken" in answer.stdout


@pytest.mark.parametrize(
    ("module", "line", "contracts"),
    [
        ("errors.py", "import hbroker.config", ["downward"]),
        ("config.py", "from hbroker.protocol import timers", ["downward", "sibling"]),
        ("protocol/offender.py", "import hbroker.runtime", ["downward", "sibling"]),
        ("protocol/offender.py", "import time", ["no clock"]),
        ("protocol/offender.py", "def late():\n    from asyncio import sleep", ["no clock"]),
        ("protocol/ownership/offender.py", "from hbroker.protocol.handover import recovery", ["sibling"]),
        ("runtime/offender.py", "from hbroker import cli", ["downward", "sibling"]),
        ("../clients/offender.py", "from hbroker.protocol import timers", ["public API"]),
        ("../spark_analysis/offender.py", "import hbroker.errors", ["downward"]),
        ("../spark_analysis/offender.py", "from hbroker.topology import load", ["downward"]),
    ],
)
def test_a_forbidden_import_breaks_its_contracts(
    tmp_path: Path, module: str, line: str, contracts: list[str]
) -> None:
    copy = _copy_of_the_package(tmp_path)
    with (copy / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    answer = run(["lint-imports", "--no-cache"], cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert answer.returncode == 1, answer.stdout
    broken = [text for text in answer.stdout.splitlines() if text.endswith("BROKEN")]
    assert len(broken) == len(contracts)
    assert all(contract in text for contract, text in zip(contracts, broken, strict=True))


def test_no_layer_imports_the_public_api() -> None:
    for path in python_sources("hbroker"):
        if path.relative_to(ROOT / "hbroker").parts[0] in BELOW_THE_PUBLIC_API:
            assert list(_names_of_the_package(path)) == [], path


def test_the_commands_do_not_import_the_native_core() -> None:
    for path in python_sources("clients"):
        assert "hbroker._native" not in set(_imported(path)), path


def _names_of_the_package(path: Path) -> Iterator[str]:
    """The names that a file imports from `hbroker` itself: names of the public API, not modules."""
    for name in _imported(path):
        head, _, rest = name.partition(".")
        if head == "hbroker" and not (_is_module(rest) or rest.partition(".")[0] in BESIDE_ITS_MODULES):
            yield name


def _is_module(dotted: str) -> bool:
    """Whether the first part is a module or package of `hbroker`."""
    first = dotted.partition(".")[0]
    top = ROOT / "hbroker"
    return bool(first) and ((top / f"{first}.py").is_file() or (top / first).is_dir())


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _copy_of_the_package(tmp_path: Path) -> Path:
    """A copy of the Python packages, with links kept as links, beside the contracts."""
    for name in ("hbroker", "clients", "sim", "spark_analysis"):
        shutil.copytree(
            ROOT / name,
            tmp_path / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("native", "*.so", "*.pyc"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path / "hbroker"
