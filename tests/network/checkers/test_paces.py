"""The checker of slow subscribers: publishers wait for one that is not stalled, and it loses nothing
(§7.3, §7.8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from hbroker._native import SessionStatus
from hbroker.sim.network import NodeHost
from hbroker.sim.network.actions import USUAL, Overflow, Queue
from hbroker.sim.network.checks.paces import LONGEST, Paces
from hbroker.sim.network.invariants import Invariant
from tests.network.networks import Tree

SESSION = 7
LATE = LONGEST + 1


@pytest.fixture(scope="module")
def root() -> NodeHost:
    return Tree.grow(1).root


@pytest.fixture
def paces() -> Paces:
    paces = Paces()
    paces.subscribe(SESSION, USUAL)
    paces.mark_slow(SESSION)
    return paces


def status(
    *, full: int = 0, delivered: int = 0, queued: int = 0, stalled: bool = False, connected: bool = True
) -> SessionStatus:
    told = SimpleNamespace(
        session=SESSION,
        connected=connected,
        stalled=stalled,
        dropped={"queue_full": full},
        delivered=delivered,
        expired=0,
        queued=queued,
    )
    return cast("SessionStatus", told)


def broken(paces: Paces, node: NodeHost, *told: tuple[int, SessionStatus]) -> list[Invariant]:
    return [violation.invariant for now, one in told for violation in paces.check(node, one, now)]


def test_a_subscriber_that_is_not_stalled_loses_no_message(root: NodeHost, paces: Paces) -> None:
    assert broken(paces, root, (0, status(full=1)), (1, status(full=2))) == [Invariant.KEEPS]


@pytest.mark.parametrize("before", [status(stalled=True), status(connected=False)])
def test_a_stalled_or_offline_subscriber_may_lose_messages(
    before: SessionStatus, root: NodeHost, paces: Paces
) -> None:
    assert not broken(paces, root, (0, before), (1, status(full=2)))


@pytest.mark.parametrize("queue", [Queue(messages=9), Queue(overflow=Overflow.DROP_NEWEST)])
def test_a_subscriber_with_its_own_queue_policy_may_lose_messages(
    queue: Queue, root: NodeHost, paces: Paces
) -> None:
    paces.subscribe(SESSION, queue)
    assert not broken(paces, root, (0, status()), (1, status(full=2)))


def test_a_subscriber_that_acknowledges_too_few_of_its_oldest_messages_has_to_be_stalled(
    root: NodeHost, paces: Paces
) -> None:
    told = [(0, status(queued=40)), (LONGEST, status(delivered=15, queued=40))]
    assert not broken(paces, root, *told)
    assert broken(paces, root, (LATE, status(delivered=15, queued=40))) == [Invariant.PACED]


def test_a_subscriber_that_acknowledges_enough_of_its_oldest_messages_is_not_stalled(
    root: NodeHost, paces: Paces
) -> None:
    told = [(0, status(queued=40)), (LONGEST, status(delivered=16, queued=40))]
    assert not broken(paces, root, *told, (LATE, status(delivered=16, queued=40)))
    few = [(2 * LATE, status(delivered=40, queued=2)), (3 * LATE, status(delivered=42, queued=1))]
    assert not broken(paces, root, *few)
    is_stalled = [(5 * LATE, status(delivered=42, queued=9, stalled=True))]
    assert not broken(paces, root, *is_stalled, (5 * LATE + 1, status(delivered=42, queued=9)))
