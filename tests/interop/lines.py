"""What a test and a client's program say to one another: a JSON object a line.

To the program: `{"verb": "subscribe", "filter", "qos"}`, and `{"verb": "publish", "topic", "payload", "qos",
"retained"}`; it answers `{"event": "done"}` to each, once the broker has. It says this too when it is
connected, before anything else. `{"event": "message", "topic", "payload", "qos", "retained"}` comes
whenever a message does. Payloads are in base64. The end of its input ends the program.
"""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Message:
    """What a client received."""

    topic: str
    payload: bytes
    qos: int
    retained: bool = False


@dataclass(frozen=True)
class Place:
    """Where a client connects, and as whom. `version`: 4 is MQTT 3.1.1. `kept`: the session outlives the
    connection (`Peer` knows how to). `authority`: over TLS, trusting who is in this file; `certificate` and
    `key` are its own, if it has some."""

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
        """That of a program's command line."""
        return cls(**json.loads(sys.argv[1]))


def encode(payload: bytes) -> str:
    """A payload as text."""
    return base64.b64encode(payload).decode()


def decode(text: str) -> bytes:
    """A payload from its text."""
    return base64.b64decode(text)


def say_done() -> None:
    """A program is connected, or has done what it was told."""
    _say({"event": "done"})


def say_message(message: Message) -> None:
    """A program has received a message."""
    _say({"event": "message", **vars(message), "payload": encode(message.payload)})


def message_of(said: dict[str, Any]) -> Message:
    """What a program said it received."""
    return Message(said["topic"], decode(said["payload"]), said["qos"], said["retained"])


def _say(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")  # one write: of threads, each writes whole lines
    sys.stdout.flush()
