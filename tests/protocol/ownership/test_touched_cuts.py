"""The cache of the cuts that filters touch: it is bounded, and it stores each set of cuts once."""

from __future__ import annotations

from random import Random

import pytest

from hbroker.protocol.ownership import cut_tree
from hbroker.protocol.ownership.cut_tree import LONGEST_FILTER, MOST_ANSWERS, TouchedCuts

CUTS = [object() for _ in range(100)]


@pytest.fixture(autouse=True)
def _small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut_tree, "MOST_CUTS", 100)


def test_filters_that_touch_the_same_cuts_share_one_set() -> None:
    known: TouchedCuts[object] = TouchedCuts()
    first = known.put(("a", None), CUTS)
    assert all(known.put((f"a{n}", None), list(CUTS)) is first for n in range(3 * MOST_ANSWERS))
    assert len(known) == len(CUTS)
    assert len(known._answers) == MOST_ANSWERS
    assert known.of(("a", None)) is None
    assert known.of((f"a{3 * MOST_ANSWERS - 1}", None)) is first
    assert known.put(("a", 7), CUTS[:5]) == tuple(CUTS[:5])


def test_the_least_recently_used_answer_is_evicted() -> None:
    known: TouchedCuts[object] = TouchedCuts()
    for n in range(10):
        known.put((str(n), None), CUTS[n * 10 : n * 10 + 10])
    assert known.of(("0", None)) == tuple(CUTS[:10])
    known.put(("more", None), CUTS[5:20])
    assert [question for question, _ in known._answers] == [*"3456789", "0", "more"]
    assert len(known) == 95


def test_a_set_that_is_larger_than_the_bound_is_kept_alone() -> None:
    known: TouchedCuts[object] = TouchedCuts()
    known.put(("a", None), CUTS[:3])
    many = known.put(("#", None), CUTS * 2)
    assert known.of(("#", None)) is many
    assert known.of(("a", None)) is None
    known.put(("a", None), CUTS[:3])
    assert len(known) == 3


def test_a_long_filter_is_not_cached() -> None:
    known: TouchedCuts[object] = TouchedCuts()
    assert known.put(("x" * (LONGEST_FILTER + 1), None), CUTS) == tuple(CUTS)
    assert len(known) == 0


def test_random_questions_get_right_answers_and_the_cuts_are_counted() -> None:
    random, known = Random(1), TouchedCuts[object]()
    truth = {
        (str(n), random.choice((None, 1))): tuple(random.sample(CUTS, random.randrange(60)))
        for n in range(40)
    }
    for _ in range(5_000):
        question = random.choice(list(truth))
        found = known.of(question)
        assert (known.put(question, truth[question]) if found is None else found) == truth[question]
        sets = {truth[question] for question in known._answers}
        assert len(known) == sum(map(len, sets)) <= 100
        if random.random() < 0.001:
            known.clear()
