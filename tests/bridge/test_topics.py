"""The mapping of topics, and the pauses."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import topic_is_valid, topic_matches
from hbroker.config import BridgeTopic, Direction
from hbroker.runtime.bridge.backoff import Backoff
from hbroker.runtime.bridge.topics import TopicMap
from tests.topics import FILTERS, TOPICS

PREFIXES = st.sampled_from(["", "a/", "site/7/", "x-"])


def of(filter: str, direction: Direction = Direction.BOTH, local: str = "", remote: str = "") -> BridgeTopic:
    return BridgeTopic(filter, direction, 1, local, remote)


@pytest.mark.parametrize(
    ("entry", "here", "there"),
    [
        (of("home/#"), "home/lamp", "home/lamp"),
        (of("#", local="site/", remote="7/"), "site/lamp", "7/lamp"),
        (of("#", local="site/"), "site/lamp", "lamp"),
        (of("", local="here/lamp", remote="there"), "here/lamp", "there"),
        (of("#", local="site/", remote="7/"), "site", "7"),  # `site/#` matches `site`.
        (of("x/#", local="a-", remote="b-"), "a-x/t", "b-x/t"),
    ],
)
def test_a_topic_of_one_side_is_a_topic_of_the_other(entry: BridgeTopic, here: str, there: str) -> None:
    topics = TopicMap([entry])
    assert topics.local_topic(there) == here
    assert topics.remote_topic(here) == (there, entry)


def test_what_has_no_topic_on_the_other_side_is_not_carried() -> None:
    topics = TopicMap([of("#", local="site/")])
    assert topics.remote_topic("site") is None
    assert topics.remote_topic("other") is None
    assert topics.local_topic("$SYS/broker/uptime") is None


def test_the_first_entry_that_matches_decides() -> None:
    first, second = of("a/#", remote="1/"), of("#", remote="2/")
    topics = TopicMap([first, second])
    assert topics.remote_topic("a/b") == ("1/a/b", first)
    assert topics.remote_topic("b") == ("2/b", second)


def test_each_direction_has_its_own_entries() -> None:
    topics = TopicMap([of("in", Direction.IN), of("out", Direction.OUT), of("both")])
    assert [entry.filter for entry in topics.inward] == ["in", "both"]
    assert [entry.filter for entry in topics.outward] == ["out", "both"]
    assert topics.local_topic("out") is None
    assert topics.remote_topic("in") is None


@given(st.lists(st.builds(of, FILTERS, st.sampled_from(Direction), PREFIXES, PREFIXES), max_size=4), TOPICS)
def test_a_mapped_topic_matches_the_filter_of_its_side_and_goes_back(
    entries: list[BridgeTopic], topic: str
) -> None:
    topics = TopicMap(entries)
    found = topics.remote_topic(topic)
    if found is None:
        return
    there, entry = found
    assert topic_is_valid(there)
    assert topic_matches(entry.local, topic)
    if topic.startswith(entry.local_prefix) and not there.startswith("$"):
        back = TopicMap([of(entry.filter, Direction.BOTH, entry.local_prefix, entry.remote_prefix)])
        assert back.local_topic(there) == topic


@given(st.integers(), st.floats(0.1, 10), st.floats(10, 100))
def test_pauses_stay_within_their_bounds_and_begin_again(seed: int, least: float, most: float) -> None:
    backoff = Backoff(least, most, Random(seed))
    pauses = [backoff.next() for _ in range(20)]
    assert all(least <= pause <= most for pause in pauses)
    backoff.reset()
    assert backoff.next() <= 3 * least


def test_two_bridges_do_not_come_back_together() -> None:
    one, other = (Backoff(5, 30, Random(seed)) for seed in range(2))
    assert all(one.next() != other.next() for _ in range(10))
