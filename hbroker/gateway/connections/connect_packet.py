"""What the CONNECT packet alone decides: version, client id, limits (MQTT 5 §3.1, MQTT 3.1.1 §3.1).

The policy decides who the client is, and whether it may connect.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from hbroker.config import GatewayLimits
from hbroker.gateway.access.acl_file import is_writable
from hbroker.gateway.access.policy import Refusal
from hbroker.gateway.native_api import ConnectEvent
from hbroker.gateway.reason_codes import MQTT_5, Code
from hbroker.protocol.sessions.options import LONGEST_EXPIRY_S
from hbroker.workspace import ROOT

__all__ = ["LONGEST_CLIENT_ID", "ConnectRequest", "admit"]

MQTT_3_1: Final = 3
_VERSIONS: Final = frozenset({MQTT_3_1, 4, MQTT_5})
LONGEST_CLIENT_ID: Final = 512
"""Bytes. MQTT requires 23; longer ones are common. The client id is part of a claim, and a claim leaves in
one datagram."""


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """The result of an admitted CONNECT.

    `expiry_s`: the session expiry that is granted. `assigned`: CONNACK has the client id. `keep_alive_s`: the
    server keep alive of CONNACK; None: the client's own.
    """

    client_id: str
    expiry_s: int
    assigned: bool = False
    keep_alive_s: int | None = None
    changed_expiry_s: int | None = None
    """The session expiry of CONNACK if it is less than the client asked for."""


def admit(
    event: ConnectEvent, limits: GatewayLimits, open_connections: int, random: Random
) -> ConnectRequest | Refusal:
    """The settings of a CONNECT that is admitted, or the refusal."""
    if event.version not in _VERSIONS:
        return Refusal(Code.UNSUPPORTED_PROTOCOL_VERSION)
    if open_connections >= limits.connections:
        return Refusal(Code.QUOTA_EXCEEDED, "this gateway has all the connections that it takes")
    wrong = _wrong_id(event)
    if wrong is not None:
        return Refusal(Code.CLIENT_IDENTIFIER_NOT_VALID, wrong)
    if event.will is not None and not is_writable(event.will.topic):
        return Refusal(Code.NOT_AUTHORIZED, "the will's topic is the network's own")
    asked = _asked_expiry(event)
    expiry_s = min(asked, limits.session_expiry)
    return ConnectRequest(
        client_id=event.client_id or f"auto-{random.getrandbits(128):032x}",
        expiry_s=expiry_s,
        assigned=not event.client_id,
        keep_alive_s=_other_keep_alive(event, limits),
        changed_expiry_s=expiry_s if expiry_s != asked else None,
    )


def _wrong_id(event: ConnectEvent) -> str | None:
    if len(event.client_id.encode()) > LONGEST_CLIENT_ID:
        return f"a client id has at most {LONGEST_CLIENT_ID} bytes here"
    if event.client_id.startswith(f"{ROOT}/"):
        return f"a client id does not begin with {ROOT}/"  # So begin the names of those in workspaces.
    if event.client_id:
        return None
    if event.version == MQTT_3_1 or (event.version < MQTT_5 and not event.clean_start):
        return "a client id is needed"  # MQTT-3.1.3-8 of 3.1.1: no client could ask for that session again
    return None


def _asked_expiry(event: ConnectEvent) -> int:
    if event.version >= MQTT_5:
        return event.session_expiry_s
    return 0 if event.clean_start else LONGEST_EXPIRY_S


def _other_keep_alive(event: ConnectEvent, limits: GatewayLimits) -> int | None:
    most = limits.keep_alive
    return most if most and (not event.keep_alive_s or event.keep_alive_s > most) else None
