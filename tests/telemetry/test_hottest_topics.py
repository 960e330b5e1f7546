"""The hottest topics of a node, from the columns that the native core counts."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import Load
from hbroker.runtime.telemetry.hottest_topics import MOST_TOPICS, WINDOW, HottestTopics

Counts = dict[str, tuple[int, int]]
"""Messages in and out, by topic."""


@dataclass
class Columns:
    """What of a `Load` is read."""

    names: bytes
    offsets: bytes
    numbers: list[bytes]
    bytes_in: int
    bytes_out: int
    whole_in: int
    whole_out: int


def load(counts: Counts) -> Load:
    names = [topic.encode() for topic in counts]
    ends = [sum(map(len, names[:number])) for number in range(len(names) + 1)]
    received, sent = [[each[column] for each in counts.values()] for column in (0, 1)]

    def column(values: list[int]) -> bytes:
        return struct.pack(f"={len(values)}q", *values)

    tens = [[10 * each for each in values] for values in (received, sent)]
    columns = [received, tens[0], sent, tens[1], received, sent]
    totals = (sum(tens[0]), sum(tens[1]), sum(received), sum(sent))
    offsets = struct.pack(f"={len(ends)}i", *ends)
    return cast(Load, Columns(b"".join(names), offsets, [column(each) for each in columns], *totals))


COUNTS = st.dictionaries(
    st.text("abc/é", min_size=1, max_size=6), st.tuples(st.integers(0, 99), st.integers(0, 99))
)


@given(st.lists(COUNTS, max_size=WINDOW + 3))
def test_with_few_topics_the_counts_are_those_of_the_last_intervals(intervals: list[Counts]) -> None:
    hottest = HottestTopics()
    for counts in intervals:
        hottest.add(load(counts), 1.0)
    found = hottest.describe()
    expected: dict[str, list[int]] = {}
    for counts in intervals[-WINDOW:]:
        for topic, each in counts.items():
            known = expected.setdefault(topic, [0, 0])
            expected[topic] = [known[0] + each[0], known[1] + each[1]]
    listed = {each["topic"]: [each["messages_in"], each["messages_out"]] for each in found["topics"]}
    assert len(listed) == min(MOST_TOPICS, len(expected))
    assert all(expected[topic] == counts for topic, counts in listed.items())
    sums = [sum(counts) for counts in listed.values()]
    assert sums == sorted(sums, reverse=True)
    total = sum(counts[0] for counts in expected.values())
    assert found["others"]["messages_in"] + sum(counts[0] for counts in listed.values()) == total
    assert found["seconds"] == min(len(intervals), WINDOW)


def test_of_many_topics_the_hottest_are_found() -> None:
    counts = {f"t/{number}": (number, 0) for number in range(5_000)}
    hottest = HottestTopics()
    hottest.add(load(counts), 1.0)
    found = [each["topic"] for each in hottest.describe()["topics"]]
    assert found == [f"t/{number}" for number in range(4_999, 4_999 - MOST_TOPICS, -1)]


def test_a_topic_with_a_very_long_name_is_among_the_others() -> None:
    hottest = HottestTopics()
    hottest.add(load({"x" * 300: (9, 0), "y": (1, 0)}), 1.0)
    found = hottest.describe()
    assert [each["topic"] for each in found["topics"]] == ["y"]
    assert found["others"]["messages_in"] == 9
