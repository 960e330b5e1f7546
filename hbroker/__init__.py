"""hbroker: a publish/subscribe network in which every topic has one owner (docs/architecture.md).

    clients, cli, demo            the commands hpub and hsub; hbroker; the demonstration
    bench, capture, sim           measures brokers; decodes datagrams; runs a network in virtual time
    mosquitto                     reads the configuration of mosquitto
    sync                          the blocking API; `connect` and its `Client` are the one for asyncio
    runtime                       the asyncio shell: processes, files, clocks, signals
    gateway                       decisions for MQTT clients, sans-IO
    protocol, topology            decisions of nodes and clients, sans-IO; a network as a file
    identity                      certificates: the network's authority, and the nodes that it names
    config, hostnames, subtree    settings of a process; DNS; topic prefixes
    storage                       files that survive a kill, a full disk, a loss of power
    addresses, errors             addresses of UDP, and their text; errors
    properties, _proto            properties of a message; the generated protobuf classes
    workspace                     names of topics in workspaces
    spark_analysis                load analysis; it reads files and imports nothing of hbroker
    _native                       the native core, in Rust, which moves every message

A line imports only from lines below it. This package exports the public API and loads each name when it is
first used, so a command that needs few names starts fast.
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
    from hbroker.protocol.results import Hop, Resolution
    from hbroker.runtime.client.async_client import Client, Connecting, connect
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
    "Client": "hbroker.runtime.client.async_client",
    "Connecting": "hbroker.runtime.client.async_client",
    "ClientPool": "hbroker.runtime.client.client_pool",
    "Hop": "hbroker.protocol.results",
    "PoolClient": "hbroker.runtime.client.client_pool",
    "Message": "hbroker._native",
    "Reason": "hbroker.protocol.packets",
    "Receipt": "hbroker.runtime.client.publication",
    "Resolution": "hbroker.protocol.results",
    "Subscription": "hbroker.runtime.client.subscription",
    "Will": "hbroker.runtime.client.identity",
    "connect": "hbroker.runtime.client.async_client",
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
