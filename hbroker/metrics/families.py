"""The list of metrics. Names are those of Prometheus' conventions: base units, `_total` for counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["FAMILIES", "Family"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of a node. `key`: in the node's status. `help`: one sentence."""

    name: str
    kind: Literal["counter", "gauge"]
    key: str
    help: str


FAMILIES: Final = (
    Family(
        "hbroker_messages_received", "counter", "messages_in", "Messages that the node took from publishers."
    ),
    Family("hbroker_messages_sent", "counter", "messages_out", "Copies that the node gave to subscribers."),
    Family("hbroker_received_bytes", "counter", "bytes_in", "Payload bytes of the messages received."),
    Family("hbroker_sent_bytes", "counter", "bytes_out", "Payload bytes of the copies sent."),
    Family("hbroker_messages_accepted", "counter", "accepted", "Copies that the node accepted for sessions."),
    Family(
        "hbroker_messages_delivered",
        "counter",
        "delivered",
        "Copies that sessions acknowledged, or were sent at QoS 0.",
    ),
    Family(
        "hbroker_messages_expired",
        "counter",
        "expired",
        "Copies that expired before their session took them.",
    ),
    Family(
        "hbroker_queued_messages",
        "gauge",
        "queued_messages",
        "Messages that wait for a session or its acknowledgement.",
    ),
    Family("hbroker_queued_bytes", "gauge", "queued_bytes", "Bytes of the messages that wait."),
    Family(
        "hbroker_offline_bytes",
        "gauge",
        "offline_bytes",
        "Bytes of the messages that wait for offline sessions.",
    ),
    Family("hbroker_sessions", "gauge", "sessions", "Sessions that are connected."),
    Family(
        "hbroker_offline_sessions", "gauge", "sessions_offline", "Persistent sessions whose client is away."
    ),
    Family("hbroker_subscriptions", "gauge", "subscriptions", "Subscriptions that the node stores."),
    Family("hbroker_publishers", "gauge", "publishers", "Links over which a message has come."),
    Family("hbroker_wills", "gauge", "wills", "Wills that the node keeps."),
    Family(
        "hbroker_revoked_tokens", "gauge", "revoked_tokens", "Records of revoked tokens that the node has."
    ),
    Family("hbroker_cpu_seconds", "counter", "cpu_s", "CPU seconds of the node's process, user and kernel."),
    Family("hbroker_resident_memory_bytes", "gauge", "rss_bytes", "Resident memory of the node's process."),
)
"""Every metric that has the label `node` and no other."""
