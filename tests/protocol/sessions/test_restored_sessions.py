"""Persistent sessions of an earlier run, at a node that was killed (docs/protocol.md §5.8)."""

from __future__ import annotations

from hbroker._proto import packet_pb2 as pb
from hbroker.config import Durability
from hbroker.protocol.sessions.subscription_store import Key, Subscription
from hbroker.protocol.storage import RestoredState, SavedSession, SavedWill, Storage
from hbroker.protocol.timers import IDLE_TIMEOUT, SECOND
from tests.protocol.sole_node import SoleNode

S, T = 0x5E55, 0x7E57
EXPIRY_S = 600


class Notes(Storage):
    """What was saved, for the next run."""

    def __init__(self) -> None:
        self.sessions: dict[int, SavedSession] = {}
        self.subscriptions: dict[tuple[int, Key], Subscription] = {}
        self.wills: dict[int, SavedWill] = {}
        self.had_store = True

    def save_session(self, session: SavedSession) -> None:
        self.sessions[session.session] = session

    def end_session(self, session: int) -> None:
        self.sessions.pop(session, None)

    def save_subscription(self, subscription: Subscription, ended: bool) -> None:
        key = subscription.session, subscription.key
        self.subscriptions.pop(key, None)
        self.subscriptions |= {} if ended else {key: subscription}

    def save_will(self, will: SavedWill) -> None:
        self.wills[will.session] = will

    def end_will(self, session: int) -> None:
        self.wills.pop(session, None)

    def restored(self) -> RestoredState:
        subscriptions, wills = list(self.subscriptions.values()), list(self.wills.values())
        return RestoredState(
            subscriptions=subscriptions,
            sessions=dict(self.sessions),
            wills=wills,
            had_store=self.had_store,
        )


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


def test_what_waited_in_a_store_that_is_gone_interrupts_the_subscription() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    node.link_down(persistent(node, S), S)
    notes.had_store = False
    node = next_run(notes, node, Durability.FSYNC, after_s=50)
    assert not node.subscribe(node.link_up(S), "home/#", session_expiry_s=EXPIRY_S).resumed


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


def with_will(delay_s: int = 0) -> tuple[Notes, SoleNode, int]:
    notes = Notes()
    node = SoleNode(None, notes, durability=Durability.FSYNC)
    link = persistent(node, S)
    ack = node.will(link, "home/gone", delay_s=delay_s, session_expiry_s=EXPIRY_S)
    assert ack.reason == pb.REASON_SUCCESS
    return notes, node, link


def gone(node: SoleNode) -> int:
    """How many wills were published."""
    return sum(message.topic == "home/gone" for message in node.core.published)


def test_without_a_store_no_will_is_saved() -> None:
    notes = Notes()
    node = SoleNode(storage=notes)
    node.will(persistent(node, S), "home/gone")
    assert notes.wills == {}


def test_a_will_of_a_client_that_does_not_come_back_after_a_kill_is_published_once() -> None:
    notes, node, _ = with_will()
    node = next_run(notes, node, Durability.FSYNC)
    node.pass_time(IDLE_TIMEOUT / SECOND - 1)
    assert gone(node) == 0, "the client may still come back"
    node.pass_time(2)
    assert gone(node) == 1
    assert notes.wills == {}
    node = next_run(notes, node, Durability.FSYNC)
    node.pass_time(IDLE_TIMEOUT / SECOND + 1)
    assert gone(node) == 0


def test_a_client_that_comes_back_after_a_kill_keeps_its_will() -> None:
    notes, node, _ = with_will()
    node = next_run(notes, node, Durability.FSYNC)
    link = node.link_up(S)
    node.pass_time(100)
    assert (gone(node), notes.wills[S].due) == (0, None)
    node.link_down(link, S)
    assert gone(node) == 1


def test_another_run_of_the_client_has_the_will_of_the_killed_one_published() -> None:
    for delay_s, count in ((0, 1), (30, 0)):
        notes, node, _ = with_will(delay_s)
        node = next_run(notes, node, Durability.FSYNC)
        node.link_up(S, run=99)
        assert gone(node) == count


def test_a_delay_goes_on_over_a_kill() -> None:
    notes, node, link = with_will(delay_s=60)
    node.link_down(link, S)
    node = next_run(notes, node, Durability.FSYNC, after_s=40)
    node.pass_time(19)
    assert gone(node) == 0
    node.pass_time(2)
    assert gone(node) == 1


def test_a_will_that_was_withdrawn_or_published_is_not_saved_any_more() -> None:
    for ends in (pb.REASON_NORMAL_DISCONNECTION, pb.REASON_DISCONNECT_WITH_WILL):
        notes, node, link = with_will(delay_s=60)
        assert set(notes.wills) == {S}
        node.tell(link, pb.Leave(reason=ends, keep_session=True))
        assert notes.wills == {}


def test_wills_are_set_aside_with_the_store() -> None:
    notes, node, _ = with_will()
    node = next_run(notes, node, Durability.NONE)
    assert notes.wills == {}
    node.pass_time(IDLE_TIMEOUT / SECOND + 1)
    assert gone(node) == 0


def test_a_will_of_another_run_waits_until_that_of_the_killed_one_is_published() -> None:
    for ends in (pb.REASON_NORMAL_DISCONNECTION, None):
        notes, node, _ = with_will()
        node = next_run(notes, node, Durability.FSYNC)
        node.core.is_full = True
        link = node.link_up(S, run=99)
        assert gone(node) == 0
        if ends is None:
            ack = node.will(link, "home/new", session_expiry_s=EXPIRY_S, publisher=99)
            assert ack.reason == pb.REASON_HANDOVER
        else:
            node.tell(link, pb.Leave(reason=ends, keep_session=True))
        node.core.is_full = False
        node.pass_time(2)
        assert gone(node) == 1
        assert notes.wills == {}


def test_a_client_that_is_not_back_before_a_second_kill_has_its_time_again() -> None:
    notes, node, _ = with_will()
    node = next_run(notes, node, Durability.FSYNC)
    node.pass_time(10)
    node = next_run(notes, node, Durability.FSYNC, after_s=10)
    node.pass_time(1)
    assert gone(node) == 0
    link = node.link_up(S)
    node.pass_time(100)
    assert gone(node) == 0
    node.link_down(link, S)
    assert gone(node) == 1
