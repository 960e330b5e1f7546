"""Moves of subtrees, and nodes that leave."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from hbroker.http_api.models.requests import RequestBody

__all__ = ["Left", "Move", "NewMove"]


class NewMove(RequestBody):
    """A subtree to move to another node (`hbroker move`)."""

    subtree: str = Field(min_length=1, max_length=65_535, examples=["home/kitchen"])
    node: str = Field(min_length=1, max_length=63, description="who is to own it")


class Move(BaseModel):
    """A move of a subtree."""

    id: str
    subtree: str
    node: str
    state: Literal["running", "done", "failed"]
    steps: list[str] = Field(description="what was begun so far, the last one at the end")
    source: str | None = Field(description="the owner before; null: not known yet")
    seconds: float = Field(description="since it was begun, or for how long it ran")
    error: str | None = Field(description="why it failed")


class Left(BaseModel):
    """A node that has handed back all that it owned, and has ended."""

    node: str
    seconds: float
