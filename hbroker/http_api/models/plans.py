"""Plans: subtrees that are moved together, and the load that each node is expected to carry then."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from hbroker.http_api.models.requests import Flag, RequestBody

__all__ = ["NewPlan", "Plan", "PlannedLoad", "PlannedMove"]


class NewPlan(RequestBody):
    """A plan to carry out (`hbroker apply`)."""

    topology: str = Field(
        min_length=1,
        max_length=1 << 20,
        description="a topology file, as `hbroker analyze` writes it; its sections `nodes` and `plan` count",
    )
    dry_run: Flag = Field(False, description="only tell what would move")


class PlannedMove(BaseModel):
    """A subtree that the plan moves."""

    subtree: str
    source: str | None = Field(description="the owner before; null: it is a part of another subtree")
    target: str | None = Field(description="who is to own it; null: the owner of what is around it")
    state: Literal["waiting", "running", "done", "failed"]
    seconds: float | None = Field(description="how long it took")
    error: str | None = Field(description="why it failed")


class PlannedLoad(BaseModel):
    """The load of a node as the plan predicts it, beside that of now. Loads are CPU-seconds a second."""

    node: str
    predicted: float | None
    load: float = Field(description="of now, by the plan's cost of a message")
    cpu_seconds: float = Field(description="of now, of the node's process")
    messages_received: float
    messages_sent: float


class Plan(BaseModel):
    """A plan, and how far it is."""

    id: str | None = Field(description="null: it was a dry run")
    state: Literal["dry_run", "running", "done", "failed"]
    step: str = Field(description="what is done now")
    moves: list[PlannedMove]
    seconds: float = Field(description="since it was begun, or for how long it ran")
    error: str | None = Field(description="why it failed; the moves before stand")
    loads: list[PlannedLoad] = Field(description="empty: the topology has no section `plan`")
    predicted_max_mean: float | None = Field(description="the largest predicted load over the mean")
    max_mean: float | None = Field(description="the same of now")
