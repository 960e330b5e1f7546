"""Pages of a list that changes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.http_api.paging import page_of
from hbroker.http_api.problems import Refusal


@given(st.sets(st.text()), st.integers(1, 5))
def test_the_pages_of_a_list_are_the_list(items: set[str], limit: int) -> None:
    read: list[str] = []
    cursor = None
    while True:
        page = page_of(items, str, limit, cursor)
        assert len(page.items) <= limit
        read += page.items
        if (cursor := page.next) is None:
            break
    assert read == sorted(items)


@given(st.sets(st.text(), min_size=3), st.data())
def test_an_item_that_is_there_all_the_time_is_seen_once(items: set[str], data: st.DataObject) -> None:
    now, read, cursor = set(items), list[str](), None
    stays = data.draw(st.sampled_from(sorted(items)))
    while True:
        page = page_of(now, str, 1, cursor)
        read += page.items
        if (cursor := page.next) is None:
            break
        now -= {data.draw(st.sampled_from(sorted(items)))} - {stays}
        now |= {data.draw(st.text())}
        if len(read) > 20:
            return
    assert read.count(stays) == 1


@given(st.text())
def test_a_cursor_that_is_none_is_refused_or_is_one(cursor: str) -> None:
    with suppress(Refusal):
        assert page_of(["a"], str, 1, cursor).next is None


def test_a_cursor_is_no_secret_of_the_process() -> None:
    assert page_of(["a", "b"], str, 1, None).next == page_of(["a", "c"], str, 1, None).next
    with pytest.raises(Refusal):
        page_of(["a"], str, 1, "/")
