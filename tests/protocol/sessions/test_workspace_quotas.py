"""The quotas of workspaces at a node: sessions and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.config import WorkspaceQuotas
from hbroker.protocol.sessions.subscription_store import Subscription, SubscriptionStore
from hbroker.protocol.sessions.workspace_quotas import QuotaCounts
from hbroker.workspace import name_of

HOME = ("192.0.2.1", 7700)
FILTERS = [
    "a",
    "$workspace/acme/#",
    "$workspace/acme/a",
    "$workspace/other/#",
    "$workspace/free/#",
    "$workspace/#",
    "$workspace/+/a",
]
QUOTAS = (WorkspaceQuotas("acme", sessions=2, subscriptions=3), WorkspaceQuotas("other", subscriptions=1))


def store_of(subscriptions: Sequence[tuple[int, str]]) -> SubscriptionStore:
    store = SubscriptionStore(100, QUOTAS)
    for session, filter in subscriptions:
        store.add(Subscription(session, HOME, filter, 1))
    return store


@pytest.mark.parametrize(
    ("stored", "asked", "has_room"),
    [
        ([], (1, "$workspace/acme/#"), True),
        ([(1, "$workspace/acme/a"), (2, "$workspace/acme/a")], (3, "$workspace/acme/b"), False),
        ([(1, "$workspace/acme/a"), (2, "$workspace/acme/a")], (2, "$workspace/acme/b"), True),
        ([(1, "$workspace/acme/a"), (2, "$workspace/acme/a")], (2, "$workspace/acme/a"), True),
        ([(1, f"$workspace/acme/{n}") for n in range(3)], (1, "$workspace/acme/b"), False),
        ([(1, f"$workspace/acme/{n}") for n in range(3)], (1, "$workspace/acme/2"), True),
        ([(1, f"$workspace/acme/{n}") for n in range(3)], (1, "$workspace/other/b"), True),
        ([(n, "$workspace/free/a") for n in range(9)], (9, "$workspace/free/a"), True),
        ([(n, "a") for n in range(9)], (9, "a"), True),
        ([(n, "$workspace/#") for n in range(9)], (9, "$workspace/#"), True),
        ([(n, "$workspace/other/a") for n in range(2)], (0, "$workspace/other/a"), True),
        ([(n, "$workspace/other/a") for n in range(2)], (2, "$workspace/other/a"), False),
    ],
)
def test_what_a_workspace_has_room_for(
    stored: list[tuple[int, str]], asked: tuple[int, str], has_room: bool
) -> None:
    session, filter = asked
    assert store_of(stored).has_room(session, ("", filter)) == has_room


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from(FILTERS))))
def test_what_has_gone_makes_room_again(steps: list[tuple[bool, int, str]]) -> None:
    store = store_of([])
    for is_added, session, filter in steps:
        if is_added:
            store.add(Subscription(session, HOME, filter, 1))
        elif filter == "a":
            store.remove_session(session)
        else:
            store.remove(session, ("", filter))
    counts = QuotaCounts(QUOTAS)
    for subscription in store:
        counts.add(subscription.session, subscription.filter)
    for session in range(6):
        for filter in FILTERS:
            new = f"{filter.rstrip('#+')}/new" if name_of(filter) else filter
            is_there = store.get(session, ("", new)) is not None
            assert store.has_room(session, ("", new)) == (is_there or counts.has_room(session, new))
