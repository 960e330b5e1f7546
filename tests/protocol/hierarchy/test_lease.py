"""The lease of a claim, the grant in the node's jurisdiction (§5.1, §5.6), and the JOINs that ask for it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from hbroker._proto import packet_pb2 as pb
from hbroker.config import NodeSettings
from hbroker.protocol import timers
from hbroker.protocol.hierarchy.child.join_requests import MOST_WAITING, JoinRequests, PendingJoin
from hbroker.protocol.hierarchy.child.lease import Lease, Renewal
from hbroker.protocol.ownership.jurisdiction import Jurisdiction
from hbroker.protocol.packets import Address, body_of
from tests.protocol.fake_network import Network

ADDRESS: Address = ("10.0.0.3", 7700)


def a_lease() -> tuple[Lease, Jurisdiction]:
    jurisdiction = Jurisdiction(Network().attach(ADDRESS))
    return Lease("a", jurisdiction), jurisdiction


def granted(*, serve: bool) -> pb.JoinAck:
    return pb.JoinAck(
        epoch=3, lease_ms=10_000, policy=pb.LEASE_POLICY_SERVE if serve else pb.LEASE_POLICY_FENCE
    )


def test_the_jurisdiction_has_the_grant_until_the_lease_ends() -> None:
    lease, jurisdiction = a_lease()
    lease.epoch = 3
    lease.renew(timers.SECOND, granted(serve=False))
    lease.update_grant(7, serving=True)
    grant = jurisdiction.grant_of("a")
    assert grant is not None
    assert (grant.epoch, grant.link, grant.serving) == (3, 7, True)
    assert lease.until == 11 * timers.SECOND - timers.LEASE_DRIFT
    assert not lease.is_over(lease.until - 1)
    assert lease.is_over(lease.until)
    assert lease.end()
    assert jurisdiction.grant_of("a") is None
    assert (lease.epoch, lease.fenced, lease.is_over(10**12)) == (0, True, False)
    assert not lease.end()


def test_a_change_of_the_lease_policy_is_reported_once() -> None:
    lease, _ = a_lease()
    assert lease.renew(0, granted(serve=True)) == Renewal(must_tell_parent=False, is_fenced_now=False)
    assert not lease.is_over(10**12)
    assert lease.renew(0, granted(serve=False)) == Renewal(must_tell_parent=True, is_fenced_now=True)
    assert lease.renew(0, granted(serve=False)) == Renewal(must_tell_parent=False, is_fenced_now=False)
    assert a_lease()[0].renew(0, granted(serve=False)) == Renewal(must_tell_parent=False, is_fenced_now=True)


def test_an_answer_matches_its_join_once_and_only_one_of_the_newest_joins() -> None:
    settings = NodeSettings("n", "a", ADDRESS)
    context: Any = SimpleNamespace(
        settings=settings,
        incarnation=5,
        random=Random(1),
        has_restored_queues=True,
        revocations=SimpleNamespace(counts=list),
    )
    lease, _ = a_lease()
    lease.epoch = 3
    join_requests = JoinRequests("a", context, lease)
    requests = []
    for now in range(MOST_WAITING + 2):
        join = body_of(join_requests.make(now))
        assert isinstance(join, pb.Join)
        assert (join.epoch, join.fenced, join.incarnation, join.subtree) == (3, True, 5, "a")
        requests.append(join.request)
    assert join_requests.answered(requests[0]) is None
    assert [join_requests.answered(requests[1]) for _ in range(2)] == [PendingJoin(1, 0), None]
    join_requests.forget()
    assert not join_requests.is_open(requests[-1])
    assert join_requests.answered(requests[-1]) is None
