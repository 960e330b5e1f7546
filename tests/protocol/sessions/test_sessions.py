"""Sessions at a node (docs/protocol.md §§6.4, 6.5): stored, resumed, ended, taken over, handed over."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hbroker._native import OverflowEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, Limits
from hbroker.protocol.handover.subtree_state import ReceivedState
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import Reason
from hbroker.protocol.sessions.session_table import Session
from hbroker.protocol.sessions.subscription_store import Subscription, record_of, subscription_from
from hbroker.protocol.timers import IDLE_TIMEOUT, SECOND
from tests.protocol.sole_node import ELSEWHERE, HERE, SoleNode

S = 0x5E55


def session_of(node: SoleNode, session: int = S) -> Session | None:
    return node.node.sessions.get(session)


def subscriber(**fields: Any) -> tuple[SoleNode, int]:
    """A node with one session, which has one subscription; and the session's link."""
    node = SoleNode()
    link = node.link_up(S)
    node.subscribe(link, "home/#", **fields)
    return node, link


def is_offline(session: Session | None) -> bool:
    return session is not None and session.is_offline


def test_a_session_without_an_expiry_ends_with_its_link() -> None:
    node, link = subscriber(qos=pb.QOS_AT_LEAST_ONCE)
    assert node.core.opened[S][0] is False
    node.link_down(link, S)
    assert session_of(node) is None
    assert len(node.node.subscription_store) == 0
    assert node.subscribe(node.link_up(S), "home/#").resumed is False


def test_a_session_without_an_expiry_goes_on_over_the_next_link_of_the_same_run() -> None:
    node, link = subscriber()
    node.subscribe(link, "garden/#")
    node.link_down(link, S, "restarted")
    again = node.link_up(S)
    assert node.subscribe(again, "home/#").resumed
    assert node.core.ended == []
    assert node.core.opened[S][0] is False
    node.pass_time(IDLE_TIMEOUT / SECOND + 1)
    assert {s.filter for s in node.node.subscription_store} == {"home/#"}
    node.link_down(again, S)
    assert session_of(node) is None


def test_a_session_without_an_expiry_ends_if_the_run_begins_no_other_link() -> None:
    node, link = subscriber()
    node.link_down(link, S, "restarted")
    assert is_offline(session_of(node))
    node.pass_time(IDLE_TIMEOUT / SECOND + 1)
    assert session_of(node) is None
    assert len(node.node.subscription_store) == 0
    assert [session for session, _ in node.core.ended] == [S]


def test_a_session_without_an_expiry_ends_its_subscriptions_if_the_client_does_not_repeat_them() -> None:
    node, link = subscriber()
    node.link_down(link, S, "restarted")
    again = node.link_up(S)
    node.pass_time(IDLE_TIMEOUT / SECOND + 1)
    assert node.core.ended == [(S, "session_ended")]
    assert len(node.node.subscription_store) == 0
    node.link_down(again, S)
    assert session_of(node) is None


def test_a_persistent_session_is_offline_until_a_link_from_another_address_resumes_it() -> None:
    node = SoleNode()
    link = node.link_up(S)
    assert not node.subscribe(link, "home/#", session_expiry_s=60).resumed
    node.link_down(link, S)
    offline = session_of(node)
    assert is_offline(offline)
    assert len(node.node.subscription_store) == 1
    node.pass_time(59)
    again = node.link_up(S, ELSEWHERE)
    assert session_of(node) is offline
    assert not is_offline(offline)
    assert node.subscribe(again, "home/#", session_expiry_s=60).resumed
    assert not node.subscribe(again, "garden/#", session_expiry_s=60).resumed
    node.pass_time(1_000)
    assert node.core.ended == []


def test_a_session_ends_when_it_has_been_offline_for_its_expiry() -> None:
    node, link = subscriber(session_expiry_s=60)
    node.link_down(link, S)
    node.pass_time(59.9)
    assert node.core.ended == []
    node.pass_time(0.2)
    assert node.core.ended == [(S, "session_expired")]
    assert session_of(node) is None
    assert len(node.node.subscription_store) == 0


def test_the_node_bounds_the_session_expiry() -> None:
    node = SoleNode(Limits(session_expiry=10))
    link = node.link_up(S)
    node.subscribe(link, "home/#", session_expiry_s=0xFFFF_FFFF)
    node.link_down(link, S)
    node.pass_time(10.1)
    assert node.core.ended == [(S, "session_expired")]


@pytest.mark.parametrize("keep", [True, False])
def test_leave_keeps_the_session_only_with_keep_session(keep: bool) -> None:
    node, link = subscriber(session_expiry_s=60)
    node.tell(link, pb.Leave(reason=pb.REASON_NORMAL_DISCONNECTION, keep_session=keep))
    assert node.core.closed == [link]
    node.link_down(link, S, "closed")
    assert (session_of(node) is not None) is keep
    assert len(node.node.subscription_store) == keep
    assert node.core.ended == ([] if keep else [(S, "session_ended")])


def test_a_clean_start_ends_only_the_earlier_subscriptions() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.subscribe(link, "old/#", session_expiry_s=60)
    node.link_down(link, S)
    again = node.link_up(S)
    assert not node.subscribe(again, "old/#", session_expiry_s=60, clean_start=True).resumed
    assert node.core.ended == [(S, "session_ended")]
    node.subscribe(again, "new/#", session_expiry_s=60)
    assert {s.filter for s in node.node.subscription_store} == {"old/#", "new/#"}


def test_a_clean_start_ends_nothing_of_its_own_run() -> None:
    """A handover may have brought it, or the client may have begun another link before the answer came."""
    node = SoleNode()
    first = node.link_up(S, run=1)
    node.subscribe(first, "old/#", session_expiry_s=60, clean_start=True)
    node.link_down(first, S)
    second = node.link_up(S, run=1)
    assert node.subscribe(second, "old/#", session_expiry_s=60, clean_start=True).resumed
    node.subscribe(second, "new/#", session_expiry_s=60, clean_start=True)
    assert node.core.ended == []
    node.link_down(second, S)
    later = node.link_up(S, run=2)
    assert not node.subscribe(later, "new/#", session_expiry_s=60, clean_start=True).resumed
    assert node.core.ended == [(S, "session_ended")]
    assert {s.filter for s in node.node.subscription_store} == {"new/#"}


@pytest.mark.parametrize("expiry", [0, 60])
def test_an_owner_learns_again_which_run_began_the_session(expiry: int) -> None:
    """It forgot the session with its link, or was restarted. The client said `clean_start` before."""
    node = SoleNode()
    link = node.link_up(S, run=1)
    node.subscribe(link, "home/#", session_expiry_s=expiry)
    node.pass_time(5)
    assert node.subscribe(link, "home/#", session_expiry_s=expiry, cleaned=True).resumed
    node.pass_time(20)
    (record,) = node.node.sessions.records("home")
    assert (record.begun_by, record.begun_us) == (1, 20 * SECOND)
    assert node.core.ended == []


def test_a_session_that_begins_anew_after_an_overflow_is_still_of_the_run_that_began_it() -> None:
    node = SoleNode()
    link = node.link_up(S, run=1)
    node.subscribe(link, "home/#", session_expiry_s=60, clean_start=True)
    node.node.handle_event(node.now, OverflowEvent(S, link))
    node.subscribe(link, "home/#", session_expiry_s=60)
    (record,) = node.node.sessions.records("home")
    assert record.begun_by == 1


def test_a_repeated_subscribe_sends_retained_messages_as_its_retain_handling_says() -> None:
    node = SoleNode()
    link = node.link_up(S)
    if_new = pb.RETAIN_HANDLING_SEND_IF_NEW
    node.subscribe(link, "home/#", session_expiry_s=60, retain_handling=if_new)
    node.link_down(link, S)
    again = node.link_up(S)
    node.subscribe(again, "home/#", session_expiry_s=60, retain_handling=if_new)
    assert node.core.retained_sent == [(S, "home/#", 0)]
    node.subscribe(again, "home/#", session_expiry_s=60)
    assert node.core.retained_sent == [(S, "home/#", 0)] * 2


def test_the_largest_requested_queue_bounds_count() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.subscribe(link, "a", queue_messages=10, queue_bytes=2_000)
    node.subscribe(link, "b")
    node.subscribe(link, "c", queue_messages=5, queue_bytes=3_000)
    assert node.core.opened[S] == (False, 10, 3_000)


def test_a_session_whose_queue_overflowed_ends_and_its_client_is_told() -> None:
    node = SoleNode()
    link = node.link_up(S)
    for filter in ("a", "b/#"):
        node.subscribe(link, filter, session_expiry_s=60, overflow=pb.OVERFLOW_END_SESSION)
    node.core.sent.clear()
    node.node.handle_event(node.now, OverflowEvent(S, link))
    acks = [body for at, body in node.core.sent if at == link and isinstance(body, pb.SubAck)]
    assert {(ack.filter, ack.reason, ack.active, ack.request) for ack in acks} == {
        ("a", Reason.REASON_QUOTA_EXCEEDED, False, 0),
        ("b/#", Reason.REASON_QUOTA_EXCEEDED, False, 0),
    }
    assert not len(node.node.subscription_store)
    assert not node.subscribe(link, "a", session_expiry_s=60).resumed, "it begins anew"


def test_a_subscription_with_too_many_retained_messages_waiting_ends_and_its_client_is_told() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.subscribe(link, "home/+")
    node.core.takes_replays = False
    node.core.sent.clear()
    node.tell(link, pb.Subscribe(request=5, filter="home/#", qos="QOS_AT_LEAST_ONCE"))
    acks = [body for at, body in node.core.sent if at == link and isinstance(body, pb.SubAck)]
    assert [(ack.request, ack.active, ack.reason) for ack in acks] == [
        (5, True, Reason.REASON_SUCCESS),
        (0, False, Reason.REASON_QUOTA_EXCEEDED),
    ]
    assert {s.filter for s in node.node.subscription_store} == {"home/+"}
    assert (S, "", "home/#") not in node.core.subscriptions


def test_a_session_for_which_the_core_has_no_room_is_refused() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.core.has_room = False
    ack = node.subscribe(link, "home/#", session_expiry_s=60)
    assert (ack.reason, ack.active) == (Reason.REASON_QUOTA_EXCEEDED, False)
    assert len(node.node.subscription_store) == 0


# Shared groups


def test_a_shared_subscription_is_apart_from_a_plain_one_to_the_same_filter() -> None:
    node = SoleNode()
    link = node.link_up(S)
    ack = node.subscribe(link, "jobs/#", group="workers", overflow=pb.OVERFLOW_DROP_NEWEST)
    assert (ack.group, ack.filter, ack.active) == ("workers", "jobs/#", True)
    node.subscribe(link, "jobs/#")
    assert node.core.retained_sent == [(S, "jobs/#", 0)], "a group gets nothing retained"
    assert node.core.subscriptions[S, "workers", "jobs/#"]["overflow"] == pb.OVERFLOW_DROP_NEWEST
    answer = node.tell(link, pb.Unsubscribe(request=9, filter="jobs/#", group="workers"))
    assert isinstance(answer, pb.SubAck)
    assert (answer.group, answer.reason) == ("workers", Reason.REASON_SUCCESS)
    assert set(node.core.subscriptions) == {(S, "", "jobs/#")}


@pytest.mark.parametrize("group", ["a/b", "+", "#", "a#", "\0"])
def test_an_invalid_group_name_is_refused(group: str) -> None:
    node = SoleNode()
    ack = node.subscribe(node.link_up(S), "jobs/#", group=group)
    assert ack.reason == Reason.REASON_TOPIC_FILTER_INVALID


def test_an_unknown_overflow_policy_is_refused() -> None:
    node = SoleNode()
    link = node.link_up(S)
    packet = pb.Subscribe(request=1, filter="a")
    packet.MergeFromString(b"\x68\x07")  # overflow = 7
    answer = node.tell(link, packet)
    assert isinstance(answer, pb.SubAck)
    assert answer.reason == Reason.REASON_PROTOCOL_ERROR


# Takeover


def takeover_notices(node: SoleNode) -> list[tuple[str, int]]:
    return [
        (address[0], body.session)
        for address, body in node.core.sent_outside
        if isinstance(body, pb.Leave) and body.reason == Reason.REASON_SESSION_TAKEN_OVER
    ]


def test_the_former_run_is_told_four_times_of_the_takeover() -> None:
    node, link = subscriber(session_expiry_s=60)
    node.link_down(link, S, "taken_over")
    node.link_up(S, ELSEWHERE)
    node.pass_time(60)
    assert takeover_notices(node) == [(HERE[0], S)] * 4
    assert len(node.node.subscription_store) == 1


def test_a_former_run_at_the_same_address_is_not_told_of_the_takeover() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.link_down(link, S, "taken_over")
    node.link_up(S, HERE)
    node.pass_time(60)
    assert takeover_notices(node) == []


def test_another_link_of_the_same_run_is_no_takeover() -> None:
    node = SoleNode()
    link = node.link_up(S)
    node.link_down(link, S, "restarted")
    node.link_up(S, ELSEWHERE)
    node.pass_time(60)
    assert takeover_notices(node) == []


# Counters of messages


def test_a_node_publishes_the_message_counters_of_each_session_under_the_clients_name() -> None:
    node, _ = subscriber(session_expiry_s=60, client="lamp")
    counters = {"accepted": 10, "delivered": 4, "expired": 1, "queued": 2, "queued_bytes": 99}
    node.core.message_totals = [
        SimpleNamespace(session=S, connected=True, stalled=True, dropped={"queue_full": 3}, **counters),
        SimpleNamespace(session=9, connected=False, stalled=False, dropped={}, **dict.fromkeys(counters, 0)),
    ]
    reader = node.link_up(2)
    node.subscribe(reader, "$SYS/nodes/root/sessions")
    topic, payload, qos, retain = node.core.own[-1]
    assert (topic, qos, retain) == ("$SYS/nodes/root/sessions", 1, True)
    statuses = json.loads(payload)["sessions"]
    assert statuses[0] == {
        "client": "lamp",
        "state": "stalled",
        "dropped": {"queue_full": 3},
        **counters,
    }
    assert (statuses[1]["client"], statuses[1]["state"]) == ("", "offline")
    assert str(S) not in payload.decode(), "the id of a session is a secret"


# Handover


def received_state(
    *sessions: pb.SessionRecord, subscriptions: tuple[Subscription, ...] = ()
) -> ReceivedState:
    """The state received in a handover from another node, with these sessions and subscriptions."""
    received = ReceivedState()
    received.add(pb.Transfer(sessions=sessions, subscriptions=map(record_of, subscriptions)))
    return received


def test_a_session_moves_with_its_bounds_and_its_time_offline() -> None:
    source, target = SoleNode(), SoleNode()
    link = source.link_up(S)
    source.subscribe(link, "home/#", session_expiry_s=60, queue_messages=11, queue_bytes=5_000)
    source.link_down(link, S)
    source.pass_time(20)
    other = source.link_up(2)
    source.subscribe(other, "garden/#", session_expiry_s=60)
    (record,) = source.node.sessions.records("home/kitchen")
    assert (record.session, record.offline_us) == (S, 20 * SECOND)
    target.node.sessions.install_state(target.now, received_state(record))
    assert target.core.opened == {S: (True, 11, 5_000)}
    target.pass_time(39)
    assert target.core.ended == []
    target.pass_time(2)
    assert target.core.ended == [(S, "session_expired")], "its time offline counts from the beginning"


def test_a_connected_session_gets_a_link_from_the_new_owner() -> None:
    source, target = SoleNode(), SoleNode()
    link = source.link_up(S)
    source.subscribe(link, "home/#", session_expiry_s=60)
    (record,) = source.node.sessions.records("home")
    assert not record.HasField("offline_us")
    (subscription,) = source.node.subscription_store
    target.node.sessions.install_state(target.now, received_state(record, subscriptions=(subscription,)))
    target.node.owner_subscriptions.install_state("home", [subscription])
    assert target.core.adopted == [(S, HERE)]
    taken = session_of(target)
    assert taken is not None
    assert not taken.is_offline
    target.pass_time(0)
    (suback,) = [body for _, body in target.core.sent if isinstance(body, pb.SubAck)]
    assert suback.active
    assert suback.resumed


@pytest.mark.parametrize(
    ("is_half_open", "has_subscribed", "is_replaced"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_a_link_that_the_client_never_answered_is_replaced_in_a_handover(
    is_half_open: bool, has_subscribed: bool, is_replaced: bool
) -> None:
    source, target = SoleNode(), SoleNode()
    source.subscribe(source.link_up(S), "home/#")
    (record,) = source.node.sessions.records("home")
    (subscription,) = source.node.subscription_store
    stale = target.link_up(S)
    if has_subscribed:
        target.subscribe(stale, "garden/#")
    if is_half_open:
        target.core.half_open.add(stale)
    target.node.sessions.install_state(target.now, received_state(record, subscriptions=(subscription,)))
    target.node.owner_subscriptions.install_state("home", [subscription])
    assert target.core.closed == [stale] * is_replaced
    assert target.core.adopted == [(S, HERE)] * is_replaced
    if is_replaced:
        target.link_down(stale, S, "closed")
    assert (S, "", "home/#") in target.core.subscriptions
    assert target.node.subscription_store.get(S, ("", "home/#")) is not None


def test_an_offline_session_is_marked_interrupted_when_an_owner_is_lost_and_the_mark_moves_along() -> None:
    node = SoleNode()
    offline, connected = node.link_up(S), node.link_up(2)
    for link in (offline, connected):
        node.subscribe(link, "#", session_expiry_s=60)
        node.subscribe(link, "garden/#", session_expiry_s=60)
    node.link_down(offline, S)
    node.node.owner_subscriptions.interrupt("home")
    records = {(s.session, s.filter): record_of(s).interrupted for s in node.node.subscription_store}
    assert records == {(S, "#"): True, (S, "garden/#"): False, (2, "#"): True, (2, "garden/#"): False}
    assert all(subscription_from(record_of(s)) == s for s in node.node.subscription_store)
    again = node.link_up(S)
    assert not node.subscribe(again, "#", session_expiry_s=60).resumed
    assert node.subscribe(again, "#", session_expiry_s=60).resumed, "it was told once"
    assert node.subscribe(again, "garden/#", session_expiry_s=60).resumed


def test_a_session_without_subscriptions_ends_after_a_handover_and_its_link_stays() -> None:
    node, link = subscriber(session_expiry_s=60)
    node.node.sessions.end_empty(S)
    assert not node.core.ended, "a subscription is left"
    node.tell(link, pb.Unsubscribe(request=1, filter="home/#"))
    node.node.sessions.end_empty(S)
    assert node.core.ended == [(S, "session_ended")]
    kept = session_of(node)
    assert kept is not None, "its link stays"
    assert not kept.is_persistent


def test_a_session_with_a_link_survives_the_loss_of_its_subtree_until_the_link_ends() -> None:
    """If the session ended, its messages on the way would count as acknowledged (seed 10376)."""
    node = SoleNode()
    links = {session: node.link_up(session) for session in (S, 2)}
    for session, link in links.items():
        node.subscribe(link, "home/#", session_expiry_s=60)
        node.tell(link, pb.Unsubscribe(request=1, filter="home/#"))
        if session == 2:
            node.link_down(link, session)
    node.node.sessions.sweep()
    assert node.core.ended == [(2, "session_ended")], "nobody would answer in that one"
    kept = session_of(node)
    assert kept is not None
    assert not kept.is_persistent
    assert node.core.opened[S][0] is False
    node.link_down(links[S], S)
    assert session_of(node) is None, "it ends with its link"


def test_a_node_that_lost_a_subtree_names_its_cuts_around_it() -> None:
    """Otherwise the node would seem to serve the subtree around, which it was given with cuts (seed
    10287)."""
    node = SoleNode()
    link = node.link_up(S)
    node.subscribe(link, "home/lamp")
    delegation = Delegation("home", "kitchen", ("10.3.3.3", 7700), 5, 9, LeasePolicy.FENCE, None, 0)
    node.node.jurisdiction.delegate(delegation)
    node.node.owner_subscriptions.sweep()
    news = node.core.sent[-1][1]
    assert isinstance(news, pb.SubAck)
    assert (news.request, news.active, list(news.held)) == (0, False, [""])
    assert [(cut.subtree, cut.node, cut.epoch) for cut in news.passed_to] == [("home", "kitchen", 9)]


# Random orders of events


class SessionMachine(RuleBasedStateMachine):
    """Links of three sessions go up and down, and the sessions subscribe, leave, end and expire. The
    tables stay consistent."""

    def __init__(self) -> None:
        super().__init__()
        self.node = SoleNode()
        self.links: dict[int, int] = {}

    @rule(session=st.integers(1, 3))
    def up(self, session: int) -> None:
        if session in self.links:
            self.node.link_down(self.links.pop(session), session, "restarted")
        self.links[session] = self.node.link_up(session)

    @rule(session=st.integers(1, 3))
    def up_before_the_former_link_is_down(self, session: int) -> None:
        former = self.links.get(session)
        self.links[session] = self.node.link_up(session, ELSEWHERE)
        if former is not None:
            self.node.link_down(former, session, "taken_over")

    @precondition(lambda self: self.links)
    @rule(
        data=st.data(), expiry=st.sampled_from([0, 5, 50]), clean=st.booleans(), filter=st.sampled_from("ab")
    )
    def subscribe(self, data: st.DataObject, expiry: int, clean: bool, filter: str) -> None:
        session = data.draw(st.sampled_from(sorted(self.links)))
        link = self.links[session]
        assert self.node.subscribe(link, filter, session_expiry_s=expiry, clean_start=clean).active

    @precondition(lambda self: self.links)
    @rule(
        data=st.data(), reason=st.sampled_from(["timeout", "reset", "closed"]), keep=st.none() | st.booleans()
    )
    def down(self, data: st.DataObject, reason: str, keep: bool | None) -> None:
        session = data.draw(st.sampled_from(sorted(self.links)))
        link = self.links.pop(session)
        if keep is not None:
            self.node.tell(link, pb.Leave(keep_session=keep))
        known = session_of(self.node, session)
        if known is not None and not known.is_persistent:
            self.node.core.opened.pop(session, None)  # as the core itself does
            for key in [key for key in self.node.core.subscriptions if key[0] == session]:
                del self.node.core.subscriptions[key]
        self.node.link_down(link, session, reason)

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def wait(self, seconds: int) -> None:
        self.node.pass_time(seconds)

    @invariant()
    def tables_are_consistent(self) -> None:
        sessions = self.node.node.sessions
        assert sessions.connected == len(self.links)
        for session, link in self.links.items():
            known = sessions.of_link(link)
            assert known is not None
            assert (known.id, known.link, known.is_offline) == (session, link, False)
        held = {(s.session, s.group, s.filter) for s in self.node.node.subscription_store}
        assert all(session_of(self.node, session) is not None for session, _, _ in held)
        offline = [s for s in range(1, 4) if s not in self.links and session_of(self.node, s) is not None]
        assert all(known.is_offline for known in map(lambda s: session_of(self.node, s), offline) if known)


SessionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestSessionMachine = SessionMachine.TestCase
