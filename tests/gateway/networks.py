"""Gateways in a simulated network, and MQTT clients that connect to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import Any, cast

from hbroker.config import GatewayLimits, GatewaySettings, ListenerSettings, WorkspaceQuotas
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.policy import Policy
from hbroker.gateway.control import Gateway
from hbroker.gateway.native_api import (
    ClosedEvent,
    ConnectEvent,
    MqttEvent,
    NativeApi,
    SubscribeEvent,
    SubscribeOptions,
    UnsubscribeEvent,
    WillMessage,
)
from hbroker.sim.network import World
from tests.gateway.fakes import FakeNativeApi, FakeSession
from tests.network.networks import Tree

SECOND = 1_000_000
_numbers = count(1)


@dataclass
class FakeGateway:
    """One gateway process."""

    tree: Tree
    name: str
    policy: Policy = field(default_factory=FilePolicy)
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    key: bytes = b""
    clock_ahead_us: int = 0
    workspaces: tuple[str, ...] = ("",)
    """Of the listeners, by their numbers."""
    quotas: tuple[WorkspaceQuotas, ...] = ()

    def __post_init__(self) -> None:
        self.world: World = self.tree.world
        self.native_api = FakeNativeApi(self.world)
        listeners = (ListenerSettings(("127.0.0.1", 1883), workspace=each) for each in self.workspaces)
        self.settings = GatewaySettings(
            self.name,
            self.tree.root.address,
            tuple(listeners),
            limits=self.limits,
            join_key=self.key,
            workspaces=self.quotas,
        )
        shared = self.native_api.hosts[0]
        self.control = self.native_api.gateway = Gateway(
            self.settings,
            cast(NativeApi, self.native_api),
            self.world.random,
            self.policy,
            run=self.world.random.getrandbits(63),
            publisher=shared.publisher,
            unix_offset_us=self.clock_ahead_us,
            version="0",
        )
        self.native_api.is_set_up = True
        self.control.start(self.world.now)
        self.settle()

    def ready(self) -> FakeGateway:
        """Waits until the gateway accepts clients."""
        self.world.run_until(lambda: self.control.is_ready)
        self.control.announce(self.world.now, ("mqtt://127.0.0.1:1883",))
        self.settle()
        self.world.run(SECOND // 5)
        return self

    def tell(self, event: MqttEvent) -> None:
        self.control.handle_mqtt(self.world.now, event)
        self.settle()

    def settle(self) -> None:
        shared = self.native_api.hosts[0]
        shared.has_decided = True
        self.world.drive(shared)
        self.native_api.settle_others(shared)

    def begin(self, client: str, **fields: Any) -> Client:
        """Sends a CONNECT and returns at once."""
        number = next(_numbers)
        fields = {"version": 5, "listener": 0, "peer": ("192.0.2.1", 4000), **fields}
        connected = Client(self, number, client)
        self.tell(ConnectEvent(connection=number, client_id=client, **fields))
        return connected

    def connect(self, client: str, **fields: Any) -> Client:
        """Sends a CONNECT and waits for its CONNACK."""
        connected = self.begin(client, **fields)
        self.world.run_until(lambda: connected.is_answered)
        assert connected.is_accepted, connected.refused
        return connected

    def connect_and_close_before_connack(self, client: str, witness: FakeGateway, **fields: Any) -> None:
        """Sends a CONNECT. The client closes the connection before CONNACK, once `witness` has received
        the claim."""
        records, heard = witness.control._context.records, list[str]()
        claimed = records.claimed

        def listen(now: int, client: str) -> None:
            heard.append(client)
            claimed(now, client)

        records.claimed = listen  # type: ignore[method-assign]
        trying = self.begin(client, **fields)
        self.world.run_until(lambda: bool(heard) or trying.is_answered)
        records.claimed = claimed  # type: ignore[method-assign]
        assert heard == [client]
        assert not trying.is_answered
        trying.drop()

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publishes as one of the gateway's clients would."""
        sequence = self.native_api.member(0).publish(topic, payload, qos, retain)
        assert sequence is not None
        self.settle()

    def kill(self) -> None:
        self.native_api.kill()


@dataclass
class Client:
    """An MQTT client, as its gateway sees it."""

    gateway: FakeGateway
    number: int
    name: str
    packet_ids: Any = field(default_factory=lambda: count(1))

    @property
    def native_api(self) -> FakeNativeApi:
        return self.gateway.native_api

    @property
    def is_accepted(self) -> bool:
        return self.number in self.native_api.accepted

    @property
    def is_answered(self) -> bool:
        return self.is_accepted or self.number in self.native_api.refused

    @property
    def refused(self) -> int | None:
        return self.native_api.refused.get(self.number)

    @property
    def closed(self) -> int | None:
        return self.native_api.closed.get(self.number)

    @property
    def is_present(self) -> bool:
        return self.native_api.accepted[self.number].session_present

    @property
    def session(self) -> FakeSession:
        return self.native_api.sessions[self.native_api.accepted[self.number].session]

    @property
    def taken(self) -> list[tuple[str, bytes]]:
        return [(topic, payload) for topic, payload, _ in self.session.taken]

    def begin_subscribe(self, *filters: str, qos: int = 1, identifier: int = 0, **options: Any) -> int:
        packet_id: int = next(self.packet_ids)
        wanted = tuple((filter, SubscribeOptions(qos, **options)) for filter in filters)
        self.gateway.tell(SubscribeEvent(self.number, packet_id, wanted, identifier))
        return packet_id

    def subscribe(self, *filters: str, qos: int = 1, **options: Any) -> list[int]:
        """Subscribes, and returns the codes of the SUBACK."""
        packet_id = self.begin_subscribe(*filters, qos=qos, **options)
        self.gateway.world.run_until(lambda: (self.number, packet_id) in self.native_api.subacks)
        return self.native_api.subacks[self.number, packet_id]

    def unsubscribe(self, *filters: str) -> list[int]:
        packet_id: int = next(self.packet_ids)
        self.gateway.tell(UnsubscribeEvent(self.number, packet_id, filters))
        self.gateway.world.run_until(lambda: (self.number, packet_id) in self.native_api.unsubacks)
        return self.native_api.unsubacks[self.number, packet_id]

    def drop(self) -> None:
        """Breaks the connection."""
        self._end(ClosedEvent(self.number, "lost"))

    def disconnect(self, reason: int = 0, session_expiry_s: int | None = None) -> None:
        self._end(ClosedEvent(self.number, "client", reason, session_expiry_s))

    def _end(self, event: ClosedEvent) -> None:
        if self.is_accepted:
            self.session.connection = None
        self.gateway.tell(event)


def two_gateways(
    seed: int = 1, subtrees: tuple[str, ...] = ("home",), **fields: Any
) -> tuple[Tree, FakeGateway, FakeGateway]:
    """A network with two gateways that accept clients."""
    tree = Tree.grow(seed, subtrees)
    one = FakeGateway(tree, "one", **fields).ready()
    return tree, one, FakeGateway(tree, "two", **fields).ready()


__all__ = ["SECOND", "Client", "FakeGateway", "WillMessage", "two_gateways"]
