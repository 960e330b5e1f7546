"""Sessions at nodes, MQTT clients of gateways, and gateways."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from hbroker.http_api.models.requests import Flag, Level, RequestBody

__all__ = [
    "ClientName",
    "Disconnected",
    "Gateway",
    "MqttClient",
    "MqttClients",
    "MqttSession",
    "NewMqttSession",
    "NewSession",
    "Session",
    "SessionEnded",
    "SessionMade",
    "SubscriptionOptions",
]


class Session(BaseModel):
    """A session at one node: accepted = delivered + expired + dropped + queued, in messages since it
    began."""

    client: str = Field(description="the name of the client; empty: the node does not know it")
    node: str
    state: Literal["connected", "stalled", "offline"]
    accepted: int
    delivered: int
    expired: int
    dropped: dict[str, int] = Field(description="by reason")
    queued: int
    queued_bytes: int


class SubscriptionOptions(RequestBody):
    """A subscription that a session is to have (MQTT 5 §3.8.3.1)."""

    filter: str = Field(min_length=1, max_length=65_535, examples=["home/kitchen/#"])
    qos: Level = 1
    no_local: Flag = False
    retain_as_published: Flag = False
    retain_handling: Level = Field(0, description="0: retained messages are sent; 2: they are not")


class NewSession(RequestBody):
    """A session to make for a native client that is not connected, and may never have been."""

    client_id: str = Field(min_length=1, max_length=65_535, examples=["oven-17"])
    session_key: str = Field("", max_length=65_535, description="a secret that the client shows, too")
    session_expiry: int = Field(
        86_400, ge=1, le=0xFFFF_FFFF, description="seconds that it waits for the client"
    )
    subscriptions: list[SubscriptionOptions] = Field(min_length=1, max_length=1_000)


class SessionMade(BaseModel):
    """A session that waits for its client."""

    client_id: str
    session_expiry: int
    subscriptions: list[str] = Field(description="the filters")
    owners: list[str] = Field(description="the nodes that queue messages for it now")
    existed: bool = Field(description="all of its subscriptions were there before")


class MqttClient(BaseModel):
    """An MQTT client, or its session while it is offline (`hbroker clients`)."""

    client: str
    workspace: str | None
    gateway: str
    state: Literal["connected", "offline"]
    user: str | None = None
    address: str | None = Field(None, description="HOST:PORT")
    version: int | None = Field(None, description="of MQTT: 3 (3.1), 4 (3.1.1) or 5")
    keep_alive_s: int | None = None
    since_us: int | None = Field(None, description="connected or offline since, microseconds since 1970")
    session_expiry_s: int
    subscriptions: int
    has_will: bool
    messages_in: int | None = None
    messages_out: int | None = None
    queued: int | None = None
    dropped: int | None = None


class MqttClients(BaseModel):
    """A page of MQTT clients."""

    items: list[MqttClient]
    next: str | None
    silent: list[str] = Field(description="the gateways that did not answer, whose clients are not here")


class Gateway(BaseModel):
    """A gateway that is present."""

    name: str
    listeners: list[str] = Field(description="URLs")
    since_us: int = Field(description="its start, microseconds since 1970")


class ClientName(RequestBody):
    """An MQTT client."""

    client: str = Field(min_length=1, max_length=65_535, description="its client id")
    workspace: str | None = Field(None, max_length=64, description="of which it is a client; null: of none")


class NewMqttSession(ClientName):
    """A session to make for an MQTT client that is not connected, and may never have been."""

    session_expiry: int = Field(
        86_400, ge=1, le=0xFFFF_FFFF, description="seconds that it waits for the client"
    )
    subscriptions: list[SubscriptionOptions] = Field(min_length=1, max_length=1_000)


class MqttSession(BaseModel):
    """A session that waits for its MQTT client, which resumes it with Clean Start 0."""

    client: str
    workspace: str | None
    session_expiry: int
    subscriptions: list[str] = Field(description="all filters that it has")
    owners: list[str] = Field(description="the nodes that queue messages for it now")
    existed: bool = Field(description="it had all these subscriptions before")


class SessionEnded(BaseModel):
    """A session that is no more."""

    client: str
    workspace: str | None


class Disconnected(BaseModel):
    """Whether an MQTT client was disconnected."""

    client: str
    workspace: str | None
    gateways: list[str] = Field(description="those that had it, and have disconnected it")
