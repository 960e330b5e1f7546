"""The objects that the classes of one gateway share: the native API, the outbox, the sessions' records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from hbroker.config import GatewayLimits, GatewaySettings
from hbroker.gateway.access.access_lists import AccessLists
from hbroker.gateway.access.policy import Policy
from hbroker.gateway.connections.connection import ConnectionTable
from hbroker.gateway.events import EventQueue
from hbroker.gateway.native_api import NativeApi
from hbroker.gateway.network_clients import NetworkClients
from hbroker.gateway.outbox import Outbox
from hbroker.gateway.records.client_id_claims import StampClock
from hbroker.gateway.records.gateways import GatewayRecords
from hbroker.gateway.records.session_records import SessionRecords

__all__ = ["GatewayContext"]


@dataclass(slots=True)
class GatewayContext:
    """The shared objects of one gateway, for its whole run.

    A reload replaces `limits` and `policy`, and in `settings` the listeners and the quotas of workspaces.
    """

    settings: GatewaySettings
    native_api: NativeApi
    random: Random
    ids: Iterator[int]
    clock: StampClock
    gateways: GatewayRecords
    network_clients: NetworkClients
    outbox: Outbox
    records: SessionRecords
    policy: Policy
    access: AccessLists
    limits: GatewayLimits
    connection_table: ConnectionTable = field(default_factory=ConnectionTable)
    counts: dict[str, int] = field(default_factory=dict)
    """Events that the decisions count, by name, since the start."""
    events: EventQueue = field(default_factory=EventQueue)

    @property
    def key(self) -> bytes:
        """The network's join key; empty if the network has none."""
        return self.settings.join_key

    def count(self, name: str) -> None:
        """Adds one to the counter `name`."""
        self.counts[name] = self.counts.get(name, 0) + 1
