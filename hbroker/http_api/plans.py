"""Plans that were begun here, and how far they are.

A plan moves several subtrees, one after the other (`hbroker.operations.plans`). One plan runs at a time. The
last `MOST_PLANS` are kept.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Final, Literal

from hbroker import sync
from hbroker.errors import HBrokerError
from hbroker.http_api.problems import Refusal
from hbroker.operations.orders import Orders
from hbroker.operations.plans import MoveResult, carry_out
from hbroker.topology import Plan
from hbroker.topology.moves import Move

__all__ = ["MOST_PLANS", "PlanProgress", "Plans"]

MOST_PLANS: Final = 100

PlanState = Literal["running", "done", "failed"]


@dataclass(slots=True, eq=False)
class PlanProgress:
    """One plan. `moves`: of those that have begun `done` is set once they end. `current`: the number of the
    move that goes on; None: none does. `step`: what it does now. `began`, `ended`: by a monotonic clock, in
    seconds."""

    id: str
    moves: list[MoveResult]
    expected: Plan | None
    began: float
    state: PlanState = "running"
    current: int | None = None
    step: str = ""
    ended: float | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return (self.ended or time.monotonic()) - self.began


class Plans:
    """All plans. `run`, `orders`: as of `Moves`. `on_change`: is called, in the event loop, when a plan has
    gone on."""

    def __init__(
        self,
        run: Callable[[Callable[[sync.Client], None]], Awaitable[None]],
        orders: Callable[[sync.Client, Callable[[str], None]], Orders],
        on_change: Callable[[PlanProgress], None],
    ) -> None:
        self._run = run
        self._orders = orders
        self._on_change = on_change
        self._plans: dict[str, PlanProgress] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, moves: list[Move], expected: Plan | None) -> PlanProgress:
        """Begins to carry out moves. Raises Refusal if a plan runs."""
        if self._task is not None and not self._task.done():
            raise Refusal(HTTPStatus.CONFLICT, "another plan is being carried out: GET /v1/plans shows it")
        for id in list(self._plans)[: -MOST_PLANS + 1]:
            del self._plans[id]
        results = [MoveResult(**asdict(move)) for move in moves]
        plan = PlanProgress(secrets.token_hex(8), results, expected, time.monotonic())
        self._plans[plan.id] = plan
        self._task = asyncio.get_running_loop().create_task(self._carry_out(plan, moves))
        self._on_change(plan)
        return plan

    def __iter__(self) -> Iterator[PlanProgress]:
        return iter(self._plans.values())

    def get(self, id: str) -> PlanProgress | None:
        """The plan with this id."""
        return self._plans.get(id)

    async def _carry_out(self, plan: PlanProgress, moves: list[Move]) -> None:
        loop = asyncio.get_running_loop()

        def say(step: str) -> None:
            loop.call_soon_threadsafe(self._note_step, plan, step)

        def begins(number: int, _: Move) -> None:
            loop.call_soon_threadsafe(self._note_begin, plan, number)

        def ended(number: int, result: MoveResult) -> None:
            loop.call_soon_threadsafe(self._note_end, plan, number, result)

        def work(client: sync.Client) -> None:
            carry_out(self._orders(client, say), moves, begins, ended)

        try:
            await self._run(work)
        except (HBrokerError, OSError) as error:
            plan.error = str(error)
        finally:
            is_done = all(move.done for move in plan.moves)
            plan.state, plan.current = "done" if is_done and plan.error is None else "failed", None
            plan.ended = time.monotonic()
            self._on_change(plan)

    def _note_begin(self, plan: PlanProgress, number: int) -> None:
        plan.current = number
        self._on_change(plan)

    def _note_step(self, plan: PlanProgress, step: str) -> None:
        plan.step = step

    def _note_end(self, plan: PlanProgress, number: int, result: MoveResult) -> None:
        plan.moves[number] = result
        if result.error is not None:
            plan.error = result.error
        self._on_change(plan)
