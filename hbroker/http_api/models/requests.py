"""What all requests have in common: no field that is unknown, and no number where a truth value is meant."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Flag", "Level", "RequestBody"]

Flag = Annotated[bool, Field(strict=True)]
Level = Annotated[int, Field(strict=True, ge=0, le=2)]
"""A QoS, or how retained messages are handled (MQTT 5 §3.8.3.1)."""


class RequestBody(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")
