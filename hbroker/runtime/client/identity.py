"""Who a client is: its name, its session, and its will, from what `connect` was given.

A client that wants no more than its own run has a random session, and so may share its name with others. One
whose session is to outlive it, or that ends what an earlier run left, has the session that follows from its
name and key: then only one run of it is connected at a time.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from hbroker._native import topic_is_valid
from hbroker._proto import packet_pb2 as pb
from hbroker.errors import InvalidTopic, PayloadTooLarge
from hbroker.properties import mqtt_properties_of
from hbroker.protocol.sessions import client_will
from hbroker.protocol.sessions.options import LONGEST_EXPIRY_S, SessionOptions, session_id
from hbroker.runtime.client.publication import encoded

__all__ = ["Identity", "PoolClientProfile", "Profile", "Will", "random_id"]


@dataclass(frozen=True, slots=True)
class Will:
    """A message that the owner of its topic publishes when the client's session breaks off (§6.6).

    `delay`: seconds that the client has to come back before; at most the session's expiry counts.
    `expiry_s`: seconds after its publication. The rest as in `Client.publish`. Topic, payload and properties
    have about 1,000 bytes in all. Raises InvalidTopic, PayloadTooLarge, ValueError.
    """

    topic: str
    payload: bytes | str = b""
    qos: int = 0
    retain: bool = False
    delay: float = 0.0
    expiry_s: int | None = None
    content_type: str = ""
    payload_format: int | None = None
    response_topic: str = ""
    correlation_data: bytes = b""
    user_properties: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        if not topic_is_valid(self.topic):
            raise InvalidTopic(f"not a topic name: {self.topic!r}")
        if self.qos not in (0, 1, 2):
            raise ValueError(f"a QoS is 0, 1 or 2, not {self.qos!r}")
        size = self.message().ByteSize()
        if size > client_will.WILL_ROOM:
            raise PayloadTooLarge(f"a will of {size} bytes: {client_will.WILL_ROOM} are the most")
        _whole_seconds("delay", self.delay)

    def message(self) -> pb.Publish:
        """As it is registered, less its id."""
        return client_will.will_message(
            self.topic,
            encoded(self.payload),
            self.qos,
            retain=self.retain,
            **mqtt_properties_of(self),
        )

    def registered(self) -> client_will.Will:
        """As the protocol has it."""
        return client_will.Will(self.message(), _whole_seconds("delay", self.delay))


class PoolClientProfile(TypedDict, total=False):
    """What a client of a pool may be, in the arguments of `ClientPool.connect`.

    `client_id`: shown to those who operate the network; a random one where it is not given. `session_expiry`:
    for how many seconds the subscriptions live on, with what waits for them, while no run of the client is
    connected (§6.4); it needs a `client_id`, and only one run is connected at a time. `session_key`: whoever
    knows it and the `client_id` takes the session over. `clean_start`: what an earlier run left ends. `will`:
    what is published when the client breaks off (§6.6). `acknowledge`: when a message of QoS 1 or 2 is
    acknowledged to its owner: `"received"` (the default), when this process has it; `"handled"`, when the
    application asks for the next one: what it had not finished with when it was killed comes to the next run
    of the session.
    """

    client_id: str | None
    session_expiry: float
    session_key: str | bytes
    clean_start: bool
    will: Will | None
    acknowledge: Literal["received", "handled"]


class Profile(PoolClientProfile, total=False):
    """What a client may be, in the arguments of `connect`: all that a member may, and what it takes.

    `max_message_bytes`: the largest payload, both ways, 256 MiB at most. `receive_messages`, `receive_bytes`:
    what it takes from one owner without having acknowledged it (§7.7).
    """

    max_message_bytes: int
    receive_messages: int
    receive_bytes: int


@dataclass(frozen=True, slots=True)
class Identity:
    """One client, as it connects. `will`: None for none. `holds`: it says what it has handled."""

    session_options: SessionOptions
    will: Will | None = None
    holds: bool = False
    max_message_bytes: int = 268_435_456
    receive_messages: int = 4_096
    receive_bytes: int = 8_388_608

    @classmethod
    def of(
        cls,
        client_id: str | None = None,
        session_expiry: float = 0.0,
        session_key: str | bytes = "",
        clean_start: bool = False,
        will: Will | None = None,
        acknowledge: str = "received",
        **bounds: int,
    ) -> Identity:
        """Checks what `connect` was given. Raises ValueError."""
        if acknowledge not in ("received", "handled"):
            raise ValueError(f"acknowledge is 'received' or 'handled', not {acknowledge!r}")
        expiry_s = _whole_seconds("session_expiry", session_expiry)
        key = session_key.encode() if isinstance(session_key, str) else session_key
        if (expiry_s or key or clean_start) and not client_id:
            raise ValueError("a session that is known in another run needs a client_id")
        name = client_id or f"client-{os.urandom(4).hex()}"
        session_options = SessionOptions(name, 0, expiry_s, clean_start)
        session_options = replace(
            session_options, session=session_id(name, key) if session_options.is_named else random_id()
        )
        return cls(session_options, will, acknowledge == "handled", **bounds)


def random_id() -> int:
    """64 random bits, not all zero."""
    return int.from_bytes(os.urandom(8), "big") or 1


def _whole_seconds(name: str, seconds: float) -> int:
    """Rounded up, so that it is never less than was asked for; for ever is the most that there is."""
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{name} is a number of seconds, not {seconds!r}")
    return LONGEST_EXPIRY_S if seconds >= LONGEST_EXPIRY_S else math.ceil(seconds)
