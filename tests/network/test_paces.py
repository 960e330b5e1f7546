"""Who is waited for, and who loses something, as the simulator's watchers see it (§7.3, §7.8)."""

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
    paces.ask(SESSION, USUAL)
    paces.watch(SESSION)
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
    return [violation.invariant for now, one in told for violation in paces.look(node, one, now)]


def test_one_that_goes_on_loses_nothing(root: NodeHost, paces: Paces) -> None:
    assert broken(paces, root, (0, status(full=1)), (1, status(full=2))) == [Invariant.KEEPS]


@pytest.mark.parametrize("before", [status(stalled=True), status(connected=False)])
def test_one_that_is_not_waited_for_may(before: SessionStatus, root: NodeHost, paces: Paces) -> None:
    assert not broken(paces, root, (0, before), (1, status(full=2)))


@pytest.mark.parametrize("queue", [Queue(messages=9), Queue(overflow=Overflow.DROP_NEWEST)])
def test_one_that_chose_to_may(queue: Queue, root: NodeHost, paces: Paces) -> None:
    paces.ask(SESSION, queue)
    assert not broken(paces, root, (0, status()), (1, status(full=2)))


def test_who_answers_fewer_than_were_oldest_is_not_waited_for(root: NodeHost, paces: Paces) -> None:
    told = [(0, status(queued=40)), (LONGEST, status(delivered=15, queued=40))]
    assert not broken(paces, root, *told)
    assert broken(paces, root, (LATE, status(delivered=15, queued=40))) == [Invariant.PACED]


def test_who_answers_as_many_is(root: NodeHost, paces: Paces) -> None:
    told = [(0, status(queued=40)), (LONGEST, status(delivered=16, queued=40))]
    assert not broken(paces, root, *told, (LATE, status(delivered=16, queued=40)))
    few = [(2 * LATE, status(delivered=40, queued=2)), (3 * LATE, status(delivered=42, queued=1))]
    assert not broken(paces, root, *few)
    is_stalled = [(5 * LATE, status(delivered=42, queued=9, stalled=True))]
    assert not broken(paces, root, *is_stalled, (5 * LATE + 1, status(delivered=42, queued=9)))
