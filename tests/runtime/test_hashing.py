"""The state that the threads for password checks share."""

from __future__ import annotations

import threading

from hbroker.runtime.gateway.policies import MemoryBudget, VerifiedPasswordCache
from tests.waiting import until

PATIENCE_S = 20.0


def test_the_least_recently_used_password_is_evicted() -> None:
    verified = VerifiedPasswordCache(b"secret", most=2)
    for user in ("ann", "bob"):
        verified.add(user, "hash", b"right")
    assert verified.has("ann", "hash", b"right")
    verified.add("cyd", "hash", b"right")
    known = [user for user in ("ann", "bob", "cyd") if verified.has(user, "hash", b"right")]
    assert known == ["ann", "cyd"]


def test_hashes_share_a_memory_budget_in_turn() -> None:
    """Two hashes have 12 of 24 MiB each. A hash that wants more than the budget gets all of it, and is not
    put off for ever."""
    memory = MemoryBudget(24)
    under_way: list[str] = []
    ended = {name: threading.Event() for name in "abcd"}

    def use(name: str, kib: int) -> None:
        with memory.reserve(kib):
            under_way.append(name)
            ended[name].wait(PATIENCE_S)
            under_way.remove(name)

    threads = []
    for waiting, (name, kib) in enumerate([("a", 12), ("b", 12), ("c", 64), ("d", 12)]):
        threads.append(threading.Thread(target=use, args=(name, kib)))
        threads[-1].start()
        started = lambda waiting=waiting: len(under_way) + memory.queue_length == waiting + 1  # noqa: E731
        until(started, f"{name} asks", PATIENCE_S)
    until(lambda: sorted(under_way) == ["a", "b"], "two at once", PATIENCE_S)
    ended["a"].set()
    until(lambda: under_way == ["b"], "the large one waits for all", PATIENCE_S)
    assert memory.queue_length == 2
    ended["b"].set()
    until(lambda: under_way == ["c"], "the large one is alone", PATIENCE_S)
    ended["c"].set()
    until(lambda: under_way == ["d"], "the last one", PATIENCE_S)
    ended["d"].set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert memory._free == 24
