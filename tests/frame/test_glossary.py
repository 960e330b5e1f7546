"""One word for one thing (docs/glossary.md): no retired word is left in an identifier or a file name."""

from __future__ import annotations

import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.frame.checkout import ROOT, python_sources, rust_sources

TOPS = ("bench", "clients", "hbroker", "scripts", "sim", "spark_analysis", "tests")

NOT_OURS = {"hive_partitioning"}
"""Identifiers of libraries."""

RUST_TEXT = re.compile(r'//[^\n]*|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"', re.S)
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
