"""Persistent sessions of an earlier run, at a node that was killed (docs/protocol.md §5.8)."""

from __future__ import annotations

from hbroker._proto import packet_pb2 as pb
from hbroker.config import Durability
from hbroker.protocol.sessions.subscription_store import Key, Subscription
from hbroker.protocol.storage import RestoredState, SavedSession, Storage
from hbroker.protocol.timers import IDLE_TIMEOUT, SECOND
from tests.protocol.sole_node import SoleNode

S, T = 0x5E55, 0x7E57
EXPIRY_S = 600


class Notes(Storage):
    """What was saved, for the next run."""

    def __init__(self) -> None:
        self.sessions: dict[int, SavedSession] = {}
        self.subscriptions: dict[tuple[int, Key], Subscription] = {}

    def save_session(self, session: SavedSession) -> None:
        self.sessions[session.session] = session

    def end_session(self, session: int) -> None:
        self.sessions.pop(session, None)

    def save_subscription(self, subscription: Subscription, ended: bool) -> None:
        key = subscription.session, subscription.key
        self.subscriptions.pop(key, None)
        self.subscriptions |= {} if ended else {key: subscription}

    def restored(self) -> RestoredState:
        return RestoredState(subscriptions=list(self.subscriptions.values()), sessions=dict(self.sessions))


def persistent(node: SoleNode, session: int, filter: str = "home/#", expiry_s: int = EXPIRY_S) -> int:
    link = node.link_up(session)
    node.subscribe(link, filter, qos=pb.QOS_EXACTLY_ONCE, client="c", session_expiry_s=expiry_s)
    return link


def next_run(notes: Notes, node: SoleNode, durability: Durability, after_s: float = 0) -> SoleNode:
    """The next run, so long after the last moment of the earlier one."""
    return SoleNode(None, notes, notes.restored(), durability, node.now + round(after_s * SECOND))


def test_a_node_saves_its_persistent_sessions_and_what_changes_of_them() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    link = persistent(node, S)
    assert notes.sessions[S].offline_since is None
    assert (notes.sessions[S].expiry_s, notes.sessions[S].client) == (EXPIRY_S, "c")
    persistent(node, T, expiry_s=0)
    assert set(notes.sessions) == {S}
    node.link_down(link, S)
    assert notes.sessions[S].offline_since is not None
    link = persistent(node, S, expiry_s=2 * EXPIRY_S)
    assert (notes.sessions[S].offline_since, notes.sessions[S].expiry_s) == (None, 2 * EXPIRY_S)
    node.link_down(link, S)
    node.pass_time(2 * EXPIRY_S + 1)
    assert notes.sessions == {}


def test_with_a_store_a_session_is_there_after_a_kill_with_its_subscription_and_its_queue() -> None:
    for was_offline in (False, True):
        notes = Notes()
        node = SoleNode(storage=notes)
        link = persistent(node, S)
        if was_offline:
            node.link_down(link, S)
            node.pass_time(100)
        node = next_run(notes, node, Durability.FSYNC, after_s=50)
        assert (node.core.restored, node.core.opened[S][0]) == ([S], True)
        known = node.node.sessions.get(S)
        assert known is not None
        assert known.is_offline
        node.pass_time(IDLE_TIMEOUT / SECOND + 1)
        assert node.subscribe(node.link_up(S), "home/#", session_expiry_s=EXPIRY_S).resumed
        assert notes.sessions[S].offline_since is None


def test_the_time_that_a_session_is_offline_goes_on_while_the_node_is_down() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    node.link_down(persistent(node, S), S)
    node.pass_time(100)
    node = next_run(notes, node, Durability.OS, after_s=EXPIRY_S - 200)
    node.pass_time(90)
    assert node.core.ended == []
    node.pass_time(20)
    assert node.core.ended == [(S, "session_expired")]
    assert (notes.sessions, notes.subscriptions) == ({}, {})


def test_a_session_that_expired_while_the_node_was_down_is_not_restored() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    node.link_down(persistent(node, S), S)
    node = next_run(notes, node, Durability.FSYNC, after_s=EXPIRY_S + 1)
    assert (node.core.restored, node.node.sessions.get(S)) == ([], None)
    assert (notes.sessions, notes.subscriptions) == ({}, {})


def test_without_a_store_the_node_waits_for_connected_sessions_and_no_others() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    persistent(node, S)
    node.link_down(persistent(node, T), T)
    node = next_run(notes, node, Durability.NONE)
    assert set(node.core.opened) == {S}
    assert {session for session, _ in notes.subscriptions} == {S}
    known = node.node.sessions.get(S)
    assert known is not None
    assert known.is_unconfirmed
    assert not node.subscribe(node.link_up(S), "home/#", session_expiry_s=EXPIRY_S).resumed
    assert set(notes.sessions) == {S}
