"""Wills at their owner (docs/protocol.md §6.6): kept, published once, withdrawn, handed over."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, Limits
from hbroker.protocol.handover.transfer import ReceivedState
from hbroker.protocol.ownership.jurisdiction import Delegation, Grant
from hbroker.protocol.packets import Reason
from hbroker.protocol.timers import IDLE_TIMEOUT, SECOND
from tests.protocol.sole_node import ELSEWHERE, HERE, OFFSET_US, SoleNode

S = 0x5E55


def published(node: SoleNode) -> list[tuple[str, int, int]]:
    return [(m.topic, m.publisher, m.sequence) for m in node.core.published]


def with_will(
    delay_s: int = 0, session_expiry_s: int = 600, limits: Limits | None = None
) -> tuple[SoleNode, int]:
    node = SoleNode(limits)
    link = node.link_up(S)
    node.subscribe(link, "any", session_expiry_s=session_expiry_s)
    ack = node.will(link, "home/gone", delay_s=delay_s, session_expiry_s=session_expiry_s)
    assert ack.reason == Reason.REASON_SUCCESS
    return node, link


def test_it_is_published_when_its_session_breaks_off() -> None:
    node, link = with_will()
    assert published(node) == []
    node.link_down(link, S)
    assert published(node) == [("home/gone", 7, 1)]
    assert node.core.published[0].published_at_us == node.now + OFFSET_US
    node.link_up(S)
    node.pass_time(1_000)
    assert len(node.core.published) == 1


def test_a_delay_gives_the_client_time_to_come_back() -> None:
    node, link = with_will(delay_s=30)
    node.link_down(link, S)
    node.pass_time(29)
    link = node.link_up(S, ELSEWHERE)
    node.pass_time(100)
    assert published(node) == []
    node.link_down(link, S)
    node.pass_time(29.9)
    assert published(node) == []
    node.pass_time(0.2)
    assert published(node) == [("home/gone", 7, 1)]


@pytest.mark.parametrize(("expiry", "due"), [(0, 0), (10, 10), (600, 60)])
def test_it_waits_no_longer_than_the_session(expiry: int, due: int) -> None:
    node, link = with_will(delay_s=60, session_expiry_s=expiry)
    node.link_down(link, S)
    if due:
        node.pass_time(due - 0.1)
        assert published(node) == []
        node.pass_time(0.2)
    assert len(published(node)) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_a_clean_close_withdraws_it(keep: bool) -> None:
    node, link = with_will()
    node.tell(link, pb.Leave(reason=pb.REASON_NORMAL_DISCONNECTION, keep_session=keep))
    node.link_down(link, S, "closed")
    node.pass_time(1_000)
    assert published(node) == []
    assert len(node.node.wills) == 0


def test_a_close_may_ask_for_it() -> None:
    node, link = with_will(delay_s=60)
    node.tell(link, pb.Leave(reason=pb.REASON_DISCONNECT_WITH_WILL, keep_session=True))
    assert len(published(node)) == 1
    node.link_down(link, S, "closed")
    node.pass_time(1_000)
    assert len(published(node)) == 1


def test_a_new_link_of_the_same_run_is_no_break() -> None:
    node, link = with_will()
    node.link_down(link, S, "restarted")
    node.link_up(S)
    node.pass_time(1_000)
    assert published(node) == []


@pytest.mark.parametrize("late_news", [False, True])
@pytest.mark.parametrize(("delay", "count"), [(0, 1), (30, 0)])
def test_another_run_finds_the_former_broken_off(delay: int, count: int, late_news: bool) -> None:
    node, link = with_will(delay_s=delay)
    if late_news:
        node.link_up(S, ELSEWHERE)
        node.link_down(link, S, "taken_over")
    else:
        node.link_down(link, S, "taken_over")
        node.link_up(S, ELSEWHERE)
    node.pass_time(1_000)
    assert len(published(node)) == count


def test_a_later_will_replaces_it_and_an_empty_one_withdraws_it() -> None:
    node, link = with_will()
    assert node.will(link, "home/later", sequence=2).reason == Reason.REASON_SUCCESS
    node.link_down(link, S)
    assert published(node) == [("home/later", 7, 2)]
    node, link = with_will()
    answer = node.tell(link, pb.Will(request=4))
    assert isinstance(answer, pb.WillAck)
    node.link_down(link, S)
    assert published(node) == []


@pytest.mark.parametrize(
    ("will", "reason"),
    [
        ({"topic": "home/+"}, Reason.REASON_TOPIC_NAME_INVALID),
        ({"topic": "$SYS/nodes/root/x"}, Reason.REASON_NOT_AUTHORIZED),
        ({"topic": "a", "publisher": 0}, Reason.REASON_PROTOCOL_ERROR),
        ({"topic": "a", "publisher": 8}, Reason.REASON_NOT_AUTHORIZED),
        ({"topic": "a", "sequence": 0}, Reason.REASON_PROTOCOL_ERROR),
        ({"topic": "a", "fragment": pb.Fragment(count=2)}, Reason.REASON_PROTOCOL_ERROR),
    ],
)
def test_what_is_no_will_is_refused(will: dict[str, object], reason: int) -> None:
    node = SoleNode()
    link = node.link_up(S)
    message = pb.Publish(**{"publisher": 7, "sequence": 1, **will})  # type: ignore[arg-type]
    answer = node.tell(link, pb.Will(request=1, publish=message.SerializeToString()))
    assert isinstance(answer, pb.WillAck)
    assert answer.reason == reason
    garbage = node.tell(link, pb.Will(request=1, publish=b"\xff\xff"))
    assert isinstance(garbage, pb.WillAck)
    assert garbage.reason == Reason.REASON_PROTOCOL_ERROR
    assert len(node.node.wills) == 0


def test_there_is_an_end_to_how_many_are_kept() -> None:
    node, _ = with_will(limits=Limits(sessions=1))
    assert node.will(node.link_up(2), "b").reason == Reason.REASON_QUOTA_EXCEEDED


# Owners that change


def cut_out(node: SoleNode) -> None:
    node.node.jurisdiction.delegate(
        Delegation("home", "kitchen", ("10.3.3.3", 7700), 5, 9, LeasePolicy.FENCE, None, 0)
    )


def test_it_is_refused_where_its_topic_is_not_owned() -> None:
    node = SoleNode()
    cut_out(node)
    ack = node.will(node.link_up(S), "home/gone")
    assert ack.reason == Reason.REASON_NOT_RESPONSIBLE
    assert ack.referral.node == "kitchen"


def bequest(*wills: pb.WillRecord) -> ReceivedState:
    """What another node hands over."""
    received = ReceivedState()
    received.take(pb.Transfer(wills=wills))
    return received


def test_it_moves_with_its_subtree_and_its_client_is_told() -> None:
    giver, link = with_will(delay_s=30)
    (record,) = giver.node.wills.records("home")
    assert not record.HasField("due_us")
    assert giver.node.wills.records("garden") == []
    cut_out(giver)
    giver.node.wills.moved("home")
    assert len(giver.node.wills) == 0
    told = giver.core.sent[-1]
    assert told[0] == link
    assert isinstance(told[1], pb.WillAck)
    assert (told[1].request, told[1].reason) == (0, Reason.REASON_HANDOVER)
    assert told[1].referral.node == "kitchen"
    giver.link_down(link, S)
    giver.pass_time(1_000)
    assert published(giver) == []


def test_it_stays_where_its_node_has_its_topic_from_another() -> None:
    """What is around goes, and what lies between is another's."""
    giver, _ = with_will()
    giver.node.jurisdiction.hold(Grant("home/gone", 7, 5, serving=True, until=None))
    assert giver.node.wills.records("home") == []
    assert len(giver.node.wills.records("home/gone")) == 1
    cut_out(giver)
    giver.node.wills.moved("home")
    assert len(giver.node.wills) == 1


def test_the_new_owner_waits_for_the_client_as_long_as_it_would_take_to_miss_it() -> None:
    giver, _ = with_will(delay_s=30)
    (record,) = giver.node.wills.records("home")
    taker = SoleNode()
    taker.node.wills.take_over(taker.now, bequest(record))
    taker.pass_time(30 + IDLE_TIMEOUT / SECOND - 1)
    assert published(taker) == []
    taker.pass_time(2)
    assert published(taker) == [("home/gone", 7, 1)], "under the message id that the client gave it"
    comes = SoleNode()
    comes.node.wills.take_over(comes.now, bequest(record))
    comes.link_up(S, HERE)
    comes.pass_time(1_000)
    assert published(comes) == []


def test_what_is_due_stays_due_in_the_same_moment() -> None:
    giver, link = with_will(delay_s=30)
    giver.link_down(link, S)
    giver.pass_time(10)
    (record,) = giver.node.wills.records("home")
    assert record.due_us == 20 * SECOND
    taker = SoleNode()
    taker.node.wills.take_over(taker.now, bequest(record))
    taker.pass_time(19)
    assert published(taker) == []
    taker.pass_time(2)
    assert len(published(taker)) == 1


def test_what_the_client_registered_anew_is_not_replaced_by_what_comes_behind() -> None:
    taker, link = with_will()
    older = pb.Publish(topic="home/gone", publisher=7, sequence=0x99).SerializeToString()
    taker.node.wills.take_over(taker.now, bequest(pb.WillRecord(session=S, publish=older)))
    taker.link_down(link, S)
    assert published(taker) == [("home/gone", 7, 1)]


def test_without_a_handover_its_client_is_told_to_look_for_the_owner() -> None:
    node, link = with_will()
    node.node.jurisdiction.drop("")
    node.node.wills.sweep()
    told = node.core.sent[-1][1]
    assert isinstance(told, pb.WillAck)
    assert told.reason == Reason.REASON_NOT_RESPONSIBLE
    node.link_down(link, S)
    assert published(node) == []


def test_one_that_there_is_no_room_for_waits_until_there_is() -> None:
    node, link = with_will()
    node.core.is_full = True
    node.link_down(link, S)
    node.pass_time(5)
    assert published(node) == []
    node.core.is_full = False
    node.pass_time(1)
    assert len(published(node)) == 1
    node.pass_time(5)
    assert len(published(node)) == 1
    assert len(node.node.wills) == 0


def test_one_that_cannot_be_published_is_counted() -> None:
    node, link = with_will()
    node.core.owns_topics = False
    node.link_down(link, S)
    drops = node.node.status(node.now)["drops"]
    assert isinstance(drops, dict)
    assert drops["will_unpublished"] == 1
