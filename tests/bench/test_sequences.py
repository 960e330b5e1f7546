"""The check of a stream of numbers: what it counts is what was done to the stream."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bench.sequences import Stream


def _batches(numbers: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(cut % (len(numbers) + 1) for cut in cuts), len(numbers)]
    return [numbers[start:end] for start, end in pairwise(edges)]


@given(
    first=st.integers(0, 3),
    arrivals=st.lists(st.integers(0, 40), max_size=80),
    cuts=st.lists(st.integers(0, 100), max_size=8),
)
def test_every_arrival_is_counted_once_as_what_it_is(
    first: int, arrivals: list[int], cuts: list[int]
) -> None:
    numbers = [first + number for number in arrivals]
    stream = Stream(first)
    for batch in _batches(numbers, cuts):
        stream.take(batch)

    seen: set[int] = set()
    late = 0
    for number in numbers:
        late += number not in seen and any(other > number for other in seen)
        seen.add(number)
    assert stream.received == len(seen)
    assert stream.duplicated == len(numbers) - len(seen)
    assert stream.disordered == late
    assert stream.expected == max(seen, default=first - 1) + 1


def test_a_run_is_taken_as_its_numbers_are() -> None:
    one, other = Stream(7), Stream(7)
    one.take_run(5)
    other.take([7, 8, 9, 10, 11])
    assert vars(one) == vars(other)
