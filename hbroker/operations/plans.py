"""Carries out a plan: moves subtrees until a running network is as a topology file says.

For `hbroker apply` and the HTTP API. A file may have a section `plan`, which says what load each node is
expected to carry (docs/analysis.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from hbroker.errors import HBrokerError, LocalError
from hbroker.operations.orders import Orders

if TYPE_CHECKING:
    from hbroker.operations.node_statuses import Status
    from hbroker.topology import Plan, Topology
    from hbroker.topology.moves import Move

__all__ = ["MoveResult", "NodeLoad", "carry_out", "described", "load_of", "max_mean", "planned_moves"]


@dataclass(frozen=True, slots=True)
class MoveResult:
    """A move and its result. `done`: None: it was not tried."""

    subtree: str
    source: str | None
    target: str | None
    done: bool | None = None
    seconds: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The load of one node, per second. `predicted`: None: the plan has no prediction. `load`: by the plan's
    costs of messages. `cpu`: of its process."""

    name: str
    predicted: float | None
    load: float
    cpu: float
    messages_in: float
    messages_out: float


def planned_moves(wanted: Topology, statuses: Sequence[Status], silent: Sequence[str] = ()) -> list[Move]:
    """The moves after which nodes own what `wanted` gives them, in order. `silent`: the nodes that do not
    tell their status. Raises LocalError if a node of `wanted` does not run."""
    from hbroker.topology.moves import moves

    there = {status["name"] for status in statuses}
    missing = [node.name for node in wanted.nodes if node.name not in there]
    if missing:
        why = "does not tell its status" if missing[0] in silent else "does not run"
        raise LocalError(f"node {missing[0]!r} {why}: start it, or leave it out of the file")
    return moves(wanted, {str(status["name"]): _claims(status) for status in statuses})


def carry_out(
    orders: Orders,
    steps: Sequence[Move],
    on_begin: Callable[[int, Move], None],
    on_end: Callable[[int, MoveResult], None],
) -> list[MoveResult]:
    """Makes the moves one after the other, up to the first that fails. Returns the result of each.

    `on_begin`, `on_end`: called with the number of a move, from 0, when it begins and when it has ended.
    """
    done: list[MoveResult] = []
    for number, step in enumerate(steps):
        on_begin(number, step)
        began = time.monotonic()
        error = _carry_out_one(orders, step)
        seconds = round(time.monotonic() - began, 3)
        why = None if error is None else str(error)
        done.append(MoveResult(**asdict(step), done=error is None, seconds=seconds, error=why))
        on_end(number, done[-1])
        if error is not None:
            break
    return done + [MoveResult(**asdict(step)) for step in steps[len(done) :]]


def load_of(name: str, rates: Mapping[str, float], plan: Plan) -> NodeLoad:
    """What a node carries, beside what the plan expects. `rates`: the growth of its counters in a second."""
    messages_in, messages_out = rates.get("messages_in", 0.0), rates.get("messages_out", 0.0)
    return NodeLoad(
        name,
        dict(plan.predicted).get(name),
        plan.load(messages_in, messages_out),
        rates.get("cpu_s", 0.0),
        messages_in,
        messages_out,
    )


def max_mean(loads: Sequence[float]) -> float | None:
    """The largest load over the mean: 1 is an even distribution. None: there is no load."""
    return max(loads) * len(loads) / sum(loads) if sum(loads) else None


def described(step: Move) -> str:
    """A move in words."""
    to = "back to the node around it" if step.target is None else f"to {step.target}"
    return f"{step.subtree}: {'' if step.source is None else f'from {step.source} '}{to}"


def _claims(status: Status) -> list[str]:
    subtrees = status.get("subtrees")
    return [str(subtree) for subtree in subtrees] if isinstance(subtrees, list) else []


def _carry_out_one(orders: Orders, step: Move) -> HBrokerError | None:
    try:
        if step.target is None:
            assert step.source is not None, "what nobody holds is not handed back"
            orders.take_subtree(step.subtree, step.source)
            return None
        return orders.give_subtree(step.subtree, step.target)[1]
    except HBrokerError as error:
        return error
