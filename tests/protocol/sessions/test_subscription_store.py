"""The store of a node's subscriptions, against a plain model, and its memory."""

from __future__ import annotations

import tracemalloc
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import filter_touches
from hbroker.config import Limits
from hbroker.protocol.sessions.session_table import SessionTable
from hbroker.protocol.sessions.subscription_store import Key, Subscription, SubscriptionStore, filter_cost
from tests.protocol.sole_node import ScriptedCore

_MOST = 12
_filters = st.sampled_from(
    ["#", "home/+/température", "h/" * 40 + "#", "home", "home/hall/#", "home/hall/+", "+/hall", "home//x"]
)
_subtrees = ["", "home", "home/hall", "home/hall/lamp", "h", "h/h/h", "$SYS/nodes", "hom"]
_subscriptions = st.builds(
    Subscription,
    session=st.integers(1, 3),
    address=st.sampled_from([("10.1.1.1", 5000), ("2001:db8::1", 65_535)]),
    filter=_filters,
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    client=st.text(max_size=4),
    group=st.sampled_from(["", "crew"]),
    overflow=st.integers(0, 2),
    interrupted=st.booleans(),
    is_prepared=st.booleans(),
)
_verbs = st.sampled_from(["add", "add", "add", "remove", "remove_session"])


@given(st.lists(st.tuples(_verbs, _subscriptions), max_size=60))
def test_the_store_agrees_with_a_dictionary(steps: list[tuple[str, Subscription]]) -> None:
    subscription_store = SubscriptionStore(_MOST)
    model: dict[tuple[int, Key], Subscription] = {}
    for verb, subscription in steps:
        session, key = subscription.session, subscription.key
        known = [each for each in model.values() if each.session == session]
        others = [filter_cost(each.key) for each in known]
        fits = (session, key) in model or sum(others) + filter_cost(key) <= _MOST
        assert subscription_store.has_room(session, key) is fits
        match verb:
            case "add":
                subscription_store.add(subscription)
                model[session, key] = subscription
            case "remove":
                assert subscription_store.remove(session, key) == model.pop((session, key), None)
            case _:
                assert subscription_store.remove_session(session) == known
                model = {at: each for at, each in model.items() if each.session != session}
        assert subscription_store.get(session, key) == model.get((session, key))
        assert subscription_store.has_any(session) is any(each.session == session for each in model.values())
        assert {(each.session, each.key): each for each in subscription_store} == model
        assert len(subscription_store) == len(list(subscription_store)) == len(model)
        for subtree in _subtrees:
            touching = list(subscription_store.touching(subtree))
            assert len(touching) == len({(each.session, each.key) for each in touching})
            assert {(each.session, each.key): each for each in touching} == {
                at: each for at, each in model.items() if filter_touches(each.filter, subtree)
            }


def test_subscriptions_that_touch_a_subtree_are_found_without_a_scan_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subscription_store = SubscriptionStore(100_000)
    for number in range(20_000):
        first = "home" if number % 2 else "+"
        filter = f"{first}/{number % 1_000}/{number}/#"
        session = number // 2 if number % 3 else 1  # one session with thousands, as a gateway has
        subscription_store.add(Subscription(session, ("10.0.0.1", 5_000), filter, 1))
    looked_at = []

    def touches(filter: str, subtree: str) -> bool:
        looked_at.append(filter)
        return filter_touches(filter, subtree)

    monkeypatch.setattr("hbroker.protocol.sessions.subscription_store.filter_touches", touches)
    assert len(list(subscription_store.touching("home/7"))) == 20
    assert len(looked_at) == 20


def test_an_idle_session_with_one_subscription_takes_a_few_hundred_bytes() -> None:
    session_count = 2_000
    clock = count()
    subscription_store = SubscriptionStore(_MOST)
    sessions = SessionTable(ScriptedCore(), Limits(), subscription_store, lambda: next(clock))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(session_count):
            session = sessions.connect((1 << 50) + number, (1 << 63) + number, 0)
            filter = f"bench/01234567/{number:09}"
            subscription_store.add(Subscription(session.id, (f"10.1.1.{number}", 5_000 + number), filter, 1))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    each = (after - before) / session_count
    assert each < 450, f"{each:.0f} bytes each"
