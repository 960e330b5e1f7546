"""A stranger's request costs a node with a thousand children no more than a node with few (§3.3, §4.3).

Costs are counted in packets and in calls of the native core, not in time.
"""

from __future__ import annotations

from itertools import cycle, islice, product
from random import Random
from typing import Any

import pytest

from hbroker._native import ControlEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import LeasePolicy, NodeSettings
from hbroker.protocol import requester
from hbroker.protocol.node import Node
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.packets import Address, pack
from hbroker.protocol.requester import ForwardingLimits
from hbroker.protocol.subscriptions.owner.suback_packets import SubAcks
from hbroker.protocol.timers import SECOND
from tests.protocol.sole_node import HERE, HOME, OFFSET_US, ScriptedCore, SoleNode

CHILDREN = 1_000


def parent_of_many(above: str = "farm", children: int = CHILDREN) -> tuple[ScriptedCore, Node]:
    """A root with this many children, each with a link of its own."""
    core = ScriptedCore()
    node = Node(NodeSettings("root", "", HOME), core, Random(1), incarnation=1, unix_offset_us=OFFSET_US)
    node.start(0)
    for number in range(children):
        delegation = Delegation(
            f"{above}/{number}", f"n{number}", HERE, 1, 8, LeasePolicy.FENCE, 10_000 + number, SECOND
        )
        node.jurisdiction.delegate(delegation)
    return core, node


def ask(node: Node, now: int, filter: str, source: Address) -> None:
    request = pb.Subscribe(request=1, filter=filter)
    node.handle_event(now, ControlEvent(None, source, pack(request), True))


def test_a_subscribe_to_many_children_is_serialised_once() -> None:
    _, node = parent_of_many()
    first, second = node.jurisdiction.touched_cuts("#"), node.jurisdiction.touched_cuts("farm/+/x")
    subacks = SubAcks()
    answers = [
        list(subacks.of_children(pb.SubAck(request=n), first if n % 2 else second, [""])) for n in range(1, 9)
    ]
    assert len(subacks._cached) == 1
    assert {len(answer) for answer in answers} == {len(answers[0])}
    assert all(
        unpacked.request == n
        for n, answer in enumerate(answers, 1)
        for unpacked in (pb.Packet.FromString(packet).suback for packet in answer)
    )


def test_subscribes_in_a_deep_tree_are_answered_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger sends 48 filters in turn, each of which touches all of 10,000 cuts below four levels."""
    above = ("site", "block", "floor", "room")
    _, node = parent_of_many("/".join(above), 10_000)
    heads = ["/".join(levels) for levels in product(*((level, "+") for level in above))]
    filters = [f"{head}/{tail}" for head in heads for tail in ("+", "#", "+/#")]
    cuts, walked = node.jurisdiction._cuts, list[int]()
    touched = cuts.touched

    def counted(filter: str) -> list[Delegation]:
        found = touched(filter)
        walked.append(len(found))
        return found

    monkeypatch.setattr(cuts, "touched", counted)
    for number, filter in enumerate(islice(cycle(filters), 4 * len(filters))):
        ask(node, number, filter, ("10.9.9.9", 5_000))
    assert walked == [10_000] * len(filters), "each is worked out once"


def test_the_subscribes_that_are_forwarded_for_one_host_are_bounded() -> None:
    core, node = parent_of_many()
    for _ in range(100):
        ask(node, 0, "#", ("10.9.9.9", 5_000))
    passed = [link for link, _ in core.sent if link >= 10_000]
    assert len(passed) == requester.MOST_FORWARDED
    counters: Any = node.status(0)["counters"]
    assert counters["subscribes_not_passed_down"] == 100 - requester.MOST_FORWARDED // CHILDREN
    answered = [body for _, body in core.sent_outside if isinstance(body, pb.SubAck)]
    assert sum(body.part == 0 for body in answered) == 100, "all were told where to ask"


def test_another_host_has_its_own_allowance_which_refills_with_time() -> None:
    core, node = parent_of_many()
    for _ in range(requester.MOST_FORWARDED // CHILDREN + 1):
        ask(node, 0, "#", ("10.9.9.9", 5_000))
    before = len(core.sent)
    ask(node, 0, "#", ("10.9.9.10", 5_000))
    assert len(core.sent) - before == CHILDREN
    ask(node, CHILDREN * SECOND // requester.FORWARDED_A_SECOND, "#", ("10.9.9.9", 6_000))
    assert len(core.sent) - before == 2 * CHILDREN


def test_hosts_of_one_ipv6_network_share_an_allowance_and_the_table_of_hosts_is_bounded() -> None:
    limits = ForwardingLimits()
    assert limits.try_consume(0, ("2001:db8::1", 1), requester.MOST_FORWARDED)
    assert not limits.try_consume(0, ("2001:db8::ffff:1", 1), 1)
    assert limits.try_consume(0, ("2001:db8:0:1::1", 1), 1)
    for number in range(requester.MOST_HOSTS + 100):
        limits.try_consume(0, (f"10.1.{number // 250}.{number % 250}", 1), 1)
    assert len(limits._allowances) == requester.MOST_HOSTS


def test_a_full_allowance_covers_a_node_with_more_children_than_the_limit() -> None:
    limits = ForwardingLimits()
    assert limits.try_consume(0, HERE, 5 * requester.MOST_FORWARDED)
    assert not limits.try_consume(0, HERE, 5 * requester.MOST_FORWARDED)


def test_a_flood_of_subscribers_does_not_make_the_node_publish_its_status_more_often() -> None:
    sole = SoleNode()
    links = [sole.link_up(session) for session in range(1, 101)]
    for link in links:
        assert sole.subscribe(link, "$SYS/#").active
    assert [topic for topic, *_ in sole.core.own].count("$SYS/nodes/root/status") == 1
    sole.pass_time(0.1)
    sole.subscribe(links[0], "$SYS/nodes/+/status")
    assert [topic for topic, *_ in sole.core.own].count("$SYS/nodes/root/status") == 2


def test_packets_of_a_child_are_prioritised_over_those_of_clients() -> None:
    sole = SoleNode()
    client, child = sole.link_up(1), sole.link_up(2)
    join = pb.Join(request=1, node="kitchen", subtree="home/kitchen", incarnation=1)
    join.address.ip, join.address.port = bytes([10, 0, 0, 2]), 7_701
    assert isinstance(sole.tell(child, join), pb.JoinAck)
    sole.subscribe(client, "home/#")
    assert sole.core.prioritised == [child]
