"""Ten seconds in the house: every device publishes, and watchers with wildcard filters count their messages.

A watcher's filter spans several owners, so its count shows that a subscription reaches all of them. Each
watcher has its own connection, as a separate program would.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import hbroker
from hbroker.demo.devices import Device

__all__ = ["FILTERS", "Progress", "live"]

FILTERS: Final = (("home/#", 0), ("home/+/temperature", 1), ("home/outside/#", 1), ("home/office/#", 0))
"""Filter and QoS of each watcher."""

_REFRESH_S: Final = 0.25
_SETTLE_S: Final = 1.0


@dataclass(slots=True)
class Watch:
    """The messages of one watcher."""

    filter: str
    qos: int
    owners: tuple[str, ...] = ()
    received: int = 0


@dataclass(slots=True)
class Progress:
    """The progress of the demo."""

    seconds: float
    elapsed: float = 0.0
    published: Counter[int] = field(default_factory=Counter)
    """Published messages, by QoS."""
    failed: int = 0
    watches: list[Watch] = field(default_factory=list)
    latest: dict[str, bytes] = field(default_factory=dict)
    """The last payload on each topic."""


async def live(
    root: str,
    households: Sequence[Sequence[Device]],
    seconds: float,
    show: Callable[[Progress], None],
    look: Callable[[], None],
) -> Progress:
    """Runs the house. Each household of devices has one connection. `show` is called several times a second.

    `look` is called in a thread when the devices are silent and the watchers are still connected. Raises
    hbroker.HBrokerError if the network does not answer.
    """
    progress = Progress(seconds)
    async with AsyncExitStack() as stack:
        watching = [await _watch(stack, root, filter, qos, progress) for filter, qos in FILTERS]
        clients = [await stack.enter_async_context(hbroker.connect(root)) for _ in households]
        async with asyncio.TaskGroup() as tasks:
            readers = [tasks.create_task(_read(messages, watch, progress)) for messages, watch in watching]
            deadline = time.monotonic() + seconds
            async with asyncio.TaskGroup() as publishing:
                publishing.create_task(_show(progress, deadline, show))
                for client, devices in zip(clients, households, strict=True):
                    for device in devices:
                        publishing.create_task(_publish(client, device, deadline, progress))
            for client in clients:
                await client.drain()
            await _settle(progress)
            await asyncio.to_thread(look)
            for reader in readers:
                reader.cancel()
    progress.elapsed = seconds
    show(progress)
    return progress


async def _watch(
    stack: AsyncExitStack, root: str, filter: str, qos: int, progress: Progress
) -> tuple[hbroker.Subscription, Watch]:
    client = await stack.enter_async_context(hbroker.connect(root))
    messages = await stack.enter_async_context(client.subscribe(filter, qos=qos))
    watch = Watch(filter, qos, messages.owners)
    progress.watches.append(watch)
    return messages, watch


async def _read(messages: hbroker.Subscription, watch: Watch, progress: Progress) -> None:
    async for message in messages:
        watch.received += 1
        progress.latest[message.topic] = message.payload


async def _publish(client: hbroker.Client, device: Device, deadline: float, progress: Progress) -> None:
    due = time.monotonic()
    while due < deadline:
        await asyncio.sleep(max(due - time.monotonic(), 0.0))
        due += device.period
        try:
            await client.publish(device.topic, device.read(), qos=device.qos, retain=device.retain)
        except hbroker.HBrokerError:
            progress.failed += 1
        else:
            progress.published[device.qos] += 1


async def _show(progress: Progress, deadline: float, show: Callable[[Progress], None]) -> None:
    while (left := deadline - time.monotonic()) > 0:
        progress.elapsed = progress.seconds - left
        show(progress)
        await asyncio.sleep(min(_REFRESH_S, left))


async def _settle(progress: Progress) -> None:
    """Waits until no more messages arrive, for a second at most: the last ones are still in flight."""
    deadline = time.monotonic() + _SETTLE_S
    received = -1
    while time.monotonic() < deadline and received != (now := sum(w.received for w in progress.watches)):
        received = now
        await asyncio.sleep(0.1)
