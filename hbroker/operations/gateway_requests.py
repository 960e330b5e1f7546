"""Asks all gateways of a network, for `hbroker clients`, `hbroker kick` and the HTTP API.

The presences of the gateways are authenticated with the join key. If none of them can be verified, the key is
missing or wrong, which is an error. If some can, the others have another key.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hbroker.errors import LocalError

if TYPE_CHECKING:
    from hbroker.gateway.records.gateways import GatewayRecord
    from hbroker.sync import Client

QUIET_S = 0.3
"""Nothing marks the last retained message. When none has arrived for this time, all presences are known."""


class JoinKeyError(LocalError):
    """The gateways have another join key than this one. `is_missing`: none was given."""

    def __init__(self, key: bytes) -> None:
        self.is_missing = not key
        super().__init__(
            "this is not the join key that the gateways of this network have"
            if key
            else "the gateways of this network have a join key, and none was given"
        )


@dataclass
class Replies:
    """The replies of the gateways by name, and the names of those that did not answer in time.

    `foreign`: those of `silent` that have another join key.
    """

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def ask_gateways(client: Client, key: bytes, kind: str, client_id: str = "", *, timeout: float) -> Replies:
    """Asks every gateway, and waits for all answers, for `timeout` seconds at most.

    `key`: the join key of the network; empty: it has none. `client_id`: as in `Request.client`. Raises
    Unreachable if the root does not answer, and JoinKeyError if the join key is missing or wrong.
    """
    from hbroker.gateway.admin_requests import Request
    from hbroker.gateway.records.record_authentication import sign, verify

    deadline = time.monotonic() + timeout
    request = Request(kind, secrets.token_hex(16), time.time_ns() // 1000, client_id)
    replies = Replies()
    ended: set[str] = set()
    present, foreign = present_gateways(client, key, timeout)
    names = set(present)
    if foreign and not names:
        raise JoinKeyError(key)
    with client.subscribe(request.reply_topic, qos=1, timeout=timeout) as messages:
        client.publish(request.topic, sign(key, request.topic, request.body()), qos=1, ack_queued=True)
        while not names <= ended:
            message = messages.next(timeout=max(deadline - time.monotonic(), 0.0))
            if message is None:
                break
            body = verify(key, message.topic, message.payload)
            if body is None:
                continue
            replies.entries.setdefault(str(body["gateway"]), []).extend(body["entries"])
            if body["is_last"]:
                ended.add(str(body["gateway"]))
    replies.silent = sorted((names - ended) | foreign)
    replies.foreign = sorted(foreign)
    return replies


def present_gateways(client: Client, key: bytes, timeout: float) -> tuple[dict[str, GatewayRecord], set[str]]:
    """The present gateways by name, and the names of those whose presence this key does not verify. Raises
    Unreachable and Refused."""
    from hbroker.gateway.records.gateways import GatewayRecord
    from hbroker.gateway.records.record_authentication import GATEWAYS, last_level, verify

    present: dict[str, GatewayRecord] = {}
    foreign: set[str] = set()
    with client.subscribe(f"{GATEWAYS}#", qos=1, timeout=timeout) as messages:
        while (message := messages.next(timeout=QUIET_S)) is not None:
            body = verify(key, message.topic, message.payload)
            presence = None if body is None else GatewayRecord.parse(body)
            if presence is not None and presence.is_alive:
                present[presence.name] = presence
            elif presence is not None:
                present.pop(presence.name, None)
            elif message.payload:
                foreign.add(last_level(message.topic))
    return present, foreign - set(present)
