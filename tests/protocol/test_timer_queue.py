"""The timer queue against a plain model, and its bounds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hbroker.protocol.expiring_cache import ExpiringCache
from hbroker.protocol.timers import TimerQueue, earliest

_steps = st.lists(
    st.tuples(st.sampled_from(["set", "cancel", "due"]), st.integers(0, 8), st.integers(0, 50)), max_size=200
)


@given(_steps)
def test_the_timer_queue_agrees_with_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    queue: TimerQueue[int] = TimerQueue()
    model: dict[int, int] = {}
    for verb, key, at in steps:
        if verb == "set":
            queue.set(key, at)
            model[key] = at
        elif verb == "cancel":
            queue.cancel(key)
            model.pop(key, None)
        else:
            due = list(queue.due(at))
            assert sorted(due) == sorted(key for key, deadline in model.items() if deadline <= at)
            deadlines = [model.pop(key) for key in due]
            assert deadlines == sorted(deadlines)
        assert queue.next() == min(model.values(), default=None)
        assert len(queue) == len(model)


def test_a_timer_that_is_cancelled_while_others_are_due_is_not_due() -> None:
    queue: TimerQueue[str] = TimerQueue()
    for at, key in enumerate("abc"):
        queue.set(key, at)
    due = queue.due(10)
    assert next(due) == "a"
    queue.cancel("b")
    assert list(due) == ["c"]


def test_deadlines_that_are_moved_again_and_again_take_no_memory() -> None:
    queue: TimerQueue[int] = TimerQueue()
    for n in range(100_000):
        queue.set(n % 10, n)
    assert len(queue._heap) < 200


def test_the_earliest_of_no_deadlines_is_none() -> None:
    assert earliest(None, None) is None
    assert earliest(None, 5, 3) == 3


def test_an_expiring_cache_is_bounded_and_its_entries_expire() -> None:
    cache: ExpiringCache[int, str] = ExpiringCache(3)
    for n in range(1_000):
        cache.put(n, "x", 100 + n)
    assert len(cache) == 3
    assert cache.get(1_000, 0) is None
    assert cache.get(1_000, 999) == "x"
    assert cache.get(1_099, 999) is None
    assert len(cache) == 2
