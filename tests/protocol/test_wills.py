"""Wills at their owner (docs/protocol.md §6.6): stored, published once, withdrawn, handed over."""

from __future__ import annotations

import pytest

from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, Limits
from hbroker.protocol.handover.subtree_state import ReceivedState
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


def test_a_will_is_published_once_when_the_link_breaks() -> None:
    node, link = with_will()
    assert published(node) == []
    node.link_down(link, S)
    assert published(node) == [("home/gone", 7, 1)]
    assert node.core.published[0].published_at_us == node.now + OFFSET_US
    node.link_up(S)
    node.pass_time(1_000)
    assert len(node.core.published) == 1


def test_a_will_with_a_delay_is_not_published_if_the_client_is_back_in_time() -> None:
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
def test_the_will_delay_is_no_longer_than_the_session_expiry(expiry: int, due: int) -> None:
    node, link = with_will(delay_s=60, session_expiry_s=expiry)
    node.link_down(link, S)
    if due:
        node.pass_time(due - 0.1)
        assert published(node) == []
        node.pass_time(0.2)
    assert len(published(node)) == 1


@pytest.mark.parametrize("keep", [True, False])
def test_a_normal_disconnection_withdraws_the_will(keep: bool) -> None:
    node, link = with_will()
    node.tell(link, pb.Leave(reason=pb.REASON_NORMAL_DISCONNECTION, keep_session=keep))
    node.link_down(link, S, "closed")
    node.pass_time(1_000)
    assert published(node) == []
    assert len(node.node.wills) == 0


def test_a_disconnection_with_will_publishes_it_at_once() -> None:
    node, link = with_will(delay_s=60)
    node.tell(link, pb.Leave(reason=pb.REASON_DISCONNECT_WITH_WILL, keep_session=True))
    assert len(published(node)) == 1
    node.link_down(link, S, "closed")
    node.pass_time(1_000)
    assert len(published(node)) == 1


def test_a_new_link_of_the_same_run_does_not_publish_the_will() -> None:
    node, link = with_will()
    node.link_down(link, S, "restarted")
    node.link_up(S)
    node.pass_time(1_000)
    assert published(node) == []


@pytest.mark.parametrize("late_news", [False, True])
@pytest.mark.parametrize(("delay", "count"), [(0, 1), (30, 0)])
def test_a_takeover_by_another_run_publishes_the_will_unless_it_has_a_delay(
    delay: int, count: int, late_news: bool
) -> None:
    node, link = with_will(delay_s=delay)
    if late_news:
        node.link_up(S, ELSEWHERE)
        node.link_down(link, S, "taken_over")
    else:
        node.link_down(link, S, "taken_over")
        node.link_up(S, ELSEWHERE)
    node.pass_time(1_000)
    assert len(published(node)) == count


def test_a_later_will_replaces_the_former_and_an_empty_one_withdraws_it() -> None:
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
def test_an_invalid_will_is_refused(will: dict[str, object], reason: int) -> None:
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


def test_the_number_of_wills_is_bounded() -> None:
    node, _ = with_will(limits=Limits(sessions=1))
    assert node.will(node.link_up(2), "b").reason == Reason.REASON_QUOTA_EXCEEDED


# Changes of the owner


def cut_out(node: SoleNode) -> None:
    node.node.jurisdiction.delegate(
        Delegation("home", "kitchen", ("10.3.3.3", 7700), 5, 9, LeasePolicy.FENCE, None, 0)
    )


def test_a_will_for_a_topic_that_the_node_does_not_own_is_refused() -> None:
    node = SoleNode()
    cut_out(node)
    ack = node.will(node.link_up(S), "home/gone")
    assert ack.reason == Reason.REASON_NOT_RESPONSIBLE
    assert ack.referral.node == "kitchen"


def received_wills(*wills: pb.WillRecord, subtree: str = "") -> ReceivedState:
    """The state received in a handover from another node, with these wills."""
    received = ReceivedState(subtree)
    received.add(pb.Transfer(wills=wills))
    return received


def test_a_will_moves_with_its_subtree_and_its_client_is_told() -> None:
    source, link = with_will(delay_s=30)
    (record,) = source.node.wills.records("home")
    assert not record.HasField("due_us")
    assert source.node.wills.records("garden") == []
    cut_out(source)
    source.node.wills.subtree_moved("home")
    assert len(source.node.wills) == 0
    told = source.core.sent[-1]
    assert told[0] == link
    assert isinstance(told[1], pb.WillAck)
    assert (told[1].request, told[1].reason) == (0, Reason.REASON_HANDOVER)
    assert told[1].referral.node == "kitchen"
    source.link_down(link, S)
    source.pass_time(1_000)
    assert published(source) == []


def test_a_will_stays_if_another_parent_granted_its_topic() -> None:
    """The subtree around it moves, and the subtree in between belongs to another node."""
    source, _ = with_will()
    source.node.jurisdiction.set_grant(Grant("home/gone", 7, 5, serving=True, until=None))
    assert source.node.wills.records("home") == []
    assert len(source.node.wills.records("home/gone")) == 1
    cut_out(source)
    source.node.wills.subtree_moved("home")
    assert len(source.node.wills) == 1


def test_the_new_owner_publishes_the_will_if_the_client_does_not_come_within_idle_timeout_and_delay() -> None:
    source, _ = with_will(delay_s=30)
    (record,) = source.node.wills.records("home")
    target = SoleNode()
    target.node.wills.install_state(target.now, received_wills(record))
    target.pass_time(30 + IDLE_TIMEOUT / SECOND - 1)
    assert published(target) == []
    target.pass_time(2)
    assert published(target) == [("home/gone", 7, 1)], "under the message id that the client gave it"
    returning = SoleNode()
    returning.node.wills.install_state(returning.now, received_wills(record))
    returning.link_up(S, HERE)
    returning.pass_time(1_000)
    assert published(returning) == []


def test_a_will_that_is_due_keeps_its_deadline_over_a_handover() -> None:
    source, link = with_will(delay_s=30)
    source.link_down(link, S)
    source.pass_time(10)
    (record,) = source.node.wills.records("home")
    assert record.due_us == 20 * SECOND
    target = SoleNode()
    target.node.wills.install_state(target.now, received_wills(record))
    target.pass_time(19)
    assert published(target) == []
    target.pass_time(2)
    assert len(published(target)) == 1


def test_a_handed_over_will_does_not_replace_one_that_the_client_registered_at_the_new_owner() -> None:
    target, link = with_will()
    older = pb.Publish(topic="home/gone", publisher=7, sequence=0x99).SerializeToString()
    target.node.wills.install_state(target.now, received_wills(pb.WillRecord(session=S, publish=older)))
    target.link_down(link, S)
    assert published(target) == [("home/gone", 7, 1)]


def test_a_will_that_the_child_hands_back_replaces_the_one_that_the_parent_kept_until_done() -> None:
    """The client has registered another will at the child since, or withdrawn it."""
    newer = pb.Publish(topic="home/gone", publisher=7, sequence=0x99).SerializeToString()
    for wills in ([pb.WillRecord(session=S, publish=newer)], []):
        parent, _ = with_will()
        cut_out(parent)
        parent.node.wills.install_state(parent.now, received_wills(*wills, subtree="home"))
        assert [record.publish for record in parent.node.wills.records("home")] == [w.publish for w in wills]


def test_the_client_of_a_will_is_told_when_the_node_loses_the_topic_without_a_handover() -> None:
    node, link = with_will()
    node.node.jurisdiction.remove_grant("")
    node.node.wills.sweep()
    told = node.core.sent[-1][1]
    assert isinstance(told, pb.WillAck)
    assert told.reason == Reason.REASON_NOT_RESPONSIBLE
    node.link_down(link, S)
    assert published(node) == []


def test_a_will_for_which_the_core_has_no_room_is_published_later() -> None:
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


def test_a_will_that_cannot_be_published_is_counted() -> None:
    node, link = with_will()
    node.core.owns_topics = False
    node.link_down(link, S)
    drops = node.node.status(node.now)["drops"]
    assert isinstance(drops, dict)
    assert drops["will_unpublished"] == 1
