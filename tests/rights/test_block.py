"""Blocks: their statements, and what cannot be in one."""

from __future__ import annotations

import pytest

from hbroker.errors import LocalError
from hbroker.rights.block import MOST_FILTERS, Block
from hbroker.rights.rights import BlockRights


def test_a_block_has_one_line_for_each_statement() -> None:
    rights = BlockRights(("b/#", "a"), ("c",), retain=True, share=True)
    assert Block(rights, "oven", 1_893_456_000).to_datalog().splitlines() == [
        'read("a");',
        'read("b/#");',
        'write("c");',
        "retain(true);",
        "share(true);",
        'client("oven");',
        "check if time($time), $time <= 2030-01-01T00:00:00Z;",
    ]


@pytest.mark.parametrize("text", ["", 'a"b', "a\\b", "a\nb", "a\x00", "a\x7f", "a\x9f", "a\u2029", "\udfff"])
def test_a_text_that_could_be_read_as_a_statement_is_refused(text: str) -> None:
    for rights in (BlockRights((text,)), BlockRights((), (text,))):
        with pytest.raises(LocalError, match="cannot be a filter"):
            Block(rights)
    with pytest.raises(LocalError, match="cannot be the client id"):
        Block(client=text)


@pytest.mark.parametrize("filter", ["a#", "#/a", "a+", "x" * 70_000])
def test_a_filter_that_is_not_valid_is_refused(filter: str) -> None:
    with pytest.raises(LocalError, match="cannot be a filter"):
        Block(BlockRights((filter,)))


def test_a_block_has_bounds() -> None:
    most = tuple(map(str, range(MOST_FILTERS)))
    Block(BlockRights(most))
    with pytest.raises(LocalError, match="64 filters at most, not 65"):
        Block(BlockRights(most, ("a",)))
    for time in (-1, 253_402_300_800):
        with pytest.raises(LocalError, match="9999"):
            Block(expires_at=time)
    with pytest.raises(LocalError, match="of no use"):
        Block(BlockRights())
