"""Messages that are published, received and retained."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Base64Bytes, BaseModel, Field, model_validator

from hbroker.http_api.models.requests import Flag, Level, RequestBody

__all__ = ["Publication", "Published", "ReceivedMessage", "Topic"]

_Text = Annotated[str, Field(max_length=65_535)]


class Publication(RequestBody):
    """A message to publish (MQTT 5 §3.3.2.3). The payload is `payload`, or `payload_base64`."""

    topic: str = Field(min_length=1, max_length=65_535, examples=["home/kitchen/oven/temperature"])
    payload: str | None = Field(None, description="text")
    payload_base64: Base64Bytes | None = Field(None, description="bytes, as base64 (RFC 4648 §4)")
    qos: Level = 1
    retain: Flag = False
    expiry_s: int | None = Field(None, ge=1, le=0xFFFF_FFFF)
    content_type: _Text = ""
    response_topic: _Text = ""
    user_properties: list[tuple[_Text, _Text]] = Field(default_factory=list, max_length=100)

    @model_validator(mode="after")
    def _has_one_payload(self) -> Self:
        if self.payload is not None and self.payload_base64 is not None:
            raise ValueError("give `payload` or `payload_base64`, and not both")
        return self

    @property
    def content(self) -> bytes:
        """The payload."""
        return self.payload_base64 or (self.payload or "").encode()


class Topic(RequestBody):
    """A topic."""

    topic: str = Field(min_length=1, max_length=65_535)


class Published(BaseModel):
    """What became of a message."""

    topic: str
    qos: int
    subscribers: bool | None = Field(
        description="whether somebody was subscribed; null: unknown, as always at QoS 0"
    )


class ReceivedMessage(BaseModel):
    """A message, as a subscriber gets it."""

    topic: str
    payload: str | None = Field(description="the payload, if it is text in UTF-8")
    payload_base64: str | None = Field(description="the payload, if it is not")
    qos: int
    retain: bool
    content_type: str = ""
    user_properties: list[tuple[str, str]] = Field(default_factory=list)
