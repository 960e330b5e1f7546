"""Moves of subtrees, nodes that leave."""

from __future__ import annotations

import time
from http import HTTPStatus

from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker import sync
from hbroker.http_api.context import context_of
from hbroker.http_api.middleware.authentication import may_change, may_read
from hbroker.http_api.models.orders import Left, Move, NewMove
from hbroker.http_api.moves import MoveProgress
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.problems import NOT_FOUND, REFUSED, UNREACHABLE, Refusal
from hbroker.operations.orders import require_subtree

__all__ = ["OrderRoutes"]


class OrderRoutes(Controller):
    """`/moves`, `/nodes/{name}/leave`."""

    tags = ("orders",)

    @post("/moves", guards=[may_change], status_code=HTTPStatus.ACCEPTED, responses=REFUSED | UNREACHABLE)
    async def begin_move(self, state: State, data: NewMove) -> Move:
        """Begins to move a subtree to another node, with all its state, while it is in use. The answer comes
        at once: ask for the move by its id, or follow `/events`, until it is `done` or `failed`."""
        require_subtree(data.subtree)
        return _move(context_of(state).moves.begin(data.subtree, data.node))

    @get("/moves", guards=[may_read], responses=REFUSED)
    async def list_moves(self, state: State, limit: Limit = 100, cursor: Cursor = None) -> Page[Move]:
        """The last 1,000 moves that were begun here, by id."""
        return page_of(map(_move, context_of(state).moves), lambda each: each.id, limit, cursor)

    @get("/moves/{id:str}", guards=[may_read], responses=REFUSED | NOT_FOUND)
    async def read_move(self, state: State, id: str) -> Move:
        """One move, and how far it is."""
        move = context_of(state).moves.get(id)
        if move is None:
            raise Refusal(HTTPStatus.NOT_FOUND, f"no move has the id {id!r}: GET /v1/moves lists them")
        return _move(move)

    @post(
        "/nodes/{name:str}/leave",
        guards=[may_change],
        status_code=HTTPStatus.OK,
        responses=REFUSED | UNREACHABLE | NOT_FOUND,
    )
    async def leave(self, state: State, name: str) -> Left:
        """Makes a node hand back all that it owns, and end. Answers once it has."""
        context, began = context_of(state), time.monotonic()
        if name not in context.live.nodes():
            raise Refusal(HTTPStatus.NOT_FOUND, f"no node is called {name!r}: GET /v1/nodes lists them")

        def leave(client: sync.Client) -> None:
            context.orders(client, lambda step: None).leave(name)

        await context.ask(leave)
        return Left(node=name, seconds=time.monotonic() - began)


def _move(move: MoveProgress) -> Move:
    return Move(
        id=move.id,
        subtree=move.subtree,
        node=move.node,
        state=move.state,
        steps=list(move.steps),
        source=move.source,
        seconds=round(move.seconds, 3),
        error=move.error,
    )
