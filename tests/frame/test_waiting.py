"""Waiting returns as soon as the condition is true, and a failure says what was awaited."""

from __future__ import annotations

import asyncio

import pytest

from tests.waiting import eventually, until


def test_until_checks_the_condition_until_it_is_true() -> None:
    looks = iter([False, False, True])
    until(lambda: next(looks), "the third look", 10)
    assert next(looks, None) is None


def test_until_checks_at_least_once_and_fails_with_what_was_found() -> None:
    until(lambda: True, "anything", 0)
    with pytest.raises(AssertionError, match=r"^not within 0 s: the node is up; instead: down$"):
        until(lambda: False, "the node is up", 0, found=lambda: "down")


async def test_the_event_loop_goes_on_during_eventually() -> None:
    done: list[int] = []
    asyncio.get_running_loop().call_soon(done.append, 1)
    await eventually(lambda: bool(done), "it is done", 10)
    with pytest.raises(AssertionError, match=r"^not within 0 s: it is done twice$"):
        await eventually(lambda: len(done) > 1, "it is done twice", 0)
