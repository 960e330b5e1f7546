"""What a claim holds, as its node's jurisdiction knows it (§5.1, §5.6), and what it asks for."""

from __future__ import annotations

from random import Random

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.hierarchy.child.join_requests import MOST_WAITING, JoinRequests, PendingJoin
from hbroker.protocol.hierarchy.child.lease_holder import LeaseHolder, Renewal
from hbroker.protocol.ownership.jurisdiction import Jurisdiction
from hbroker.protocol.packets import Address, body_of
from tests.protocol.fake_network import Network

ADDRESS: Address = ("10.0.0.3", 7700)


def lease_holder() -> tuple[LeaseHolder, Jurisdiction]:
    jurisdiction = Jurisdiction(Network().attach(ADDRESS))
    return LeaseHolder("a", jurisdiction), jurisdiction


def granted(*, serve: bool) -> pb.JoinAck:
    return pb.JoinAck(
        epoch=3, lease_ms=10_000, policy=pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE
    )


def test_the_jurisdiction_hears_what_is_held_and_that_it_is_no_longer() -> None:
    held, jurisdiction = lease_holder()
    held.epoch = 3
    held.renew(timers.SECOND, granted(serve=False))
    held.hold(7, serving=True)
    grant = jurisdiction.grant_of("a")
    assert grant is not None
    assert (grant.epoch, grant.link, grant.serving) == (3, 7, True)
    assert held.until == 11 * timers.SECOND - timers.LEASE_DRIFT
    assert not held.is_over(held.until - 1)
    assert held.is_over(held.until)
    assert held.end()
    assert jurisdiction.grant_of("a") is None
    assert (held.epoch, held.fenced, held.is_over(10**12)) == (0, True, False)
    assert not held.end()


def test_a_policy_is_reported_where_it_changes() -> None:
    held, _ = lease_holder()
    assert held.renew(0, granted(serve=True)) == Renewal(is_news=False, is_fenced_now=False)
    assert not held.is_over(10**12)
    assert held.renew(0, granted(serve=False)) == Renewal(is_news=True, is_fenced_now=True)
    assert held.renew(0, granted(serve=False)) == Renewal(is_news=False, is_fenced_now=False)
    assert lease_holder()[0].renew(0, granted(serve=False)) == Renewal(is_news=False, is_fenced_now=True)


def test_an_answer_is_known_once_and_while_few_newer_wait() -> None:
    join_requests = JoinRequests("a", NodeSettings("n", "a", ADDRESS), ADDRESS, 5, Random(1))
    requests = []
    for now in range(MOST_WAITING + 2):
        join = body_of(join_requests.make(now, 3, fenced=True))
        assert isinstance(join, pb.Join)
        assert (join.epoch, join.fenced, join.incarnation, join.subtree) == (3, True, 5, "a")
        requests.append(join.request)
    assert join_requests.answered(requests[0]) is None
    assert [join_requests.answered(requests[1]) for _ in range(2)] == [PendingJoin(1, 0), None]
    join_requests.forget()
    assert not join_requests.are_waiting
    assert join_requests.answered(requests[-1]) is None
