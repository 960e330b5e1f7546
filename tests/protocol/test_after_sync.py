"""What a node says on the strength of its files waits for the disk."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import storage
from hbroker.protocol.packets import Reason, address_of
from hbroker.protocol.storage import AfterSync
from tests.protocol.sole_node import HERE, SoleNode


class Notes:
    """A disk that syncs when a test says so."""

    def __init__(self) -> None:
        self.written = self.durable = 0
        self.is_failing = False

    def know_delegations(self) -> None: ...

    def know_subscriptions(self) -> None: ...


def test_actions_are_done_in_order_once_what_came_before_them_is_on_the_disk() -> None:
    notes, done = Notes(), []
    after = AfterSync(notes)
    after.do(lambda: done.append("at once"))
    notes.written = 1
    after.do(lambda: done.append("first"))
    notes.written = 2
    after.do(lambda: done.append("second"), needs_disk=False)
    after.follow(lambda: done.append("third"))
    assert done == ["at once"]
    assert after.poll_timeout() is None
    notes.durable = 1
    assert after.poll_timeout() == 0
    after.handle_timeout()
    assert done == ["at once", "first"]
    notes.durable = 2
    after.handle_timeout()
    after.follow(lambda: done.append("fourth"))
    assert done == ["at once", "first", "second", "third", "fourth"]


def test_while_the_disk_fails_only_those_wait_who_need_it() -> None:
    notes, done = Notes(), []
    after = AfterSync(notes)
    notes.written, notes.is_failing = 1, True
    after.do(lambda: done.append("suback"), needs_disk=False)
    after.do(lambda: done.append("done"))
    after.do(lambda: done.append("later suback"), needs_disk=False)
    after.follow(lambda: done.append("unsuback"))
    assert done == ["suback", "later suback", "unsuback"]
    notes.is_failing, notes.durable = False, 1
    after.handle_timeout()
    assert done[3:] == ["done"]


def test_a_disk_that_hangs_makes_nothing_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MOST_WAITING", 3)
    notes = Notes()
    after = AfterSync(notes)
    notes.written = 1
    for needs_disk in (True, False):
        assert [after.do(lambda: None, needs_disk=needs_disk) for _ in range(4)] == [True] * 3 + [False]
    assert not after.follow(lambda: None)


def test_suback_waits_until_the_subscription_is_on_the_disk() -> None:
    notes = Notes()
    sole = SoleNode(storage=notes)
    link = sole.link_up(7)
    notes.written = 1
    assert sole.tell(link, pb.Subscribe(request=1, filter="a/#")) is None
    assert sole.tell(link, pb.Unsubscribe(request=2, filter="a/#")) is None
    sole.pass_time(1)
    assert not sole.core.sent
    assert not sole.core.retained_sent
    notes.durable = 1
    sole.pass_time(0.001)
    assert [body.request for _, body in sole.core.sent if isinstance(body, pb.SubAck)] == [1, 2]
    assert not sole.core.retained_sent, "it has ended meanwhile"
    notes.written = 2
    assert sole.tell(link, pb.Subscribe(request=3, filter="a/#")) is None
    assert not sole.core.retained_sent
    notes.durable = 2
    sole.pass_time(0.001)
    assert sole.core.retained_sent == [(7, "a/#", 0)]


def test_while_the_disk_fails_subscribers_are_taken_and_new_children_wait() -> None:
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
