"""A node sends an answer that relies on its files only after the files are synced to the disk."""

from __future__ import annotations

from functools import partial

import pytest

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import storage
from hbroker.protocol.admin import requests
from hbroker.protocol.packets import Reason, address_of, pack
from hbroker.protocol.storage import AfterSync
from tests.protocol.sole_node import HERE, SoleNode

LINK, ANOTHER = 5, 6


class Notes(storage.Storage):
    """A disk that syncs when the test says so."""

    written = durable = 0
    is_failing = False


def test_actions_run_in_order_once_the_notes_before_them_are_on_the_disk() -> None:
    notes, done = Notes(), []
    after = AfterSync(notes)
    after.run_when_durable(lambda: done.append("at once"))
    notes.written = 1
    after.run_when_durable(lambda: done.append("first"))
    notes.written = 2
    after.send_reply(LINK, lambda: done.append("second"))
    after.run_after_replies(LINK, lambda: done.append("third"))
    assert done == ["at once"]
    assert after.poll_timeout() is None
    notes.durable = 1
    assert after.poll_timeout() == 0
    after.handle_timeout()
    assert done == ["at once", "first"]
    notes.durable = 2
    after.handle_timeout()
    after.run_after_replies(LINK, lambda: done.append("fourth"))
    assert done == ["at once", "first", "second", "third", "fourth"]


def test_while_the_disk_fails_only_actions_that_need_it_wait() -> None:
    notes, done = Notes(), []
    after = AfterSync(notes)
    notes.written, notes.is_failing = 1, True
    after.send_reply(LINK, lambda: done.append("suback"))
    after.run_when_durable(lambda: done.append("done"))
    after.send_reply(LINK, lambda: done.append("later suback"))
    after.run_after_replies(LINK, lambda: done.append("unsuback"))
    assert done == ["suback", "later suback", "unsuback"]
    notes.is_failing, notes.durable = False, 1
    after.handle_timeout()
    assert done[3:] == ["done"]


def test_actions_that_need_the_disk_wait_for_the_store_of_messages_too() -> None:
    notes, done = Notes(), []
    submissions = [7, 5]
    after = AfterSync(notes, lambda: submissions[0], lambda: submissions[1])
    after.run_when_durable(lambda: done.append("done"))
    after.send_reply(LINK, lambda: done.append("suback"))
    submissions[0] = 9
    assert (done, after.awaits_store, after.poll_timeout()) == (["suback"], True, None)
    submissions[1] = 7
    assert (after.awaits_store, after.poll_timeout()) == (False, 0)
    after.handle_timeout()
    assert done == ["suback", "done"]


def test_the_queues_of_waiting_actions_are_bounded_while_the_disk_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "MOST_WAITING", 3)
    notes = Notes()
    after = AfterSync(notes)
    notes.written = 1
    for wait in (
        after.run_when_durable,
        partial(after.send_reply, LINK),
        partial(after.run_after_replies, LINK),
    ):
        assert [wait(lambda: None) for _ in range(4)] == [True] * 3 + [False]


def test_a_packet_waits_only_for_earlier_answers_on_its_own_link() -> None:
    """Answers on other links have nothing to do with it."""
    notes, done = Notes(), list[str]()
    after = AfterSync(notes)
    for number in (1, 2):
        notes.written = number
        after.send_reply(LINK, partial(done.append, f"answer {number}"))
        after.run_after_replies(LINK, partial(done.append, f"behind {number}"))
    after.run_after_replies(ANOTHER, partial(done.append, "another's"))
    assert done == ["another's"]
    notes.durable = 1
    after.handle_timeout()
    assert done[1:] == ["answer 1", "behind 1"]
    after.run_after_replies(LINK, partial(done.append, "behind 2 too"))
    notes.durable = 2
    after.handle_timeout()
    assert done[3:] == ["answer 2", "behind 2", "behind 2 too"]
    after.run_after_replies(LINK, partial(done.append, "at once"))
    assert done[6:] == ["at once"]


def test_owner_changes_reach_a_session_however_many_answers_to_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the client never learns which node has its subscription (§6.3)."""
    monkeypatch.setattr(storage, "MOST_WAITING", 3)
    notes = Notes()
    sole = SoleNode(storage=notes)
    link = sole.link_up(7)
    assert sole.subscribe(link, "a/#").active
    notes.written = 1
    others = [sole.link_up(session) for session in (8, 9, 10, 11)]
    for other in others:
        assert sole.tell(other, pb.Subscribe(request=1, filter="b/#")) is None
    sole.core.sent.clear()
    sole.node.owner_subscriptions.add_misrouted(list(sole.node.subscription_store.of(7)))
    assert [body.request for at, body in sole.core.sent if at == link and isinstance(body, pb.SubAck)] == [0]


def test_suback_waits_until_the_subscription_is_on_the_disk() -> None:
    notes = Notes()
    sole = SoleNode(storage=notes)
    link = sole.link_up(7)
    notes.written = 1
    assert sole.tell(link, pb.Subscribe(request=1, filter="a/#")) is None
    assert sole.tell(link, pb.Unsubscribe(request=2, filter="a/#")) is None
    sole.pass_time(1)
    assert not sole.core.sent
    notes.durable = 1
    sole.pass_time(0.001)
    assert [body.request for _, body in sole.core.sent if isinstance(body, pb.SubAck)] == [1, 2]


def test_retained_messages_are_selected_before_suback_is_sent() -> None:
    """§7.6: a message that is published after the SUBACK arrives as for any subscriber, and not a second
    time."""
    notes = Notes()
    sole = SoleNode(storage=notes)
    link = sole.link_up(7)
    notes.written = 1
    assert sole.tell(link, pb.Subscribe(request=1, filter="a/#")) is None
    assert sole.core.retained_sent == [(7, "a/#", 0)]
    notes.durable = 1
    sole.pass_time(0.001)
    assert [body.request for _, body in sole.core.sent if isinstance(body, pb.SubAck)] == [1]
    assert sole.core.retained_sent == [(7, "a/#", 0)]


def test_while_the_disk_fails_subscriptions_are_accepted_and_new_children_are_refused() -> None:
    notes = Notes()
    sole = SoleNode(storage=notes)
    link = sole.link_up(7)
    notes.written, notes.is_failing = 1, True
    assert sole.subscribe(link, "a/#").active
    join = pb.Join(request=1, node="kitchen", subtree="home/kitchen", address=address_of(HERE), incarnation=1)
    answer = sole.tell(link, join)
    assert isinstance(answer, pb.JoinAck)
    assert answer.reason == Reason.REASON_NOT_SERVING
    notes.is_failing = False
    answer = sole.tell(link, join)
    assert isinstance(answer, pb.JoinAck)
    assert answer.reason == Reason.REASON_SUCCESS


def order(sole: SoleNode, request: int) -> pb.OrderAck:
    """Orders the root to claim a subtree that it owns anyway, which is done at once. Returns the answer."""
    claim = pb.Order(request=request, kind="ORDER_KIND_CLAIM", node="root", subtree="street")
    sole.node.handle_event(sole.now, ControlEvent(None, HERE, pack(claim), True))
    return last_answer(sole)


def last_answer(sole: SoleNode) -> pb.OrderAck:
    answer = sole.core.sent_outside[-1][1]
    assert isinstance(answer, pb.OrderAck)
    return answer


def test_an_order_is_answered_as_done_once_all_notes_are_on_the_disk() -> None:
    notes = Notes()
    sole = SoleNode(storage=notes)
    assert order(sole, 1).done
    notes.written = 1
    waits = order(sole, 2)
    assert (waits.done, waits.text) == (False, "")
    notes.is_failing = True
    waits = order(sole, 2)
    assert (waits.done, waits.text) == (False, requests.UNNOTED)
    notes.is_failing, notes.durable = False, 1
    sole.pass_time(0.001)
    told = last_answer(sole)
    assert (told.request, told.done, told.text) == (2, True, ""), "without being asked"
    assert order(sole, 2).done


def test_an_order_beyond_the_bound_on_waiting_actions_is_done_when_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage, "MOST_WAITING", 1)
    notes = Notes()
    sole = SoleNode(storage=notes)
    notes.written = 1
    assert not order(sole, 1).done
    assert not order(sole, 2).done
    notes.durable = 1
    sole.pass_time(0.001)
    assert [order(sole, request).done for request in (1, 2)] == [True, True]


def test_orders_that_wait_for_the_disk_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_ORDERS", 3)
    notes = Notes()
    sole = SoleNode(storage=notes)
    notes.written = 1
    assert not any(order(sole, request).done for request in (1, 2, 3))
    assert order(sole, 4).reason == Reason.REASON_QUOTA_EXCEEDED
    notes.durable = 1
    sole.pass_time(0.001)
    assert order(sole, 5).done
