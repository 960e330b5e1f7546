"""Asks all gateways of a network, for `hbroker clients` and `hbroker kick`.

The presences of the gateways are authenticated with the join key. If none of them can be verified, the key is
missing or wrong, which is an error. If some can, the others have another key.
"""

from __future__ import annotations

import secrets
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hbroker.cli.output import Style, styled
from hbroker.errors import ConfigError

if TYPE_CHECKING:
    from hbroker.cli.flags import RunningNetwork
    from hbroker.sync import Client

QUIET_S = 0.3
"""Nothing marks the last retained message. When none has arrived for this time, all presences are known."""


@dataclass
class Replies:
    """The replies of the gateways by name, and the names of those that did not answer in time.

    `foreign`: those of `silent` that have another join key.
    """

    entries: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def complain(self) -> None:
        """Prints which gateways did not answer."""
        for name in self.silent:
            why = "has another join key" if name in self.foreign else "does not answer"
            print(styled(f"{name} {why}", Style.BAD), file=sys.stderr)


def ask_gateways(network: RunningNetwork, kind: str, client_id: str = "") -> Replies:
    """Asks every gateway, and waits for all answers, for the network's `timeout` at most.

    Raises Unreachable if the root does not answer, and ConfigError if the network's join key is missing or
    wrong.
    """
    from hbroker.gateway.admin_requests import Request
    from hbroker.gateway.records.record_authentication import sign, verify

    key = network.join_key()
    deadline = time.monotonic() + network.timeout
    request = Request(kind, secrets.token_hex(16), time.time_ns() // 1000, client_id)
    replies = Replies()
    ended: set[str] = set()
    with network.connect() as client:
        names, foreign = _gateways(client, key, network.timeout)
        if foreign and not names:
            raise _key_error(network, key)
        with client.subscribe(request.reply_topic, qos=1, timeout=network.timeout) as messages:
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


def _key_error(network: RunningNetwork, key: bytes) -> ConfigError:
    if not key:
        return ConfigError(
            "the gateways of this network have a join key, and none was given",
            file="command line",
            remedy="give --join-key-file, or the --state-dir of its `hbroker up` on this host",
        )
    return ConfigError(
        "this is not the join key that the gateways of this network have",
        file=str(network.join_key_file or network.state_dir),
        remedy=f"give --join-key-file with the key of the network whose root is at {network.root}",
    )


def _gateways(client: Client, key: bytes, timeout: float) -> tuple[set[str], set[str]]:
    """The names of the present gateways, and of those whose presence this key does not verify."""
    from hbroker.gateway.records.gateways import GatewayRecord
    from hbroker.gateway.records.record_authentication import GATEWAYS, last_level, verify

    names: set[str] = set()
    foreign: set[str] = set()
    with client.subscribe(f"{GATEWAYS}#", qos=1, timeout=timeout) as messages:
        while (message := messages.next(timeout=QUIET_S)) is not None:
            body = verify(key, message.topic, message.payload)
            presence = None if body is None else GatewayRecord.parse(body)
            if presence is not None:
                (names.add if presence.is_alive else names.discard)(presence.name)
            elif message.payload:
                foreign.add(last_level(message.topic))
    return names, foreign - names
