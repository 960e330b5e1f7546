"""Workspaces, and what they use (docs/workspaces.md)."""

from __future__ import annotations

from pydantic import BaseModel, Field

from hbroker.http_api.models.requests import RequestBody
from hbroker.http_api.models.tokens import Token

__all__ = ["NewWorkspace", "NewWorkspaceToken", "Workspace", "WorkspaceAtNode"]


class WorkspaceAtNode(BaseModel):
    """What a workspace with quotas uses at one node, and its quotas; null: it is not bounded."""

    node: str
    sessions: int = Field(description="sessions that have a subscription in the workspace, offline ones, too")
    most_sessions: int | None
    subscriptions: int
    most_subscriptions: int | None
    most_messages_per_second: int | None


class Workspace(BaseModel):
    """A workspace that nodes know: it has quotas, a subtree of its own, or sessions."""

    name: str
    subtrees: dict[str, str] = Field(
        description="its subtrees that nodes own by themselves: the node of each"
    )
    usage: list[WorkspaceAtNode] = Field(description="at each node that has quotas for it")


class NewWorkspace(RequestBody):
    """A workspace that is to get its first token."""

    name: str = Field(min_length=1, max_length=64, examples=["acme"])
    valid_s: int = Field(30 * 86_400, ge=60, le=3_650 * 86_400, description="seconds from now")


class NewWorkspaceToken(BaseModel):
    """A token for all topics of a workspace. Narrower ones are made of it (`/tokens/attenuate`)."""

    name: str
    token: Token
