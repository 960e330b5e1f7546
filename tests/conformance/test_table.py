"""docs/mqtt-conformance.md agrees with the tests: every statement occurs once, every named test exists,
and the number of untested statements does not grow."""

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
"""The greatest number of statements without a test. It must only be lowered."""


@pytest.fixture(scope="module")
def rows() -> list[tuple[str, str]]:
    """The rows of the committed page: the id of the statement, and the text about it."""
    page = conformance.PAGE.read_text(encoding="utf-8")
    return re.findall(r"^\| (MQTT-\S+) \| (.+) \|$", page, re.MULTILINE)


def test_every_statement_is_listed_once(rows: list[tuple[str, str]]) -> None:
    assert len(IDS) == STATEMENTS
    assert Counter(id for id, _ in rows) == Counter(IDS)


def test_every_named_test_exists_and_names_the_statement(rows: list[tuple[str, str]]) -> None:
    named = [(id, *pair) for id, text in rows for pair in re.findall(r"`(\S+\.(?:py|rs))` (\w+)", text)]
    assert named
    for id, file, test in named:
        source = _find(file).read_text(encoding="utf-8")
        head, _, _ = source.partition(f" {test}(")
        marks = head[max(head.rfind("\n\n"), 0) :]
        assert re.search(rf"{re.escape(id)}\b", marks), (id, file, test)


def test_the_page_agrees_with_the_tests() -> None:
    assert conformance.PAGE.read_text(encoding="utf-8") == conformance.page(conformance.holders())


def test_the_number_of_untested_statements_does_not_grow() -> None:
    assert len(conformance.untested(conformance.holders())) <= UNTESTED


def test_a_statement_with_a_test_has_no_reason_for_being_untested() -> None:
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
