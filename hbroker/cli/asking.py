"""Asking all gateways of a network: what `hbroker clients` and `hbroker kick` share."""

from __future__ import annotations

import argparse
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hbroker.sync import Client

QUIET_S = 0.3
"""Retained messages have no end: the gateways that there are have said so when none has come for so long."""


@dataclass
class Answers:
    """Of each gateway that answered in time, what it said; and the names of those that did not."""

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)


def ask_gateways(options: argparse.Namespace, kind: str, client_id: str = "") -> Answers:
    """Asks every gateway, and waits for all of them. Raises Unreachable where the root does not answer."""
    from hbroker import sync
    from hbroker.cli.orders import join_key
    from hbroker.gateway.orders import Request
    from hbroker.gateway.sealing import seal, unseal

    key = join_key(options)
    deadline = time.monotonic() + options.timeout
    request = Request(kind, secrets.token_hex(16), time.time_ns() // 1000, client_id)
    answers = Answers()
    ended: set[str] = set()
    with sync.connect(options.root, timeout=options.timeout) as client:
        names = _gateways(client, key, options.timeout)
        with client.subscribe(request.reply_topic, qos=1, timeout=options.timeout) as messages:
            client.publish(request.topic, seal(key, request.topic, request.body()), qos=1, ack_queued=True)
            while not names <= ended:
                message = messages.next(timeout=max(deadline - time.monotonic(), 0.0))
                if message is None:
                    break
                body = unseal(key, message.topic, message.payload)
                if body is None:
                    continue
                answers.entries.setdefault(str(body["gateway"]), []).extend(body["entries"])
                if body["is_last"]:
                    ended.add(str(body["gateway"]))
    answers.silent = sorted(names - ended)
    return answers


def _gateways(client: Client, key: bytes, timeout: float) -> set[str]:
    """The names of the gateways that there are, as each says of itself."""
    from hbroker.gateway.gateways import Presence
    from hbroker.gateway.sealing import GATEWAYS, unseal

    names: set[str] = set()
    with client.subscribe(f"{GATEWAYS}#", qos=1, timeout=timeout) as messages:
        while (message := messages.next(timeout=QUIET_S)) is not None:
            body = unseal(key, message.topic, message.payload)
            presence = None if body is None else Presence.parse(body)
            if presence is not None:
                (names.add if presence.is_alive else names.discard)(presence.name)
    return names
