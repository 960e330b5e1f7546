"""hbroker: a publish/subscribe network in which every topic has one owner.

Importing this package loads nothing else: each name is loaded when it is first used, so that a command that
needs little starts fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hbroker import sync
    from hbroker._native import VERSION as __version__
    from hbroker._native import Message, filter_is_valid, topic_is_valid, topic_matches
    from hbroker.errors import (
        Backpressure,
        ConfigError,
        HBrokerError,
        InvalidTopic,
        LocalError,
        NotConnected,
        PayloadTooLarge,
        Refused,
        RemoteError,
        SessionTakenOver,
        Unreachable,
    )
    from hbroker.protocol.packets import Reason
    from hbroker.protocol.resolution.lookup import Hop, Resolution
    from hbroker.runtime.client.client import Client, Connecting, connect
    from hbroker.runtime.client.client_pool import ClientPool, PoolClient, client_pool
    from hbroker.runtime.client.identity import Will
    from hbroker.runtime.client.publication import Receipt
    from hbroker.runtime.client.subscription import Subscription

__all__ = [
    "Backpressure",
    "Client",
    "ClientPool",
    "ConfigError",
    "Connecting",
    "HBrokerError",
    "Hop",
    "InvalidTopic",
    "LocalError",
    "Message",
    "NotConnected",
    "PayloadTooLarge",
    "PoolClient",
    "Reason",
    "Receipt",
    "Refused",
    "RemoteError",
    "Resolution",
    "SessionTakenOver",
    "Subscription",
    "Unreachable",
    "Will",
    "__version__",
    "client_pool",
    "connect",
    "filter_is_valid",
    "sync",
    "topic_is_valid",
    "topic_matches",
]

_MODULES: Final = {
    "Client": "hbroker.runtime.client.client",
    "Connecting": "hbroker.runtime.client.client",
    "ClientPool": "hbroker.runtime.client.client_pool",
    "Hop": "hbroker.protocol.resolution.lookup",
    "PoolClient": "hbroker.runtime.client.client_pool",
    "Message": "hbroker._native",
    "Reason": "hbroker.protocol.packets",
    "Receipt": "hbroker.runtime.client.publication",
    "Resolution": "hbroker.protocol.resolution.lookup",
    "Subscription": "hbroker.runtime.client.subscription",
    "Will": "hbroker.runtime.client.identity",
    "connect": "hbroker.runtime.client.client",
    "filter_is_valid": "hbroker._native",
    "client_pool": "hbroker.runtime.client.client_pool",
    "topic_is_valid": "hbroker._native",
    "topic_matches": "hbroker._native",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "sync":
        return import_module("hbroker.sync")
    if name == "__version__":
        value: object = import_module("hbroker._native").VERSION
    else:
        value = getattr(import_module(_MODULES.get(name, "hbroker.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
