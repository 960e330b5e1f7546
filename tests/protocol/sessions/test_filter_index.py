"""The index finds every entry whose filter touches a subtree, once."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import filter_touches
from hbroker.protocol.sessions.filter_index import FilterIndex

_LEVELS = st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=3).map("/".join)
_FILTERS = st.lists(st.sampled_from(["", "a", "b", "+"]), min_size=1, max_size=3).map("/".join)


@given(filters=st.lists(_FILTERS | _FILTERS.map("{}/#".format), max_size=8), subtree=st.just("") | _LEVELS)
def test_each_entry_that_touches_a_subtree_is_found_once(filters: list[str], subtree: str) -> None:
    index = FilterIndex()
    for number, filter in enumerate(filters):
        index.add(filter, number)
    near = Counter(index.candidates(subtree))
    assert set(near.values()) <= {1}
    assert {n for n, filter in enumerate(filters) if filter_touches(filter, subtree)} <= near.keys()
    for number, filter in enumerate(filters):
        index.remove(filter, number)
    assert not list(index.candidates(""))
