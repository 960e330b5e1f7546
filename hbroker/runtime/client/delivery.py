"""The options of a subscription, as arguments of `subscribe`."""

from __future__ import annotations

from typing import Final, Literal, TypedDict

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.subscriptions.client.options import Options

__all__ = ["Delivery", "options_of"]


class Delivery(TypedDict, total=False):
    """The options of a subscription.

    - `qos`: the highest QoS.
    - `no_local`, `retain_as_published`, `retain_handling`: as in MQTT 5 §3.8.3.1.
    - `overflow`: what an owner does if the queue overflows (docs/protocol.md §7.8): `"drop_oldest"` (the
      default), `"drop_newest"` or `"end_session"`.
    - `queue_messages`, `queue_bytes`: the bounds of the session's queue at each owner. The largest that one
      of the session's subscriptions asks for counts. 0, or more than the node allows: the node's own bound.
    """

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
    """The options as the protocol's class. Raises ValueError for an invalid value, and TypeError for an
    unknown option."""
    overflow = delivery.get("overflow", "drop_oldest")
    if overflow not in _OVERFLOWS:
        raise ValueError(f"overflow is one of {', '.join(_OVERFLOWS)}, not {overflow!r}")
    options = Options(**{**delivery, "overflow": _OVERFLOWS[overflow]})  # type: ignore[arg-type]
    if options.qos not in (0, 1, 2):
        raise ValueError(f"a QoS is 0, 1 or 2, not {options.qos!r}")
    if options.retain_handling not in (0, 1, 2):
        raise ValueError(f"retain_handling is 0, 1 or 2, not {options.retain_handling!r}")
    if not (0 <= options.queue_messages < 1 << 32 and 0 <= options.queue_bytes < 1 << 64):
        raise ValueError("the bounds of a queue are numbers of 32 and 64 bits")
    return options
