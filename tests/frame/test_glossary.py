"""One word for one thing (docs/glossary.md): no retired word is left in an identifier, a file name, a field
of the protocol, or a key: of a log line, an event, a topology, a counter."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.frame.checkout import ROOT, python_sources, rust_sources

TOPS = ("bench", "clients", "hbroker", "scripts", "sim", "spark_analysis", "tests")

NOT_OURS = {"hive_partitioning"}
"""Identifiers of libraries."""

RUST_TEXT = re.compile(r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
KEY = re.compile(r"[a-z][a-z0-9_.-]*")
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def retired_words() -> set[str]:
    """The first column of the table of retired words: several words are separated by commas."""
    section = (ROOT / "docs/glossary.md").read_text("utf-8").split("## Retired words")[1]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")][1:]
    return {word.strip() for cell in cells for word in cell.split(",")}


def identifiers(path: Path) -> Iterator[str]:
    """The identifiers in a source file, without its strings and comments, and the name of the file."""
    yield path.stem
    if path.suffix == ".py":
        with tokenize.open(path) as file:
            yield from (each.string for each in tokenize.generate_tokens(file.readline) if each.type == 1)
    else:
        yield from re.findall(r"[A-Za-z_]\w*", RUST_TEXT.sub("", path.read_text("utf-8")))


def test_no_retired_word_is_left_in_an_identifier() -> None:
    retired = retired_words()
    assert len(retired) > 20
    for path in [*python_sources(*TOPS), *rust_sources()]:
        for name in set(identifiers(path)) - NOT_OURS:
            assert retired.isdisjoint(word.lower() for word in WORD.findall(name)), f"{path}: {name}"


def keys(path: Path) -> Iterator[str]:
    """The strings of a source file that are one word: keys of logs, events, topologies and counters."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from KEY.findall(node.value) if KEY.fullmatch(node.value) else ()
    else:
        code = re.sub(r"//[^\n]*", "", path.read_text("utf-8"))
        yield from (text for text in re.findall(r'"((?:\\.|[^"\\])*)"', code) if KEY.fullmatch(text))


def test_no_retired_word_is_left_in_a_key() -> None:
    retired, found = retired_words(), 0
    for path in [*python_sources(*TOPS[:-1]), *rust_sources()]:
        for key in set(keys(path)):
            found += 1
            assert retired.isdisjoint(word.lower() for word in WORD.findall(key)), f"{path}: {key}"
    assert found > 2_000


def test_no_retired_word_is_left_in_the_protocol_or_the_native_api() -> None:
    for path in ("proto/hbroker/v1/packet.proto", "hbroker/_native.pyi"):
        text = re.sub(r"//[^\n]*", "", (ROOT / path).read_text("utf-8"))
        assert retired_words().isdisjoint(word.lower() for word in WORD.findall(text)), path


def test_the_project_has_few_words_of_its_own() -> None:
    section = (ROOT / "docs/glossary.md").read_text("utf-8").split("## Words of the standards")[0]
    rows = [line.split("|")[1:4] for line in section.splitlines() if line.startswith("| **")]
    assert 10 <= len(rows) <= 15
    for word, meaning, reason in rows:
        assert meaning.strip(), word
        assert reason.strip(), f"{word} has no reason"
