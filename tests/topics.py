"""Random topics and filters, and every topic that they can match: few levels, so that two often match."""

from __future__ import annotations

from itertools import product

from hypothesis import strategies as st

from hbroker._native import filter_is_valid, topic_is_valid

LEVELS = st.sampled_from(["a", "", "$x", "$SYS"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(topic_is_valid)
FILTERS = (
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=1, max_size=3)
    .flatmap(lambda levels: st.sampled_from([levels, [*levels, "#"], ["#"]]))
    .map("/".join)
    .filter(filter_is_valid)
)
EVERY_TOPIC = [
    topic
    for length in range(1, 6)
    for topic in map("/".join, product(("a", "", "$x", "$SYS"), repeat=length))
    if topic_is_valid(topic)
]
