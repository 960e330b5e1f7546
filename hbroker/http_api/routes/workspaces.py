"""Workspaces."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final

from litestar import Controller, get, post
from litestar.datastructures import State

from hbroker.http_api.context import context_of
from hbroker.http_api.middleware.authentication import ApiRequest, may_change, may_read
from hbroker.http_api.models.workspaces import (
    NewWorkspace,
    NewWorkspaceToken,
    Workspace,
    WorkspaceAtNode,
)
from hbroker.http_api.paging import Cursor, Limit, Page, page_of
from hbroker.http_api.problems import Refusal, refusals
from hbroker.http_api.signing import sign_token
from hbroker.operations.live_network import KnownNode, LiveNetwork, number_of
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.workspace import name_is_valid, name_of

__all__ = ["WorkspaceRoutes"]

_REFUSALS: Final = refusals(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_OF_AUTHORITY: Final = _REFUSALS | refusals(
    HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
)


class WorkspaceRoutes(Controller):
    """`/workspaces`."""

    path = "/workspaces"
    tags = ("workspaces",)

    @get("/", guards=[may_read], responses=_REFUSALS)
    async def list_workspaces(
        self, state: State, limit: Limit = 100, cursor: Cursor = None
    ) -> Page[Workspace]:
        """The workspaces that nodes know, by name: those with quotas, with a subtree of their own, or with
        sessions. Of each node the 1,000 sessions with the most messages queued count."""
        return page_of(_workspaces(context_of(state).live), lambda each: each.name, limit, cursor)

    @post("/", guards=[may_change], responses=_OF_AUTHORITY)
    async def create_workspace(
        self, request: ApiRequest, state: State, data: NewWorkspace
    ) -> NewWorkspaceToken:
        """Makes the first token of a workspace, for all its topics. Nothing else is to be made: a workspace
        is there as soon as a client is in it. It needs `authority.key` on the host of the API, and the caller
        needs the right to all topics of the workspace."""
        if not name_is_valid(data.name):
            text = "a workspace has a name of 1 to 64 lower-case letters, digits and `-`"
            raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, text)
        rights = BlockRights(read=("#",), write=("#",), retain=True, share=True)
        block = Block(rights, expires_at=int(time.time()) + data.valid_s, workspace=data.name)
        made = sign_token(context_of(state).access.authority, block, request.user)
        return NewWorkspaceToken(name=data.name, token=made)


def _workspaces(live: LiveNetwork) -> Iterator[Workspace]:
    nodes = live.nodes()
    usage: dict[str, list[WorkspaceAtNode]] = {}
    subtrees: dict[str, dict[str, str]] = {}
    for node, known in nodes.items():
        for name, counts in _counted(known):
            usage.setdefault(name, []).append(_at_node(node, counts))
        for subtree in _texts(known.status.get("subtrees")):
            if name := name_of(subtree):
                subtrees.setdefault(name, {})[subtree] = node
    clients = {name_of(str(each.get("client", ""))) for _, each in live.sessions()} - {""}
    for name in sorted(usage.keys() | subtrees.keys() | clients):
        yield Workspace(name=name, subtrees=subtrees.get(name, {}), usage=usage.get(name, []))


def _counted(known: KnownNode) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a node says of the workspaces that have quotas. What is malformed is left out."""
    said = known.status.get("workspaces")
    for name, counts in (said if isinstance(said, dict) else {}).items():
        if name_is_valid(name) and isinstance(counts, dict):
            yield name, counts


def _at_node(node: str, counts: dict[str, Any]) -> WorkspaceAtNode:
    return WorkspaceAtNode(
        node=node,
        sessions=number_of(counts, "sessions"),
        most_sessions=number_of(counts, "most_sessions") or None,
        subscriptions=number_of(counts, "subscriptions"),
        most_subscriptions=number_of(counts, "most_subscriptions") or None,
        most_messages_per_second=number_of(counts, "most_messages_per_second") or None,
    )


def _texts(values: object) -> Iterable[str]:
    return (each for each in values if isinstance(each, str)) if isinstance(values, list) else ()
