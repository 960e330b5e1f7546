"""A message that hsub has received, as it prints it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hbroker import Message

__all__ = ["Received"]


@dataclass(frozen=True, slots=True)
class Received:
    """A message that hsub has received.

    `is_retained`: MQTT's retain flag, as delivered. `number`: in place of MQTT's packet identifier, a number
    that counts the messages of QoS 1 and 2 from 1 to 65,535 and begins again; 0 at QoS 0. `at_ns`:
    nanoseconds since the Unix epoch.
    """

    message: Message
    is_retained: bool
    number: int
    at_ns: int
