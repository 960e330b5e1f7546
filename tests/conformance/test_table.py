"""docs/mqtt-conformance.md says the truth: every statement once, tests that exist, and no hole that grows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from scripts import conformance
from tests.conformance.holds import holds
from tests.conformance.statements import IDS, NOT_OURS

STATEMENTS: Final = 251
UNTESTED: Final = 0
"""How many statements no test holds yet. It only ever becomes smaller."""


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str]]:
    """Of the committed page: the id, and what is said of it."""
    page = conformance.PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| (MQTT-\S+) \| (.+) \|$", page, re.MULTILINE)


def test_every_statement_is_listed_once(rows: list[tuple[str, str]]) -> None:
    assert len(IDS) == STATEMENTS
    assert Counter(id for id, _ in rows) == Counter(IDS)


def test_every_test_that_is_named_exists_and_names_the_statement(rows: list[tuple[str, str]]) -> None:
    named = [(id, *pair) for id, text in rows for pair in re.findall(r"`(\S+\.(?:py|rs))` (\w+)", text)]
    assert named
    for id, file, test in named:
        source = _find(file).read_text(encoding="utf-8")
        head, _, _ = source.partition(f" {test}(")
        marks = head[max(head.rfind("\n\n"), 0) :]
        assert re.search(rf"{re.escape(id)}\b", marks), (id, file, test)


def test_the_page_is_what_the_tests_say() -> None:
    assert conformance.PAGE.read_text(encoding="utf-8") == conformance.page(conformance.holders())


def test_what_is_not_tested_does_not_grow() -> None:
    assert len(conformance.untested(conformance.holders())) <= UNTESTED


def test_what_has_a_test_needs_no_excuse() -> None:
    found = conformance.holders()
    assert not [id for id in NOT_OURS if found[id]]
    assert set(NOT_OURS) <= set(IDS)


def test_marks_are_read_and_must_name_statements() -> None:
    source = '@holds("MQTT-1.5.5-1", "MQTT-1.5.7-1")\ndef test_x() -> None: ...\ndef test_y() -> None: ...\n'
    assert [*conformance.python_marks(source)] == [("test_x", ["MQTT-1.5.5-1", "MQTT-1.5.7-1"])]
    rust = "/// Why.\n///\n/// Holds MQTT-1.5.5-1, MQTT-4.2-1.\n#[test]\nfn x() {}\n\n#[test]\nfn y() {}\n"
    assert [*conformance.rust_marks(rust)] == [("x", ["MQTT-1.5.5-1", "MQTT-4.2-1"])]
    for wrong in [("MQTT-1.5.5-2",), ()]:
        with pytest.raises(ValueError, match="no statements"):
            holds(*wrong)


def _find(file: str) -> Path:
    inside = conformance.ROOT / "hbroker" / "native" / "src" / file
    return inside if inside.exists() else conformance.ROOT / file
