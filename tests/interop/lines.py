"""The protocol between a test and a client's program: one JSON object per line.

To the program: `{"verb": "subscribe", "filter", "qos"}`, and `{"verb": "publish", "topic", "payload", "qos",
"retained"}`. The program answers `{"event": "done"}` to each, once the broker has acknowledged. It sends the
same event first, when it is connected. `{"event": "message", "topic", "payload", "qos", "retained"}` reports
a received message. Payloads are in base64. The program ends at the end of its input.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Message:
    """A message that a client received."""

    topic: str
    payload: bytes
    qos: int
    retained: bool = False


@dataclass(frozen=True)
class Place:
    """Where a client connects, and with which client id and credentials. `version`: 4 is MQTT 3.1.1.
    `kept`: the session outlives the connection (only `Peer` implements it). `authority`: use TLS, and
    trust the CA in this file. `certificate` and `key`: the client's own files, if it has some."""

    host: str
    port: int
    client_id: str
    version: int = 5
    websocket: bool = False
    kept: bool = False
    authority: str = ""
    certificate: str = ""
    key: str = ""

    @classmethod
    def read(cls) -> Self:
        """The place of a program's command line."""
        return cls(**json.loads(sys.argv[1]))


def encode(payload: bytes) -> str:
    """Encodes a payload as text."""
    return base64.b64encode(payload).decode()


def decode(text: str) -> bytes:
    """Decodes a payload from text."""
    return base64.b64decode(text)


def report_done() -> None:
    """Reports that the program is connected, or has carried out an order."""
    _write({"event": "done"})


def report_message(message: Message) -> None:
    """Reports that the program has received a message."""
    _write({"event": "message", **vars(message), "payload": encode(message.payload)})


def message_of(event: dict[str, Any]) -> Message:
    """The message that a program reported."""
    return Message(event["topic"], decode(event["payload"]), event["qos"], event["retained"])


def _write(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")  # One write for each line: threads write whole lines.
    sys.stdout.flush()
