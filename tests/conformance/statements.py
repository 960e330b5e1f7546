"""Every normative statement of MQTT 5 by its id, and the statements that no test can cover, with the reason.

The ids are those of the specification's appendix B: a section and a number. The text of the statements is not
repeated here.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Section(NamedTuple):
    """A section of the specification: its number, its title, and the numbers of its statements."""

    name: str
    title: str
    last: int
    first: int = 1

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of its statements, in order."""
        return tuple(f"MQTT-{self.name}-{number}" for number in range(self.first, self.last + 1))


SECTIONS: Final = (
    Section("1.5.4", "strings", 3),
    Section("1.5.5", "variable byte integers", 1),
    Section("1.5.7", "string pairs", 1),
    Section("2.1.3", "flags", 1),
    Section("2.2.1", "packet identifiers", 6, first=2),
    Section("2.2.2", "properties", 1),
    Section("3.1.0", "CONNECT", 2),
    Section("3.1.2", "CONNECT, variable header", 30),
    Section("3.1.3", "CONNECT, payload", 12),
    Section("3.1.4", "CONNECT, actions", 6),
    Section("3.2.0", "CONNACK", 2),
    Section("3.2.2", "CONNACK, variable header", 22),
    Section("3.3.1", "PUBLISH, fixed header", 13),
    Section("3.3.2", "PUBLISH, variable header", 20),
    Section("3.3.4", "PUBLISH, actions", 10),
    Section("3.4.2", "PUBACK", 3),
    Section("3.5.2", "PUBREC", 3),
    Section("3.6.1", "PUBREL, fixed header", 1),
    Section("3.6.2", "PUBREL, variable header", 3),
    Section("3.7.2", "PUBCOMP", 3),
    Section("3.8.1", "SUBSCRIBE, fixed header", 1),
    Section("3.8.3", "SUBSCRIBE, payload", 5),
    Section("3.8.4", "SUBSCRIBE, actions", 8),
    Section("3.9.2", "SUBACK, variable header", 2),
    Section("3.9.3", "SUBACK, payload", 2),
    Section("3.10.1", "UNSUBSCRIBE, fixed header", 1),
    Section("3.10.3", "UNSUBSCRIBE, payload", 2),
    Section("3.10.4", "UNSUBSCRIBE, actions", 6),
    Section("3.11.2", "UNSUBACK, variable header", 2),
    Section("3.11.3", "UNSUBACK, payload", 2),
    Section("3.12.4", "PINGREQ", 1),
    Section("3.14.0", "DISCONNECT", 1),
    Section("3.14.1", "DISCONNECT, fixed header", 1),
    Section("3.14.2", "DISCONNECT, variable header", 4),
    Section("3.14.4", "DISCONNECT, actions", 3),
    Section("3.15.1", "AUTH, fixed header", 1),
    Section("3.15.2", "AUTH, variable header", 3),
    Section("4.1.0", "session state", 2),
    Section("4.2", "network connections", 1),
    Section("4.3.1", "quality of service 0", 1),
    Section("4.3.2", "quality of service 1", 5),
    Section("4.3.3", "quality of service 2", 13),
    Section("4.4.0", "repeated delivery", 2),
    Section("4.5.0", "receipt of messages", 2),
    Section("4.6.0", "order of messages", 6),
    Section("4.7.0", "topic names and filters", 1),
    Section("4.7.1", "wildcards", 2),
    Section("4.7.2", "topics that begin with $", 1),
    Section("4.7.3", "topics, meaning and use", 4),
    Section("4.8.2", "shared subscriptions", 6),
    Section("4.9.0", "flow control", 3),
    Section("4.12.0", "enhanced authentication", 7),
    Section("4.12.1", "authentication anew", 2),
    Section("4.13.1", "malformed packets and protocol errors", 1),
    Section("4.13.2", "other errors", 1),
    Section("6.0.0", "WebSocket", 4),
)

IDS: Final = tuple(id for section in SECTIONS for id in section.ids)

EXCEPTIONS: Final = {
    "MQTT-4.8.2-5": "Not where the session ends while its client is offline: its queued messages then "
    "go to other members, also at QoS 2.",
}
"""Statements that a gateway does not follow in full."""

NOT_OURS: Final = {
    "MQTT-2.2.1-3": "client: it chooses its packet identifiers",
    "MQTT-3.1.2-20": "client: it has to send PINGREQ",
    "MQTT-3.1.2-21": "client: it has to follow the server keep alive",
    "MQTT-3.1.2-30": "client: it has to wait for CONNACK",
    "MQTT-3.2.2-4": "client: what it does about a session that it does not know",
    "MQTT-3.2.2-5": "client: what it does about a session that the server does not know",
    "MQTT-3.2.2-9": "does not apply: a gateway supports all three levels of QoS",
    "MQTT-3.2.2-10": "does not apply: a gateway supports all three levels of QoS",
    "MQTT-3.2.2-11": "client: it has to respect Maximum QoS",
    "MQTT-3.2.2-12": "does not apply: a gateway supports all three levels of QoS",
    "MQTT-3.2.2-13": "does not apply: a gateway supports retained messages",
    "MQTT-3.2.2-14": "client: it has to respect Retain Available",
    "MQTT-3.2.2-15": "client: it has to respect the Maximum Packet Size of CONNACK",
    "MQTT-3.2.2-17": "client: it has to respect the Topic Alias Maximum of CONNACK",
    "MQTT-3.2.2-18": "client: it uses no alias where CONNACK allows none",
    "MQTT-3.2.2-20": "does not apply: a gateway puts no user properties into CONNACK",
    "MQTT-3.2.2-21": "client: it has to follow the server keep alive",
    "MQTT-3.3.2-9": "client: it has to respect the Topic Alias Maximum of CONNACK",
    "MQTT-3.3.2-10": "client: it has to accept the aliases that it offered to take",
    "MQTT-3.3.4-4": "does not apply: a gateway sends a copy for each subscription",
    "MQTT-3.3.4-7": "client: it has to respect the Receive Maximum of CONNACK",
    "MQTT-3.3.4-8": "client: only PUBLISH may wait for its quota",
    "MQTT-3.4.2-3": "does not apply: a gateway puts no user properties into PUBACK",
    "MQTT-3.5.2-3": "does not apply: a gateway puts no user properties into PUBREC",
    "MQTT-3.6.2-3": "does not apply: a gateway puts no user properties into PUBREL",
    "MQTT-3.7.2-3": "does not apply: a gateway puts no user properties into PUBCOMP",
    "MQTT-3.9.2-2": "does not apply: a gateway puts no user properties into SUBACK",
    "MQTT-3.11.2-2": "does not apply: a gateway puts no user properties into UNSUBACK",
    "MQTT-3.14.2-4": "does not apply: a gateway puts no user properties into DISCONNECT",
    "MQTT-3.15.2-2": "does not apply: a gateway puts no reason string into AUTH",
    "MQTT-3.15.2-3": "does not apply: a gateway puts no user properties into AUTH",
    "MQTT-4.5.0-2": "client: it has to acknowledge what it does not want, too",
    "MQTT-4.6.0-1": "client: the order in which it repeats PUBLISH",
    "MQTT-4.6.0-2": "client: the order of its PUBACK",
    "MQTT-4.6.0-3": "client: the order of its PUBREC",
    "MQTT-4.6.0-4": "client: the order of its PUBREL",
    "MQTT-4.12.0-3": "client: what it answers to AUTH",
    "MQTT-4.12.0-7": "client: it sends no AUTH where it named no method",
    "MQTT-4.12.1-1": "client: how it asks to be authenticated anew",
    "MQTT-6.0.0-3": "client: what it offers as a WebSocket subprotocol",
}
