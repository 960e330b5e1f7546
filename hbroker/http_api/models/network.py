"""The network as a whole, its nodes and subtrees, and what happens in it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

__all__ = [
    "Alert",
    "AuditEvent",
    "Health",
    "History",
    "HotTopic",
    "HotTopicList",
    "Network",
    "Node",
    "Owner",
    "Rates",
    "Sample",
    "Subtree",
]


class Rates(BaseModel):
    """What a node handled, for each second between its last two statuses."""

    messages_received: float
    messages_sent: float
    bytes_received: float
    bytes_sent: float
    cpu_seconds: float = Field(description="of the node's process: 1 is one processor")


class Node(BaseModel):
    """A node, as it says of itself (`hbroker tree`). Counters are since its process began."""

    name: str
    subtree: str | None = Field(description="what it was made to own; null: it has handed it back")
    subtrees: list[str] = Field(description="all that it owns, without its own part of `$SYS`")
    parent: str | None = Field(description="the node above; null: this is the root, or it has not joined")
    address: str = Field(description="HOST:PORT, UDP")
    epoch: int = Field(description="of its subtree: higher each time that it was granted")
    children: list[str] = Field(description="the subtrees that it has delegated")
    is_silent: bool = Field(description="it has not published its status for half a minute")
    security: str = Field(description="`on`, or `off`: nothing is encrypted")
    subscriptions: int
    sessions: int = Field(description="those that are connected")
    sessions_offline: int = Field(description="persistent sessions whose client is away")
    publishers: int
    wills: int
    messages_received: int
    messages_sent: int = Field(description="copies, one for each subscriber")
    bytes_received: int
    bytes_sent: int
    queued_messages: int = Field(description="that wait for a session, or for its acknowledgement")
    queued_bytes: int
    dropped: dict[str, int] = Field(description="messages and datagrams that it discarded, by reason")
    cpu_seconds: float
    resident_bytes: int
    rates: Rates | None = Field(description="null: its second status has not come yet")
    lag_seconds: float | None = Field(
        description="for how long it would deliver what waits for connected subscribers, at the rate of now; "
        "null: nothing is delivered, and something waits"
    )


class Subtree(BaseModel):
    """A part of the topic hierarchy, and which node owns it."""

    subtree: str = Field(description="a topic prefix; empty: the whole hierarchy")
    node: str
    address: str
    delegated: list[str] = Field(description="the subtrees below that other nodes own")


class HotTopic(BaseModel):
    """A topic with many messages at a node, for each second of the last ten."""

    topic: str | None = Field(description="null: all topics of the node together that are not listed")
    node: str
    messages_received: float
    messages_sent: float
    bytes_received: float
    bytes_sent: float


class HotTopicList(BaseModel):
    """The topics with the most messages, the hottest first."""

    items: list[HotTopic]


class Owner(BaseModel):
    """Who owns a topic (`hbroker resolve`)."""

    topic: str
    subtree: str
    node: str
    address: str
    epoch: int


class Network(BaseModel):
    """The network as a whole."""

    root: str = Field(description="HOST:PORT of the root, UDP")
    nodes: int
    silent: list[str] = Field(description="the names of the nodes that are silent")
    sessions: int
    sessions_offline: int
    subscriptions: int
    queued_messages: int
    queued_bytes: int
    rates: Rates = Field(description="the sums over all nodes")


class Sample(BaseModel):
    """Sums over all nodes, a while ago."""

    age_s: float = Field(description="how long ago")
    sessions: int
    queued_messages: int
    rates: Rates


class History(BaseModel):
    """The network over the last minutes."""

    items: list[Sample]


class Alert(BaseModel):
    """An alert that stands (docs/analysis.md, Alerts)."""

    topic: str
    alert: str
    role: str
    node: str | None
    severity: Literal["warning", "critical"] | None
    value: float | None
    threshold: float | None
    window_start: str | None
    window_s: float | None


class AuditEvent(BaseModel):
    """An event of a node or a gateway (docs/audit.md)."""

    number: int = Field(description="counts the events of this run of the API")
    node: str
    event: str
    fields: dict[str, Any] = Field(description="the other fields of the record")


class Health(BaseModel):
    """Whether the API works."""

    status: Literal["ok", "no network"]
