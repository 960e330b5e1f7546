"""The list of metrics. Names are those of Prometheus' conventions: base units, `_total` for counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = [
    "ALERTS",
    "FAMILIES",
    "GATEWAY_FAMILIES",
    "LABELLED",
    "REFUSALS",
    "REFUSED",
    "Alert",
    "Family",
    "LabelledFamily",
]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric of a node, with the label `node`, or of a gateway, with the label `gateway`. `key`: in the
    status of the node, or among the counters of the gateway. `help`: one sentence."""

    name: str
    kind: Literal["counter", "gauge"]
    key: str
    help: str

    @property
    def sample(self) -> str:
        """The name of its samples: that of a counter ends with `_total`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


@dataclass(frozen=True, slots=True)
class LabelledFamily:
    """One metric with further labels. `sample`: the name of its samples."""

    name: str
    sample: str
    kind: Literal["counter", "gauge", "info"]
    labels: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert rule. `minutes`: for how long the expression has to be true. `summary`: with labels, as
    Prometheus writes them. `help`: what to do."""

    name: str
    expression: str
    minutes: int
    severity: Literal["warning", "critical"]
    summary: str
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

GATEWAY_FAMILIES: Final = (
    Family("hbroker_gateway_connections", "gauge", "connections", "MQTT clients that are connected."),
    Family("hbroker_gateway_connects", "counter", "connects", "CONNECTs that came."),
    Family(
        "hbroker_gateway_offline_sessions",
        "gauge",
        "sessions_offline",
        "Sessions of MQTT clients that are away, of all gateways.",
    ),
    Family(
        "hbroker_gateway_sessions_expired",
        "counter",
        "sessions_expired",
        "Sessions that waited for too long.",
    ),
    Family("hbroker_gateway_subscriptions", "gauge", "subscriptions", "Filters of connected clients."),
    Family("hbroker_gateway_packets_received", "counter", "packets_in", "MQTT packets that clients sent."),
    Family(
        "hbroker_gateway_packets_sent", "counter", "packets_out", "MQTT packets that were sent to clients."
    ),
    Family("hbroker_gateway_received_bytes", "counter", "bytes_in", "Bytes of the packets received."),
    Family("hbroker_gateway_sent_bytes", "counter", "bytes_out", "Bytes of the packets sent."),
    Family("hbroker_gateway_messages_received", "counter", "messages_in", "Messages that clients published."),
    Family("hbroker_gateway_messages_sent", "counter", "messages_out", "Messages that clients were sent."),
    Family(
        "hbroker_gateway_messages_dropped",
        "counter",
        "dropped",
        "Messages of QoS 0 that a client did not take in time, and those that expired.",
    ),
    Family("hbroker_gateway_cpu_seconds", "counter", "cpu_s", "CPU seconds of the process, user and kernel."),
    Family("hbroker_gateway_resident_memory_bytes", "gauge", "rss_bytes", "Resident memory of the process."),
)
"""Every metric that has the label `gateway` and no other."""

REFUSED: Final = LabelledFamily(
    "hbroker_gateway_refused",
    "hbroker_gateway_refused_total",
    "counter",
    ("gateway", "reason"),
    "Connections that were refused or failed before CONNACK, by reason.",
)
REFUSALS: Final = {
    "limit": "turned_away",
    "password": "refused_password",
    "guesses": "refused_pair",
    "guesses_of_address": "refused_address",
    "guesses_of_name": "refused_name",
    "busy": "refused_busy",
    "tls": "tls_failed",
    "websocket": "websocket_failed",
    "proxy_protocol": "proxy_failed",
    "no_memory": "unfinished_full",
}
"""The values of the label `reason` of `REFUSED`, and their counters."""

LABELLED: Final = (
    LabelledFamily(
        "hbroker_node_up",
        "hbroker_node_up",
        "gauge",
        ("node",),
        "1: the node says its status; 0: it is silent.",
    ),
    LabelledFamily(
        "hbroker_node",
        "hbroker_node_info",
        "info",
        ("node", "subtree", "parent", "address"),
        "What the node is.",
    ),
    LabelledFamily(
        "hbroker_topic_received_messages_per_second",
        "hbroker_topic_received_messages_per_second",
        "gauge",
        ("topic",),
        "Of the 50 hottest topics, in the last ten seconds; `other`: of all other topics.",
    ),
    LabelledFamily(
        "hbroker_topic_sent_messages_per_second",
        "hbroker_topic_sent_messages_per_second",
        "gauge",
        ("topic",),
        "Copies of the messages of these topics that were sent to subscribers.",
    ),
    LabelledFamily(
        "hbroker_dropped",
        "hbroker_dropped_total",
        "counter",
        ("node", "reason"),
        "Messages and datagrams that were discarded, by reason.",
    ),
)
"""The metrics that have other labels, too."""

LOSSES: Final = frozenset(
    {
        "queue_full",
        "session_ended",
        "session_expired",
        "offline",
        "retained_full",
        "too_many_records",
        "will_unpublished",
    }
)
"""Reasons of drops by which a message that a node had taken in did not arrive."""

ALERTS: Final = (
    Alert(
        "HbrokerNodeSilent",
        "hbroker_node_up == 0",
        1,
        "critical",
        "node {{ $labels.node }} is silent",
        "See whether its process runs and is reached: `hbroker status` on its host, `hbroker tree`, its log.",
    ),
    Alert(
        "HbrokerApiDown",
        'up{job="hbroker"} == 0',
        2,
        "critical",
        "the HTTP API cannot be scraped",
        "See whether the HTTP API runs. Messages pass without it.",
    ),
    Alert(
        "HbrokerMessagesLost",
        f'sum by (node) (rate(hbroker_dropped_total{{reason=~"{"|".join(sorted(LOSSES))}"}}[5m])) > 0',
        5,
        "warning",
        "node {{ $labels.node }} discards messages that it took",
        "See which sessions are slow or away: `GET /v1/sessions`. Raise `limits`, or have them read.",
    ),
    Alert(
        "HbrokerQueuesGrow",
        "deriv(hbroker_queued_messages[15m]) > 10 and hbroker_queued_messages > 10000",
        15,
        "warning",
        "the queues of node {{ $labels.node }} grow",
        "Subscribers are slower than publishers, or away: `GET /v1/sessions`.",
    ),
    Alert(
        "HbrokerNodeBusy",
        "rate(hbroker_cpu_seconds_total[5m]) > 0.9",
        10,
        "warning",
        "node {{ $labels.node }} uses a processor nearly whole",
        "Give it more workers, or part of its subtree to another node: `hbroker analyze`, `hbroker move`.",
    ),
)
"""What to be woken for."""
