"""Plans: what `hbroker apply` does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from http import HTTPStatus
from typing import Final, Literal

from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker.errors import ConfigErrors
from hbroker.http_api.context import ApiContext, context_of
from hbroker.http_api.middleware.authentication import may_change, may_read
from hbroker.http_api.models.plans import NewPlan, Plan, PlannedLoad, PlannedMove
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.plans import PlanProgress
from hbroker.http_api.problems import NOT_FOUND, REFUSED, UNREACHABLE, Refusal
from hbroker.operations.node_statuses import ask_statuses
from hbroker.operations.plans import MoveResult, NodeLoad, load_of, max_mean, planned_moves
from hbroker.topology import Plan as ExpectedLoads
from hbroker.topology import Topology
from hbroker.topology.parse import parse

__all__ = ["PlanRoutes"]

_READ: Final = ("nodes", "plan")


class PlanRoutes(Controller):
    """`/plans`."""

    path = "/plans"
    tags = ("orders",)

    @post("/", guards=[may_change], status_code=HTTPStatus.ACCEPTED, responses=REFUSED | UNREACHABLE)
    async def begin_plan(self, state: State, data: NewPlan) -> Plan:
        """Begins to move subtrees, one after the other, until nodes own what the topology gives them. Nothing
        is lost, and publishers of a subtree wait for less than a second. The answer comes at once: ask for
        the plan by its id until it is `done` or `failed`. A dry run tells what would move, and moves
        nothing."""
        context = context_of(state)
        wanted = await asyncio.get_running_loop().run_in_executor(None, _parsed, data.topology)
        timeout = context.access.timeout
        statuses, silent = await context.ask(lambda client: ask_statuses(client, timeout))
        moves = planned_moves(wanted, statuses, silent)
        if not data.dry_run:
            return _running(context, context.plans.begin(moves, wanted.plan))
        results = [MoveResult(**asdict(move)) for move in moves]
        loads = _loads(context, wanted.plan)
        return _plan(None, "dry_run", results, loads)

    @get("/", guards=[may_read], responses=REFUSED)
    async def list_plans(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Plan]:
        """The last 100 plans that were begun here, by id."""
        context = context_of(state)
        page = page_of(context.plans, lambda each: each.id, limit, cursor)
        return Page(items=[_running(context, each) for each in page.items], next=page.next)

    @get("/{id:str}", guards=[may_read], responses=REFUSED | NOT_FOUND)
    async def read_plan(self, state: State, id: str) -> Plan:
        """One plan: how far it is, and the load that it predicts beside that of now."""
        context = context_of(state)
        plan = context.plans.get(id)
        if plan is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"no plan has the id {id!r}: GET /v1/plans lists them")
        return _running(context, plan)


def _parsed(text: str) -> Topology:
    """The nodes and the plan of a topology file. Raises Refusal with all its errors."""
    try:
        return parse(text, file="topology", only=_READ)
    except ConfigErrors as wrong:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "\n".join(map(str, wrong.errors))) from None


def _running(context: ApiContext, plan: PlanProgress) -> Plan:
    answer = _plan(plan.id, plan.state, plan.moves, _loads(context, plan.expected), plan.current)
    return answer.model_copy(
        update={"step": plan.step, "seconds": round(plan.seconds, 3), "error": plan.error}
    )


def _loads(context: ApiContext, expected: ExpectedLoads | None) -> list[NodeLoad]:
    if expected is None:
        return []
    nodes = context.live.nodes()
    return [load_of(name, known.rates, expected) for name, known in sorted(nodes.items())]


def _plan(
    id: str | None,
    state: Literal["dry_run", "running", "done", "failed"],
    moves: Sequence[MoveResult],
    loads: Sequence[NodeLoad],
    current: int | None = None,
) -> Plan:
    return Plan(
        id=id,
        state=state,
        step="",
        moves=[_move(move, is_current=number == current) for number, move in enumerate(moves)],
        seconds=0.0,
        error=None,
        loads=[_load(each) for each in loads],
        predicted_max_mean=max_mean([each.predicted or 0.0 for each in loads]),
        max_mean=max_mean([each.load for each in loads]),
    )


def _move(result: MoveResult, *, is_current: bool) -> PlannedMove:
    state: Literal["waiting", "running", "done", "failed"] = "running" if is_current else "waiting"
    if result.done is not None:
        state = "done" if result.done else "failed"
    return PlannedMove(
        subtree=result.subtree,
        source=result.source,
        target=result.target,
        state=state,
        seconds=result.seconds,
        error=result.error,
    )


def _load(load: NodeLoad) -> PlannedLoad:
    return PlannedLoad(
        node=load.name,
        predicted=load.predicted,
        load=load.load,
        cpu_seconds=load.cpu,
        messages_received=load.messages_in,
        messages_sent=load.messages_out,
    )
