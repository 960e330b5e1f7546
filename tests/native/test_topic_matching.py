"""Topic matching agrees with paho-mqtt's, which is an independent implementation of MQTT 5 §4.7.

paho obeys §4.7.2 (`$`-topics) and lets `#` match the parent level. So only deep topics are excluded: paho
recurses once for each level, and Python's stack ends that at about a thousand. The expectations for deeper
pairs follow the text of the standard.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub

from hbroker._native import filter_is_valid, filter_touches, topic_is_valid, topic_matches

PAIRS = 100_000
MAX_BYTES = 65_535
MAX_PAHO_LEVELS = 300
NAMES = ["a", "b", "", "", "$SYS", "$", "home", "é", "家", " ", "A", "a b", "x", "\U0001f4a1"]


def test_matching_agrees_with_paho_on_random_pairs() -> None:
    rng = random.Random(20)
    matched = apart = 0
    for _ in range(PAIRS):
        topic = random_topic(rng)
        filter = random_filter(rng, topic)
        expected = topic_matches_sub(filter, topic)
        assert topic_matches(filter, topic) is expected, (filter, topic)
        matched += expected
        apart += topic.startswith("$") and filter[0] in "+#"
    assert 0.3 * PAIRS < matched < 0.7 * PAIRS, "neither answer is rare"
    assert apart > 0.02 * PAIRS, "the $ rule was put to the test"


@pytest.mark.parametrize(
    ("filter", "topic", "expected"),
    [
        # MQTT 5 §4.7.1.2: the multi-level wildcard matches the parent level too.
        ("sport/#", "sport", True),
        ("sport/#", "sport/", True),
        ("sport/#", "sports", False),
        # §4.7.1.3: the single-level wildcard matches an empty level.
        ("+", "finance", True),
        ("+", "/finance", False),
        ("/+", "/finance", True),
        ("+/+", "/finance", True),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+/+", "//", True),
        # §4.7.2: only a wildcard at the first level does not match `$`-topics.
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("+/#", "$", False),
        ("$SYS/#", "$SYS/x", True),
        ("$SYS/#", "$SYS", True),
        ("$SYS/+", "$SYS/x", True),
        ("a/+", "a/$SYS", True),
        ("/#", "/$SYS", True),
        # §4.7.3: names are compared byte for byte.
        ("ACCOUNTS", "Accounts", False),
        ("\u00e9", "e\u0301", False),
        ("/", "/", True),
        ("a", "a/", False),
    ],
)
def test_matching_follows_the_edge_cases_of_the_standard(filter: str, topic: str, expected: bool) -> None:
    assert topic_matches(filter, topic) is expected
    assert topic_matches_sub(filter, topic) is expected


def test_matching_agrees_with_paho_on_long_and_deep_topics() -> None:
    long_level = "x" * (MAX_BYTES - 2)
    deep = "/".join("l" * MAX_PAHO_LEVELS)
    pairs = [
        (f"{long_level}/+", f"{long_level}/a"),
        ("+/a", f"{long_level}/a"),
        ("#", long_level),
        (long_level, f"{long_level}y"),
        (f"a/{long_level}", f"b/{long_level}"),
        (deep, deep),
        (deep.replace("l", "+"), deep),
        (f"{deep}/#", deep),
        (f"{deep}/+", deep),
        (deep, f"{deep}/l"),
    ]
    answers = [topic_matches(filter, topic) for filter, topic in pairs]
    assert answers == [topic_matches_sub(filter, topic) for filter, topic in pairs]
    assert True in answers
    assert False in answers


def test_the_deepest_topic_matches_itself_and_a_multi_level_wildcard() -> None:
    deepest = "/" * MAX_BYTES
    assert topic_is_valid(deepest)
    assert topic_matches(deepest, deepest)
    assert topic_matches(deepest[:-1] + "#", deepest)
    assert topic_matches("/#", deepest)
    assert not topic_matches(deepest[:-1], deepest)
    assert not topic_matches("/".join("+" * (MAX_BYTES // 2)), deepest)


@pytest.mark.parametrize("text", ["a", "/", "a//b", " ", "$SYS", "é", "\U0010ffff", "x" * MAX_BYTES])
def test_valid_topics_are_valid_filters(text: str) -> None:
    assert topic_is_valid(text)
    assert filter_is_valid(text)


@pytest.mark.parametrize("text", ["", "a\0b", "x" * (MAX_BYTES + 1), "é" * 32_768, "\ud800", "a/\udfff"])
def test_empty_too_long_and_invalid_texts_are_neither_topics_nor_filters(text: str) -> None:
    assert not topic_is_valid(text)
    assert not filter_is_valid(text)


@pytest.mark.parametrize("text", ["a+", "+a", "a/b+/c", "#/a", "a#", "##", "++", "a/#/", "+#"])
def test_a_wildcard_fills_its_level_and_the_multi_level_wildcard_is_last(text: str) -> None:
    assert not topic_is_valid(text)
    assert not filter_is_valid(text)


paths = st.lists(st.sampled_from(["a", "b", "", "$s"]), min_size=1, max_size=4).map("/".join)
filters = st.lists(st.sampled_from(["a", "b", "", "$s", "+", "#"]), min_size=1, max_size=4).map("/".join)


@given(filter=filters.filter(filter_is_valid), topic=paths.filter(topic_is_valid), data=st.data())
def test_a_filter_touches_every_subtree_of_a_topic_that_it_matches(
    filter: str, topic: str, data: st.DataObject
) -> None:
    levels = topic.split("/")
    subtree = "/".join(levels[: data.draw(st.integers(0, len(levels)))])
    if topic_matches(filter, topic):
        assert filter_touches(filter, subtree)
    if not filter_touches(filter, subtree):
        assert not topic_matches(filter, topic)


def random_topic(rng: random.Random) -> str:
    while True:
        topic = "/".join(rng.choices(NAMES, k=rng.choice([1, 1, 2, 2, 3, 4, 6])))
        if topic:
            return topic


def random_filter(rng: random.Random, topic: str) -> str:
    """A filter like the topic. Some levels are wildcards, and sometimes one is different, missing or
    added."""
    while True:
        levels = [rng.choices([level, "+", rng.choice(NAMES)], [12, 6, 3])[0] for level in topic.split("/")]
        match rng.randrange(12):
            case 0:
                levels.pop()
            case 1:
                levels.append(rng.choice(NAMES))
            case 2 | 3 | 4:
                levels[rng.randrange(len(levels)) :] = ["#"]
            case 5:
                levels.append("#")
            case _:
                pass
        filter = "/".join(levels)
        if filter_is_valid(filter):
            return filter
