"""How a caller wants the messages of a subscription, in the arguments of `subscribe`."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.subscription import Options

__all__ = ["Delivery", "options_of"]


class Delivery(TypedDict, total=False):
    """How a subscription's messages are wanted. `qos`: the highest. `no_local`, `retain_as_published` and
    `retain_handling`: MQTT 5's (§3.8.3.1). `overflow`: what an owner does with a message that finds the
    queue full: `"drop_oldest"` (the default), `"drop_newest"` or `"end_session"`. `queue_messages`,
    `queue_bytes`: the bounds of the session's queue at each owner, the largest that a subscription asks for;
    0, or more than a node allows: the node's own (§7.8)."""

    qos: int
    no_local: bool
    retain_as_published: bool
    retain_handling: int
    overflow: Literal["drop_oldest", "drop_newest", "end_session"]
    queue_messages: int
    queue_bytes: int


_OVERFLOWS: Final = {
    "drop_oldest": pb.OVERFLOW_DROP_OLDEST,
    "drop_newest": pb.OVERFLOW_DROP_NEWEST,
    "end_session": pb.OVERFLOW_END_SESSION,
}


def options_of(delivery: Delivery) -> Options:
    """As the protocol has them. Raises ValueError."""
    overflow = delivery.get("overflow", "drop_oldest")
    if overflow not in _OVERFLOWS:
        raise ValueError(f"overflow is one of {', '.join(_OVERFLOWS)}, not {overflow!r}")
    return Options(
        qos=delivery.get("qos", 0),
        no_local=delivery.get("no_local", False),
        retain_as_published=delivery.get("retain_as_published", False),
        retain_handling=delivery.get("retain_handling", 0),
        overflow=_OVERFLOWS[overflow],
        queue_messages=delivery.get("queue_messages", 0),
        queue_bytes=delivery.get("queue_bytes", 0),
    )
