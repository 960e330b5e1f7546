"""The client's side of sessions, groups and wills (docs/protocol.md §§6.4-6.6), among scripted nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Reason, cut_of, pack
from hbroker.protocol.results import (
    Subscribed,
    SubscriptionFailed,
    TakenOver,
    Unsubscribed,
    WillRefused,
    WillSet,
)
from hbroker.protocol.sessions.options import SessionOptions, session_id
from hbroker.protocol.subscriptions import shared
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.protocol.wills.client_will import State, Will
from tests.protocol.client_world import SECOND, Node, World, home, subscribed, subscribed_nodes

SESSION = session_id("tester")
PERSISTENT = SessionOptions("tester", SESSION, expiry_s=60)


def test_the_session_id_depends_on_name_and_key_alone() -> None:
    assert session_id("a") == session_id("a")
    assert len({session_id("a"), session_id("b"), session_id("a", b"k"), session_id("a", b"l")}) == 4
    assert session_id("a", b"x" * 1_000) != session_id("a", b"x" * 999)
    assert 0 < session_id("") < 2**64


# Groups


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    st.sampled_from(["a", "#", "+/b/#", "/"]),
)
def test_a_shared_filter_is_parsed_into_its_group_and_filter(group: str, filter: str) -> None:
    written = shared.joined(group, filter)
    parts = shared.split(written)
    if set(group) & set("/+#\0"):
        assert parts != (group, filter)
    else:
        assert parts == (group, filter)
    assert shared.split(filter) == ("", filter)


def test_an_invalid_shared_filter_is_refused() -> None:
    for text in ("$share/", "$share/g", "$share/g/", "$share//a", "$share/+/a", "$share/g#/a", "$share/g/a#"):
        assert shared.split(text) is None, text


def test_a_shared_subscription_is_apart_from_a_plain_one_to_the_same_filter() -> None:
    world = World()
    home(world)
    kitchen = next(node for node in world.nodes.values() if node.name == "kitchen")
    shared = world.control.subscribe(world.now, "home/kitchen/a", Options(1), group="g")
    plain = world.control.subscribe(world.now, "home/kitchen/a", Options(0))
    assert {world.result(Subscribed).subscription for _ in range(2)} == {shared, plain}
    assert set(world.listening.values()) == {"home/kitchen/a"}
    sent = [body for body in kitchen.told if isinstance(body, pb.Subscribe)]
    assert {(body.group, body.qos) for body in sent} == {("g", 1), ("", 0)}
    world.control.unsubscribe(world.now, shared)
    world.run(seconds=5)
    (ended,) = [body for body in kitchen.told if isinstance(body, pb.Unsubscribe)]
    assert (ended.group, ended.filter) == ("g", "home/kitchen/a")


# Sessions


def test_an_owner_is_told_the_options_of_the_session() -> None:
    world = World(session_options=PERSISTENT)
    options = Options(1, overflow=pb.OVERFLOW_DROP_NEWEST, queue_messages=9, queue_bytes=99)
    world.control.subscribe(world.now, "home/#", options)
    assert not world.result(Subscribed).resumed
    told = world.root.subscriptions["home/#"]
    assert (told.client, told.session_expiry_s, told.clean_start) == ("tester", 60, False)
    assert (told.overflow, told.queue_messages, told.queue_bytes) == (pb.OVERFLOW_DROP_NEWEST, 9, 99)


def test_a_subscription_is_resumed_only_if_every_owner_had_it() -> None:
    for had, resumed in (({"root", "kitchen"}, True), ({"root"}, False), (set(), False)):
        world = World(session_options=PERSISTENT)
        world.node("kitchen", "home/kitchen", world.root)
        for node in world.nodes.values():
            node.has_session = node.name in had
        world.subscribe("home/#")
        assert world.result(Subscribed).resumed is resumed


def test_a_repeated_subscribe_does_not_make_a_new_subscription_count_as_resumed() -> None:
    """The owner is slow: the client discovers again, and sends SUBSCRIBE again over the same link (seed
    10125)."""
    for had in (False, True):
        world = World(session_options=PERSISTENT)
        kitchen = world.node("kitchen", "home/kitchen", world.root)
        kitchen.is_mute, kitchen.has_session = True, had
        world.subscribe("home/kitchen/lamp", timeout=60 * SECOND)
        world.run(seconds=6)
        asked = [body for body in kitchen.told if isinstance(body, pb.Subscribe)]
        assert len(asked) == 2
        kitchen.is_mute = False
        for body in asked:
            kitchen.receive_in_session(pack(body))
            kitchen.has_session = True
        assert world.result(Subscribed).resumed is had


def test_a_subscription_is_not_resumed_if_the_link_ended_before_the_first_answer() -> None:
    world = World(session_options=PERSISTENT)
    kitchen = world.node("kitchen", "home/kitchen", world.root)
    kitchen.is_mute = True
    world.subscribe("home/kitchen/lamp", timeout=60 * SECOND)
    world.run(lambda: any(isinstance(body, pb.Subscribe) for body in kitchen.told))
    kitchen.is_mute, kitchen.has_session = False, True
    world.cut_off(kitchen)
    assert not world.result(Subscribed).resumed, "nobody knows what the first request found"


def test_a_subscription_stays_resumed_after_all_owners_have_answered_whatever_happens_to_the_links() -> None:
    world = World(session_options=PERSISTENT)
    kitchen = world.node("kitchen", "home/kitchen", world.root)
    kitchen.has_session = True
    world.subscribe("home/kitchen/lamp")
    assert world.result(Subscribed).resumed
    kitchen.is_mute = True
    world.cut_off(kitchen)
    world.run(lambda: sum(isinstance(body, pb.Subscribe) for body in kitchen.told) == 2)
    kitchen.is_mute = False
    world.cut_off(kitchen)
    world.subscribe("home/kitchen/lamp")
    assert world.result(Subscribed).resumed


@pytest.mark.parametrize(
    ("reason", "least", "most"), [("reset", 0, 60), ("restarted", 0, 60), ("timeout", 187, 400)]
)
def test_a_subscription_is_made_again_soon_if_the_owner_is_there(reason: str, least: int, most: int) -> None:
    """In milliseconds, with the way there and back."""
    world = World(session_options=PERSISTENT)
    world.subscribe("home/lamp")
    world.result(Subscribed)
    began = world.now
    world.cut_off(world.root, reason)
    world.run(lambda: bool(world.root.subscriptions))
    assert least <= (world.now - began) / 1_000 <= most


def clean_starts(node: Node) -> list[tuple[str, bool]]:
    return [(body.filter, body.clean_start) for body in node.told if isinstance(body, pb.Subscribe)]


def test_each_owner_gets_clean_start_until_it_has_answered() -> None:
    world = World(session_options=SessionOptions("tester", SESSION, clean_start=True))
    for filter in ("a", "b"):
        world.subscribe(filter)
    for _ in range(2):
        world.result(Subscribed)
    assert [clean for _, clean in clean_starts(world.root)] == [True, True], "both went before the answer"
    world.cut_off(world.root)
    world.run(lambda: len(world.root.subscriptions) == 2)
    assert [clean for _, clean in clean_starts(world.root)[2:]] == [False, False]


def test_a_client_says_that_its_run_began_the_session_anew_once_the_owner_has_answered() -> None:
    world = World(session_options=SessionOptions("tester", SESSION, clean_start=True))
    world.subscribe("a")
    world.result(Subscribed)
    world.subscribe("b")
    world.result(Subscribed)
    world.cut_off(world.root)
    world.run(lambda: len(world.root.subscriptions) == 2)
    told = [body for body in world.root.told if isinstance(body, pb.Subscribe)]
    assert [(body.clean_start, body.cleaned) for body in told] == [(True, False), *[(False, True)] * 3]


def test_clean_start_is_repeated_if_the_owner_has_not_answered() -> None:
    world = World(session_options=SessionOptions("tester", SESSION, clean_start=True))
    world.root.is_mute = True
    world.subscribe("a")
    world.run(lambda: bool(clean_starts(world.root)))
    world.cut_off(world.root)
    world.root.is_mute = False
    world.result(Subscribed)
    assert clean_starts(world.root) == [("a", True), ("a", True)]


def test_leave_keeps_a_persistent_session_unless_the_client_ends_it() -> None:
    for session_options, end, keeps in (
        (PERSISTENT, False, True),
        (PERSISTENT, True, False),
        (SessionOptions("x", 1), False, False),
    ):
        world = World(session_options=session_options)
        world.subscribe("home/#")
        world.result(Subscribed)
        world.control.leave(end_session=end)
        world.run(seconds=1)
        (leave,) = [body for body in world.root.told if isinstance(body, pb.Leave)]
        assert leave.keep_session is keeps


def test_a_released_subscription_stays_in_the_session() -> None:
    world = World(session_options=PERSISTENT)
    id = world.subscribe("home/#")
    world.result(Subscribed)
    world.control.release(world.now, id)
    world.run(seconds=5)
    assert world.listening == {}
    assert "home/#" in world.root.subscriptions


def test_a_subscription_of_an_earlier_run_is_not_ended_in_a_persistent_session() -> None:
    for session_options, ends in ((PERSISTENT, False), (SessionOptions("x", 1), True)):
        world = World(session_options=session_options)
        world.deliver(world.root, pb.SubAck(node="root", filter="old/#", active=True))
        world.run(seconds=5)
        assert any(isinstance(body, pb.Unsubscribe) for body in world.root.told) is ends


def unsubscribes_at(node: Node) -> list[tuple[str, str]]:
    return [(body.group, body.filter) for body in node.told if isinstance(body, pb.Unsubscribe)]


def test_a_subscription_that_this_run_ended_is_ended_again_at_its_new_owner() -> None:
    world = World(session_options=PERSISTENT)
    kitchen = world.node("kitchen", "home/kitchen", world.root)
    took_over = pb.SubAck(node="kitchen", group="g", filter="home/#", active=True)

    def subscribe() -> int:
        id = world.control.subscribe(world.now, "home/#", Options(1), group="g")
        world.result(Subscribed)
        return id

    world.control.unsubscribe(world.now, subscribe())
    world.result(Unsubscribed)
    told = len(unsubscribes_at(kitchen))
    world.deliver(kitchen, took_over)
    world.run(seconds=5)
    assert unsubscribes_at(kitchen)[told:] == [("g", "home/#")]
    told += 1
    subscribe()
    world.deliver(kitchen, took_over)
    world.run(seconds=5)
    assert len(unsubscribes_at(kitchen)) == told, "it is wanted again"


def test_a_released_subscription_is_not_ended_at_its_new_owner() -> None:
    world = World(session_options=PERSISTENT)
    world.control.unsubscribe(world.now, world.subscribe("home/#"))
    world.result(Unsubscribed)
    id = world.subscribe("home/#")
    world.result(Subscribed)
    world.control.release(world.now, id)
    told = len(unsubscribes_at(world.root))
    world.deliver(world.root, pb.SubAck(node="root", filter="home/#", active=True))
    world.run(seconds=5)
    assert len(unsubscribes_at(world.root)) == told


def test_an_overflow_ends_the_subscription_if_its_policy_says_so() -> None:
    world = World(session_options=PERSISTENT)
    world.node("kitchen", "home/kitchen", world.root)
    id = world.control.subscribe(world.now, "home/#", Options(1, overflow=pb.OVERFLOW_END_SESSION))
    world.result(Subscribed)
    ended = pb.SubAck(node="root", filter="home/#", reason=pb.REASON_QUOTA_EXCEEDED)
    world.deliver(world.root, ended)
    failed = world.result(SubscriptionFailed)
    assert (failed.subscription, failed.reason, failed.answered) == (id, Reason.REASON_QUOTA_EXCEEDED, True)
    world.run(seconds=60)
    assert world.listening == {}
    assert all("home/#" not in node.subscriptions for node in world.nodes.values()), "nor elsewhere"
    assert world.control.poll_timeout() is None


def taken_over(world: World, session: int) -> None:
    body = pb.Leave(session=session, reason=pb.REASON_SESSION_TAKEN_OVER)
    world.event(ControlEvent(None, world.root.address, pack(body), True))


def test_a_run_whose_session_is_taken_over_does_not_subscribe_again() -> None:
    world = World(session_options=PERSISTENT)
    world.subscribe("home/#")
    world.result(Subscribed)
    taken_over(world, SESSION)
    failed = world.result(SubscriptionFailed)
    assert failed.reason == Reason.REASON_SESSION_TAKEN_OVER
    assert world.result(TakenOver) == TakenOver()
    heard = len(world.root.told)
    world.cut_off(world.root)
    world.run(seconds=60)
    assert len(world.root.told) == heard
    assert world.control.poll_timeout() is None


def test_a_takeover_notice_with_another_session_id_is_ignored() -> None:
    for session_options, session in ((PERSISTENT, SESSION + 1), (SessionOptions("x", 0), 0)):
        world = World(session_options=session_options)
        world.subscribe("home/#")
        world.result(Subscribed)
        taken_over(world, session)
        world.run(seconds=5)
        assert world.results == []


# Wills


def will(topic: str = "home/kitchen/gone", delay_s: int = 5) -> Will:
    return Will(pb.Publish(topic=topic, payload=b"x", qos=pb.QOS_AT_LEAST_ONCE), delay_s)


def registrations(node: Node) -> list[pb.Publish]:
    return [pb.Publish.FromString(body.publish) for body in node.told if isinstance(body, pb.Will)]


def state(world: World) -> State | None:
    return world.control.will_state


def test_the_will_is_registered_at_the_owner_of_its_topic() -> None:
    world = World(session_options=PERSISTENT)
    nodes = home(world)
    world.control.set_will(world.now, will())
    assert world.result(WillSet) == WillSet("kitchen")
    (told,) = [body for body in nodes["kitchen"].told if isinstance(body, pb.Will)]
    assert (told.delay_s, told.session_expiry_s) == (5, 60)
    (message,) = registrations(nodes["kitchen"])
    assert (message.topic, message.payload, message.qos) == ("home/kitchen/gone", b"x", 1)
    assert message.publisher
    assert message.sequence == 1
    assert registrations(world.root) == []


def test_a_will_gets_a_new_message_id_if_its_owner_may_have_published_it() -> None:
    world = World(session_options=PERSISTENT)
    nodes = home(world)
    world.control.set_will(world.now, will())
    world.result(WillSet)
    world.cut_off(nodes["kitchen"])
    world.run(lambda: len(registrations(nodes["kitchen"])) == 2)
    first, second = registrations(nodes["kitchen"])
    assert (first.publisher, first.sequence + 1) == (second.publisher, second.sequence)
    assert world.run(lambda: state(world) is State.KEPT)


def test_a_will_keeps_its_message_id_when_its_topic_moves() -> None:
    world = World(session_options=PERSISTENT)
    nodes = home(world)
    world.control.set_will(world.now, will("home/kitchen/oven/gone"))
    world.result(WillSet)
    oven = world.node("oven", "home/kitchen/oven", nodes["kitchen"])
    news = pb.WillAck(reason=pb.REASON_HANDOVER, referral=cut_of(oven.cut()))
    world.forget_zones()
    world.deliver(nodes["kitchen"], news)
    assert world.run(lambda: bool(registrations(oven)))
    assert registrations(oven) == registrations(nodes["kitchen"])
    assert world.run(lambda: state(world) is State.KEPT)
    assert world.results == [], "the application was told once"


def test_a_will_is_registered_later_if_the_owner_has_no_room() -> None:
    world = World(session_options=PERSISTENT)
    world.root.will_reason = Reason.REASON_QUOTA_EXCEEDED
    world.control.set_will(world.now, will())
    world.run(lambda: len(registrations(world.root)) == 3)
    assert world.results == []
    world.root.will_reason = 0
    assert world.result(WillSet) == WillSet("root")
    assert {message.sequence for message in registrations(world.root)} == {1}


def test_a_will_that_is_not_authorized_is_refused_for_good() -> None:
    world = World(session_options=PERSISTENT)
    world.root.will_reason = Reason.REASON_NOT_AUTHORIZED
    world.control.set_will(world.now, will())
    refused = world.result(WillRefused)
    assert (refused.topic, refused.reason) == ("home/kitchen/gone", Reason.REASON_NOT_AUTHORIZED)
    assert refused.answered
    world.run(seconds=60)
    assert len(registrations(world.root)) == 1
    assert world.control.poll_timeout() is None


def test_a_will_without_an_owner_fails_when_its_patience_is_over() -> None:
    world = World(session_options=PERSISTENT)
    world.root.alive = False
    began = world.now
    world.control.set_will(world.now, will(), timeout=3 * SECOND)
    refused = world.result(WillRefused)
    assert not refused.answered
    assert world.now - began == 3 * SECOND


def test_a_will_is_looked_up_again_if_the_owner_never_answers() -> None:
    world = World(session_options=PERSISTENT)
    world.root.is_mute = True
    world.control.set_will(world.now, will(), timeout=60 * SECOND)
    assert world.run(lambda: len(registrations(world.root)) == 2)
    world.root.is_mute = False
    assert world.result(WillSet) == WillSet("root")


def test_a_client_that_leaves_does_not_register_its_will_again() -> None:
    world = World(session_options=PERSISTENT)
    world.control.set_will(world.now, will())
    world.result(WillSet)
    world.control.leave()
    world.cut_off(world.root)
    world.run(seconds=60)
    assert len(registrations(world.root)) == 1
    assert world.control.poll_timeout() is None


@pytest.mark.parametrize(
    "before", [State.RESOLVING, State.AWAIT_ACK, State.KEPT, State.BACKING_OFF, State.REFUSED]
)
def test_a_later_will_replaces_the_former_in_every_state(before: State) -> None:
    world = World(session_options=PERSISTENT)
    nodes = home(world)
    kitchen = nodes["kitchen"]
    world.control.set_will(world.now, will(), timeout=60 * SECOND)
    kitchen.is_mute = before is State.AWAIT_ACK
    if before is State.BACKING_OFF:
        kitchen.will_reason = Reason.REASON_QUOTA_EXCEEDED
    elif before is State.REFUSED:
        kitchen.will_reason = Reason.REASON_NOT_AUTHORIZED
    assert world.run(lambda: state(world) is before)
    world.results.clear()
    kitchen.is_mute, kitchen.will_reason = False, 0
    later = will("home/kitchen/later")
    world.control.set_will(world.now, later)
    assert world.result(WillSet) == WillSet("kitchen")
    world.run(seconds=60)
    assert world.results == [], "it is told once"
    last = registrations(kitchen)[-1]
    assert (last.topic, last.sequence) == ("home/kitchen/later", 2)
    world.cut_off(kitchen)
    assert world.run(lambda: registrations(kitchen)[-1].sequence == 3)
    assert registrations(kitchen)[-1].topic == "home/kitchen/later"


@pytest.mark.parametrize("reason", ["reset", "restarted", "timeout"])
def test_a_client_that_has_left_makes_no_subscription_again(reason: str) -> None:
    """Otherwise its session would be online again, and would acknowledge what is to wait for its next run."""
    world, nodes, _ = subscribed("home/#", 1)
    world.control.leave()
    for node in nodes.values():
        if node.address in world.links:
            world.cut_off(node, reason)
    world.run(seconds=60)
    assert subscribed_nodes(world, "home/#") == set()
    assert world.control.poll_timeout() is None
