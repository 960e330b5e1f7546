"""The cost of many idle sessions: the broker's memory for each, and its CPU time while they are idle.

A session is a client with one subscription to a topic of its own. With hbroker's own protocol they are
clients of one `ClientPool`; with other protocols each has a connection. At the end every session must still
exist: with hbroker's protocol, a message to each must be acknowledged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from hbroker._native import LoadGenerator
from hbroker._proto import packet_pb2 as pb
from hbroker.bench.launching import NoAnswer
from hbroker.bench.resource_totals import ResourceTotals
from hbroker.runtime.client.client_pool import ClientPool, client_pool

if TYPE_CHECKING:
    from hbroker.bench.brokers import Broker
    from hbroker.bench.plan import Transport, Trust

__all__ = ["Sessions", "measure_sessions"]

T = TypeVar("T")

_AT_ONCE: Final = 128
_SETTLE_S: Final = 1.0
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Sessions:
    """The result.

    `alive`: the sessions that still existed at the end. `bytes_each`: the growth of the broker's memory.
    `idle_cpu`: the broker's share of a CPU while all were idle. None: the broker's processes are unknown.
    """

    transport: Transport
    sessions: int
    alive: int
    connected_per_s: float
    broker_cpu_s: float | None
    bytes_each: float | None
    broker_rss_bytes: int | None
    idle_cpu: float | None
    generator_cpu: float
    others_cpu: float | None

    def to_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {"layout": "sessions", **asdict(self)}


def measure_sessions(
    transport: Transport, broker: Broker, count: int, idle_s: float, trust: Trust | None = None
) -> Sessions:
    """Connects this number of sessions, and leaves them idle for this time. Raises NoAnswer, OSError."""
    return asyncio.run(_measure(transport, broker, count, idle_s, trust))


class _Clients(Protocol):
    """The connected clients."""

    async def connect(self, count: int) -> None:
        """Connects this number of clients, each with its subscription."""

    async def alive(self) -> int:
        """The number of clients that are still connected."""


async def _measure(
    transport: Transport, broker: Broker, count: int, idle_s: float, trust: Trust | None
) -> Sessions:
    async with _clients(transport, broker, count, trust) as clients:
        first = ResourceTotals.now(broker.pids)
        await clients.connect(count)
        connected = ResourceTotals.now(broker.pids)
        await asyncio.sleep(_SETTLE_S)
        before = ResourceTotals.now(broker.pids)
        await asyncio.sleep(idle_s)
        last = ResourceTotals.now(broker.pids)
        alive = await clients.alive()
    is_known = bool(broker.pids)
    connecting, idle, whole = first.until(connected), before.until(last), first.until(last)
    return Sessions(
        transport=transport,
        sessions=count,
        alive=alive,
        connected_per_s=count / connecting.seconds,
        broker_cpu_s=connecting.broker_cpu_s if is_known else None,
        bytes_each=whole.grown_bytes / count if is_known else None,
        broker_rss_bytes=last.resident if is_known else None,
        idle_cpu=idle.broker_cpu if is_known else None,
        generator_cpu=idle.ours_cpu,
        others_cpu=idle.others_cpu if is_known else None,
    )


@asynccontextmanager
async def _clients(
    transport: Transport, broker: Broker, count: int, trust: Trust | None
) -> AsyncIterator[_Clients]:
    run = os.urandom(4).hex()
    if transport == "hbroker":
        authority, token = broker.authority or None, broker.token or None
        async with client_pool(
            broker.address, timeout=_PATIENCE_S, authority=authority, token=token
        ) as devices:
            yield _NativeClients(devices, run)
        return
    # One publisher that never connects: nothing is published.
    native = LoadGenerator(
        groups=[(1, None, None)], subscribers=[(0, 1)] * count, payload=16, qos=0, tls=trust
    )
    try:
        yield _MqttClients(native, transport, broker, run)
    finally:
        native.shutdown()


class _NativeClients:
    """Clients of hbroker's own protocol."""

    def __init__(self, devices: ClientPool, run: str) -> None:
        self._devices = devices
        self._run = run
        self._count = 0

    async def connect(self, count: int) -> None:
        await _in_turns(self._open(number) for number in range(count))
        self._count = count

    async def alive(self) -> int:
        publisher = await self._devices.connect()
        publish = (publisher.publish(self._topic(number), qos=1) for number in range(self._count))
        receipts = await _in_turns(publish)
        return sum(receipt.reason == pb.REASON_SUCCESS for receipt in receipts)

    async def _open(self, number: int) -> None:
        member = await self._devices.connect()
        await member.subscribe(self._topic(number), qos=1)

    def _topic(self, number: int) -> str:
        return f"bench/{self._run}/{number:09}"


class _MqttClients:
    """Clients over TCP."""

    def __init__(self, native: LoadGenerator, transport: Transport, broker: Broker, run: str) -> None:
        self._native = native
        self._transport = transport
        self._address = broker.address
        self._run = run
        self._count = 0

    async def connect(self, count: int) -> None:
        separator = "." if self._transport == "nats" else "/"
        for number in range(count):
            self._native.add_connection(
                self._transport,
                self._address,
                name=f"bench-{self._run}-{number}",
                filter=separator.join(("bench", self._run, f"{number:09}")),
                subscribes=number,
                timeout_s=_PATIENCE_S,
            )
        self._count = count

    async def alive(self) -> int:
        if (fault := self._native.fault) is not None:
            raise NoAnswer(f"a session ended: {fault}")
        return self._count


async def _in_turns(tasks: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits all, at most `_AT_ONCE` at the same time."""
    found: list[T] = []
    waiting: list[Awaitable[T]] = []
    for task in tasks:
        waiting.append(task)
        if len(waiting) == _AT_ONCE:
            found += await asyncio.gather(*waiting)
            waiting = []
    return [*found, *await asyncio.gather(*waiting)]
