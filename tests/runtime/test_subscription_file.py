"""Who had subscribed at a node survives it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.protocol import timers
from hbroker.protocol.subscribers import Subscription
from hbroker.runtime import subscription_file
from hbroker.runtime.memory import UnreadableMemory
from hbroker.runtime.subscription_file import SubscriptionFile

subscriptions = st.builds(
    Subscription,
    session=st.integers(1, 3),
    address=st.tuples(st.ip_addresses().map(str), st.integers(1, 65_535)),
    filter=st.sampled_from(["a", "a/#", "+/b"]),
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    client=st.text(),
)
KITCHEN = Subscription(1, ("10.0.0.1", 7700), "home/kitchen/#", 1)


@settings(max_examples=40)
@given(
    notes=st.lists(st.tuples(subscriptions, st.booleans()), max_size=20),
    slack=st.sampled_from([0, 1 << 20]),
)
def test_what_is_recalled_is_what_had_not_ended(
    tmp_path_factory: pytest.TempPathFactory, notes: list[tuple[Subscription, bool]], slack: int
) -> None:
    path = tmp_path_factory.mktemp("memory") / "root.cuts.subscriptions"
    live: dict[tuple[int, str], Subscription] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subscription_file, "SLACK_BYTES", slack)
        file = SubscriptionFile(path)
        for subscription, ended in notes:
            file.note(subscription, ended)
            live.pop((subscription.session, subscription.filter), None)
            if not ended:
                live[subscription.session, subscription.filter] = subscription
    for _ in range(2):
        assert SubscriptionFile(path).recall() == list(live.values())


def test_what_was_cut_off_in_the_middle_takes_nothing_else_along(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions"
    SubscriptionFile(path).note(KITCHEN, False)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole + whole[:length])
        assert SubscriptionFile(path).recall() == [KITCHEN]


def test_sessions_that_ended_in_the_meantime_are_not_recalled(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions"
    SubscriptionFile(path).note(KITCHEN, False)
    long_ago = path.stat().st_mtime - timers.IDLE_TIMEOUT / timers.SECOND - 1
    os.utime(path, (long_ago, long_ago))
    SubscriptionFile(path).touch()
    assert SubscriptionFile(path).recall() == [KITCHEN]
    os.utime(path, (long_ago, long_ago))
    assert SubscriptionFile(path).recall() == []
    assert SubscriptionFile(path).recall() == [], "and never again"


def test_it_does_not_grow_beyond_what_is_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_file, "SLACK_BYTES", 1_000)
    path = tmp_path / "subscriptions"
    file = SubscriptionFile(path)
    for _ in range(1_000):
        file.note(KITCHEN, True)
        file.note(KITCHEN, False)
    assert path.stat().st_size < 2_000


def test_a_first_run_recalls_nothing(tmp_path: Path) -> None:
    file = SubscriptionFile(tmp_path / "subscriptions")
    file.touch()
    assert file.recall() == []


def test_a_file_that_holds_something_else_is_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "subscriptions"
    path.write_bytes(b"\x01\x00\x00\x00\xff")
    with pytest.raises(UnreadableMemory):
        SubscriptionFile(path).recall()
