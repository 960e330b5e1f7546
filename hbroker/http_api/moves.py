"""Moves of subtrees that were begun here, and how far they are.

A move is an order to one node, and then to another (`hbroker.operations.orders`). It takes seconds, so a
request begins it, and others ask for its progress. The last `MOST_MOVES` are kept.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal

from hbroker import sync
from hbroker.errors import HBrokerError
from hbroker.http_api.problems import Refusal
from hbroker.operations.orders import Orders

__all__ = ["MOST_MOVES", "MoveProgress", "Moves"]

MOST_MOVES: Final = 1_000
MOST_RUNNING: Final = 8

MoveState = Literal["running", "done", "failed"]


@dataclass(slots=True, eq=False)
class MoveProgress:
    """One move. `began`, `ended`: by a monotonic clock, in seconds."""

    id: str
    subtree: str
    node: str
    began: float
    state: MoveState = "running"
    steps: list[str] = field(default_factory=list)
    source: str | None = None
    ended: float | None = None
    error: str | None = None

    @property
    def seconds(self) -> float:
        """For how long it has run."""
        return (self.ended or time.monotonic()) - self.began


class Moves:
    """All moves. `run(work)`: calls it with a client of the network, in a thread. `orders(client, say)`:
    gives orders. `on_change`: is called, in the event loop, when a move has gone on."""

    def __init__(
        self,
        run: Callable[[Callable[[sync.Client], None]], Awaitable[None]],
        orders: Callable[[sync.Client, Callable[[str], None]], Orders],
        on_change: Callable[[MoveProgress], None],
    ) -> None:
        self._run = run
        self._orders = orders
        self._on_change = on_change
        self._moves: dict[str, MoveProgress] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, subtree: str, node: str) -> MoveProgress:
        """Begins a move. Raises Refusal if the subtree is being moved already, or if too many moves run."""
        running = [each for each in self._moves.values() if each.state == "running"]
        if any(each.subtree == subtree for each in running):
            raise Refusal(HTTPStatus.CONFLICT, f"{subtree} is being moved already: GET /v1/moves shows it")
        if len(running) >= MOST_RUNNING:
            text = f"{MOST_RUNNING} moves run: try again when one has ended"
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, text, {"Retry-After": "1"})
        for id in [id for id, each in self._moves.items() if each.state != "running"][: -MOST_MOVES + 1]:
            del self._moves[id]
        move = MoveProgress(secrets.token_hex(8), subtree, node, time.monotonic())
        self._moves[move.id] = move
        task = asyncio.get_running_loop().create_task(self._carry_out(move))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._on_change(move)
        return move

    def __iter__(self) -> Iterator[MoveProgress]:
        return iter(self._moves.values())

    def get(self, id: str) -> MoveProgress | None:
        """The move with this id."""
        return self._moves.get(id)

    async def _carry_out(self, move: MoveProgress) -> None:
        loop = asyncio.get_running_loop()

        def say(step: str) -> None:
            loop.call_soon_threadsafe(self._note, move, step)

        def work(client: sync.Client) -> None:
            before, error = self._orders(client, say).give_subtree(move.subtree, move.node)
            move.source = before.owner
            if error is not None:
                raise error

        try:
            await self._run(work)
            move.state = "done"
        except (HBrokerError, OSError) as error:
            move.state, move.error = "failed", str(error)
        finally:
            if move.state == "running":
                move.state, move.error = "failed", "the API ended"
            move.ended = time.monotonic()
            self._on_change(move)

    def _note(self, move: MoveProgress, step: str) -> None:
        move.steps.append(step)
        self._on_change(move)
