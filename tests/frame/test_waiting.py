"""Waiting returns at once when it may, and says what it waited for when it may not."""

from __future__ import annotations

import pytest

from tests.waiting import until


def test_it_looks_until_it_is_so() -> None:
    looks = iter([False, False, True])
    until(lambda: next(looks), "the third look", 10)
    assert next(looks, None) is None


def test_it_looks_at_least_once_and_fails_with_what_there_was_instead() -> None:
    until(lambda: True, "anything", 0)
    with pytest.raises(AssertionError, match=r"^not within 0 s: the node is up; instead: down$"):
        until(lambda: False, "the node is up", 0, found=lambda: "down")
