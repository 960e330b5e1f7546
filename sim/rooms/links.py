"""Connections of real clients: a native one is a client of a pool, the other an MQTT connection to a gateway.

Both are a `Link`: it publishes and reports the result, subscribes, disconnects, or breaks off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Final, Protocol, TypeAlias

from hbroker.errors import Backpressure, HBrokerError
from hbroker.protocol.packets import Reason, reason_name
from hbroker.runtime.client.client_pool import ClientPool, PoolClient
from hbroker.runtime.client.identity import Will
from hbroker.runtime.client.subscription import Subscription

from .mqtt.client import ConnectionFailed, MqttClient
from .mqtt.packets import ReceivedPublish
from .mqtt.packets import Will as MqttWill
from .plan import Client, Stream

__all__ = ["FAILURES", "Link", "Links", "OnLost", "OnMessage", "OnResult"]

OnResult: TypeAlias = Callable[[bool | None], None]
"""Called with whether the network accepted a message of QoS 1 or 2; None: the client ended before that was
known."""
OnMessage: TypeAlias = Callable[[str, bytes], None]
OnLost: TypeAlias = Callable[[str], None]

FAILURES: Final = (ConnectionFailed, HBrokerError, OSError)
"""What `Links.open` raises if the network is at fault."""

_TIMEOUT_S: Final = 15.0
_GOODBYE_S: Final = 2.0
_QUEUE: Final = 200_000
_FIRST_FAILURE: Final = 0x80
_ACCEPTED: Final = (Reason.REASON_SUCCESS, Reason.REASON_NO_MATCHING_SUBSCRIBERS)


class Link(Protocol):
    """The connection of one client."""

    def publish(self, stream: Stream, payload: bytes, on_result: OnResult) -> bool:
        """Publishes a message. False: there is no room now. `on_result` is called at QoS 1 and 2."""

    async def subscribe(self, filters: Sequence[str], qos: int, *, no_local: bool) -> None:
        """Returns when every owner has the subscriptions. Raises one of FAILURES."""

    async def close(self) -> None:
        """Disconnects when every message is acknowledged, or after two seconds."""

    def vanish(self) -> None:
        """Breaks off, without DISCONNECT or LEAVE."""


class Links:
    """Opens connections to one network. MQTT clients use the gateways in rotation."""

    def __init__(self, client_pool: ClientPool, gateways: Sequence[tuple[str, int]]) -> None:
        self.refusals: Counter[str] = Counter()
        """Messages that were not accepted, by reason."""
        self._client_pool = client_pool
        self._gateways = cycle(gateways)

    async def open(
        self,
        client: Client,
        run: int,
        will: tuple[Stream, bytes] | None,
        on_message: OnMessage,
        on_lost: OnLost,
    ) -> Link:
        """Opens the connection of this client. `will`: stream and payload. Raises one of FAILURES,
        TimeoutError."""
        name = f"{run:04x}-{client.number}-{client.name.rpartition('/')[2]}"
        if client.is_native:
            registered_will = (
                None if will is None else Will(will[0].topic, will[1], will[0].qos, will[0].retain)
            )
            pool_client = await self._client_pool.connect(client_id=name, will=registered_will)
            return _NativeLink(pool_client, on_message, self.refusals)
        async with asyncio.timeout(_TIMEOUT_S):
            return await _MqttLink.open(next(self._gateways), name, will, on_message, on_lost, self.refusals)


class _NativeLink:
    def __init__(self, pool_client: PoolClient, on_message: OnMessage, refusals: Counter[str]) -> None:
        self._pool_client = pool_client
        self._refusals = refusals
        self._on_message = on_message
        self._reader: asyncio.Task[None] | None = None

    def publish(self, stream: Stream, payload: bytes, on_result: OnResult) -> bool:
        try:
            if stream.qos:
                self._pool_client.publish_then(
                    partial(self._report_result, on_result),
                    stream.topic, payload, qos=stream.qos, retain=stream.retain,
                )  # fmt: skip
            else:
                self._pool_client.try_publish(stream.topic, payload, retain=stream.retain)
        except Backpressure:
            return False
        return True

    async def subscribe(self, filters: Sequence[str], qos: int, *, no_local: bool) -> None:
        subscribing = self._pool_client.subscribe(
            *filters, qos=qos, no_local=no_local, retain_handling=2, queue=_QUEUE, timeout=_TIMEOUT_S
        )
        self._reader = asyncio.create_task(self._read(await subscribing))

    async def close(self) -> None:
        await self._pool_client.close(_GOODBYE_S)
        self._stop_reading()

    def vanish(self) -> None:
        self._pool_client.vanish()
        self._stop_reading()

    def _report_result(self, on_result: OnResult, reason: int | None) -> None:
        if reason is not None and reason not in _ACCEPTED:
            self._refusals[reason_name(reason)] += 1
        on_result(None if reason is None else reason in _ACCEPTED)

    async def _read(self, subscription: Subscription) -> None:
        async for message in subscription:
            self._on_message(message.topic, message.payload)

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()


class _MqttLink:
    def __init__(self, client: MqttClient, refusals: Counter[str]) -> None:
        self._client = client
        self._refusals = refusals

    @classmethod
    async def open(
        cls,
        gateway: tuple[str, int],
        name: str,
        will: tuple[Stream, bytes] | None,
        on_message: OnMessage,
        on_lost: OnLost,
        refusals: Counter[str],
    ) -> _MqttLink:
        def forward(message: ReceivedPublish) -> None:
            on_message(message.topic, message.payload)

        client = MqttClient(forward, on_lost)
        registered_will = (
            None if will is None else MqttWill(will[0].topic, will[1], will[0].qos, will[0].retain)
        )
        try:
            await client.connect(*gateway, name, will=registered_will)
        except BaseException:
            client.abort()
            raise
        return cls(client, refusals)

    def publish(self, stream: Stream, payload: bytes, on_result: OnResult) -> bool:
        return self._client.publish(
            stream.topic, payload, stream.qos, retain=stream.retain,
            on_result=partial(self._report_result, on_result),
        )  # fmt: skip

    async def subscribe(self, filters: Sequence[str], qos: int, *, no_local: bool) -> None:
        async with asyncio.timeout(_TIMEOUT_S):
            for filter in filters:
                await self._client.subscribe(filter, qos, no_local=no_local)

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self._client.drain()
        self._client.close()

    def vanish(self) -> None:
        self._client.abort()

    def _report_result(self, on_result: OnResult, reason: int | None) -> None:
        if reason is not None and reason >= _FIRST_FAILURE:
            self._refusals[f"MQTT {reason:#04x}"] += 1
        on_result(None if reason is None else reason < _FIRST_FAILURE)
