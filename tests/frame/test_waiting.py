"""Waiting returns at once when it may, and says what it waited for when it may not."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import eventually, until


def test_it_looks_until_it_is_so() -> None:
    looks = iter([False, False, True])
    until(lambda: next(looks), "the third look", 10)
    assert next(looks, None) is None


def test_it_looks_at_least_once_and_fails_with_what_there_was_instead() -> None:
    until(lambda: True, "anything", 0)
    with pytest.raises(AssertionError, match=r"^not within 0 s: the node is up; instead: down$"):
        until(lambda: False, "the node is up", 0, found=lambda: "down")


async def test_a_loop_goes_on_while_it_is_waited_for() -> None:
    done: list[int] = []
    asyncio.get_running_loop().call_soon(done.append, 1)
    await eventually(lambda: bool(done), "it is done", 10)
    with pytest.raises(AssertionError, match=r"^not within 0 s: it is done twice$"):
        await eventually(lambda: len(done) > 1, "it is done twice", 0)
