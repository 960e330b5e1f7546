"""What all requests have in common: no field that is unknown, and no number where a truth value is meant."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["Flag", "Level", "RequestBody"]


def _as_bool(value: object) -> object:
    if not isinstance(value, bool):
        raise ValueError("it is true or false")
    return value


def _as_number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("it is a number")
    return value


# Not `strict=True` of pydantic: Litestar validates with `strict=False`, which overrules that.
Flag = Annotated[bool, BeforeValidator(_as_bool)]
Level = Annotated[int, BeforeValidator(_as_number), Field(ge=0, le=2)]
"""A QoS, or how retained messages are handled (MQTT 5 §3.8.3.1)."""


class RequestBody(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid")
