"""Relations of two topic filters (MQTT 5 §4.7)."""

from __future__ import annotations

import pytest
from hypothesis import example, given

from hbroker._native import topic_matches
from hbroker.topic_filters import covers, overlap
from tests.topics import EVERY_TOPIC, FILTERS, TOPICS


@example("+", "/#")
@given(FILTERS, FILTERS)
def test_two_filters_overlap_exactly_if_a_topic_matches_both(one: str, other: str) -> None:
    both = any(topic_matches(one, topic) and topic_matches(other, topic) for topic in EVERY_TOPIC)
    assert overlap(one, other) == overlap(other, one) == both


@example("+/+/+", "a/+/$x/#")
@example("+/+/#", "/#")
@given(FILTERS, FILTERS)
def test_a_filter_covers_another_if_it_matches_all_its_topics(wide: str, narrow: str) -> None:
    theirs = [topic for topic in EVERY_TOPIC if topic_matches(narrow, topic)]
    if covers(wide, narrow):
        assert all(topic_matches(wide, topic) for topic in theirs)
    elif not narrow.startswith("+") and not narrow.startswith("#"):
        assert not all(topic_matches(wide, topic) for topic in theirs)


@given(FILTERS, TOPICS)
def test_a_filter_covers_a_topic_exactly_if_it_matches_it(filter: str, topic: str) -> None:
    assert covers(filter, topic) == topic_matches(filter, topic)


@pytest.mark.parametrize("wide", ["#", "+/#", "+", "+/+", "+/x", "+/x/#"])
@pytest.mark.parametrize("narrow", ["$SYS", "$SYS/#", "$SYS/x", "$x/#", "$/+", "$SYS/x/#"])
def test_a_wildcard_at_the_first_level_covers_no_topic_with_a_dollar_sign(wide: str, narrow: str) -> None:
    """MQTT 5 §4.7.2."""
    assert not covers(wide, narrow)
    assert not overlap(wide, narrow)


def test_a_wildcard_at_another_level_covers_a_dollar_sign() -> None:
    assert covers("a/#", "a/$x/+")
    assert covers("a/+", "a/$x")
    assert covers("$SYS/#", "$SYS/x/+")
    assert not covers("$SYS/#", "#")
