"""Rules for every source file that no other tool checks."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.frame.checkout import ROOT, python_sources, rust_sources

LONGEST_FILE = 700
LONGEST_FUNCTION = 60
LONGEST_LINE_OF_TEXT = 120
FULLEST_FOLDER = 16
GENERATED_PAGES = ("benchmarks.md", "states.md")
TOPS = ("bench", "clients", "hbroker", "scripts", "sim", "spark_analysis", "tests")

# Written so that this file does not match.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|\b(to" r"do|unimple" r"mented)!")


def test_no_file_is_too_long() -> None:
    for path in [*python_sources(*TOPS), *rust_sources()]:
        assert len(path.read_text("utf-8").splitlines()) <= LONGEST_FILE, path


def test_no_folder_is_too_full() -> None:
    folders = Counter(path.parent for path in [*python_sources(*TOPS), *rust_sources()])
    assert not {str(folder): files for folder, files in folders.items() if files > FULLEST_FOLDER}


def test_no_function_is_too_long() -> None:
    for path in python_sources(*TOPS):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                assert lines <= LONGEST_FUNCTION, f"{path}:{node.lineno} {node.name}"


def test_every_module_has_a_docstring() -> None:
    for path in python_sources(*TOPS):
        tree = ast.parse(path.read_text("utf-8"))
        assert ast.get_docstring(tree) or not tree.body, path
    for path in rust_sources():
        assert path.read_text("utf-8").startswith(("//!", "#!")), path


def test_nothing_is_marked_as_unfinished() -> None:
    for path in [*python_sources(*TOPS), *rust_sources()]:
        assert UNFINISHED.search(path.read_text("utf-8")) is None, path


def test_no_line_of_a_page_is_too_long() -> None:
    pages = [
        page for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if page.name not in GENERATED_PAGES
    ]
    assert len(pages) > 50
    for page in pages:
        is_code = False
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if not is_code and not line.startswith("|"):
                assert len(line) <= LONGEST_LINE_OF_TEXT, f"{page}:{number}"
