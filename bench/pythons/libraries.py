"""The compared clients. Each is used as its documentation does for programs with many messages.

Every publisher sends what `Pace` provides. Every subscriber gives each payload to `ReceiveChecker`. If a
library batches messages by itself (nats-py, Zenoh, hbroker), it may do so.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import hbroker
from bench.contestants.brokers import Broker
from bench.contestants.networks import Node
from bench.contestants.peers import Mosquitto, NatsCore
from bench.pythons.board import Pace, ReceiveChecker
from bench.pythons.router import ZenohRouter, client_config
from hbroker import sync
from hbroker.bench.plan import Address

if TYPE_CHECKING:
    import zenoh
    from nats.aio.msg import Msg
    from paho.mqtt import client as mqtt

_TOPIC: Final = "bench/python"
_SUBJECT: Final = "bench.python"
_READY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Library:
    """A client, or one way to use it.

    `package`: its name in the registry. `publish`, `subscribe`: the function of each process, called with its
    broker's address, the QoS, and its end of the board. `qos`: the levels that make sense for it.
    """

    name: str
    package: str
    broker: Broker
    publish: Callable[[Address, int, Pace], None]
    subscribe: Callable[[Address, int, ReceiveChecker], None]
    qos: frozenset[int] = frozenset({0})

    def version(self) -> str | None:
        """The version of the package and of its broker; None: one of them is not installed."""
        try:
            of_package = hbroker.__version__ if self.package == "hbroker" else version(self.package)
        except PackageNotFoundError:
            return None
        of_broker = self.broker.version()
        if of_broker is None:
            return None
        client = f"{self.package} {of_package}"
        return client if self.package == self.broker.name else f"{client} with {self.broker.name} {of_broker}"


# hbroker


def _publish_by(
    publish: Callable[[hbroker.Client, list[bytes], int], Awaitable[None]],
    address: Address,
    qos: int,
    pace: Pace,
) -> None:
    """Publishes all bursts. `publish`: publishes one burst."""

    async def run() -> None:
        async with hbroker.connect(_place(address)) as client:
            async for burst in pace.bursts_in_turn():
                await publish(client, burst, qos)
            await client.drain()
            pace.finish()

    asyncio.run(run())


async def _each_tried(client: hbroker.Client, burst: list[bytes], qos: int) -> None:
    for payload in burst:
        while True:
            try:
                client.try_publish(_TOPIC, payload, qos=qos)
                break
            except hbroker.Backpressure:
                await asyncio.sleep(0.001)


async def _each_awaited(client: hbroker.Client, burst: list[bytes], qos: int) -> None:
    for payload in burst:
        await client.publish(_TOPIC, payload, qos=qos)


async def _all_at_once(client: hbroker.Client, burst: list[bytes], qos: int) -> None:
    await client.publish_many([(_TOPIC, payload) for payload in burst], qos=qos)


def _subscribe(address: Address, qos: int, checker: ReceiveChecker) -> None:
    async def run() -> None:
        async with (
            hbroker.connect(_place(address)) as client,
            client.subscribe(_TOPIC, qos=qos) as messages,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(_close_in_time(messages, checker))
            checker.begin()
            async for message in messages:
                checker.take(message.payload)

    asyncio.run(run())


async def _close_in_time(messages: hbroker.Subscription, checker: ReceiveChecker) -> None:
    await checker.wait_in_turn()
    await messages.close()


def _publish_blocking(address: Address, qos: int, pace: Pace) -> None:
    with sync.connect(_place(address)) as client:
        for burst in pace.bursts():
            for payload in burst:
                while True:
                    try:
                        client.try_publish(_TOPIC, payload, qos=qos)
                        break
                    except hbroker.Backpressure:
                        threading.Event().wait(0.001)
        client.drain()
        pace.finish()


def _subscribe_blocking(address: Address, qos: int, checker: ReceiveChecker) -> None:
    def close_in_time() -> None:
        checker.wait()
        messages.close()

    with sync.connect(_place(address)) as client, client.subscribe(_TOPIC, qos=qos) as messages:
        closer = threading.Thread(target=close_in_time)
        closer.start()
        checker.begin()
        for message in messages:
            checker.take(message.payload)
        closer.join()


def _place(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


# paho-mqtt: its own thread serves the socket. Its bound of 20 messages in flight stays: with each
# acknowledgement it searches all messages in flight.


def _publish_paho(address: Address, qos: int, pace: Pace) -> None:
    client = _paho(address)
    last: mqtt.MQTTMessageInfo | None = None
    for burst in pace.bursts():
        for payload in burst:
            last = client.publish(_TOPIC, payload, qos)
    if last is not None:
        last.wait_for_publish(_READY_S)
    pace.finish()
    client.disconnect()
    client.loop_stop()


def _subscribe_paho(address: Address, qos: int, checker: ReceiveChecker) -> None:
    client = _paho(address)
    client.on_message = lambda _client, _data, message: checker.take(message.payload)
    client.on_subscribe = lambda *_: checker.begin()
    client.subscribe(_TOPIC, qos)
    checker.wait()
    client.disconnect()
    client.loop_stop()


def _paho(address: Address) -> mqtt.Client:
    from paho.mqtt import client as mqtt
    from paho.mqtt.enums import CallbackAPIVersion

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    is_up = threading.Event()
    client.on_connect = lambda *_: is_up.set()
    client.connect(*address)
    client.loop_start()
    if not is_up.wait(_READY_S):
        raise TimeoutError("mosquitto did not accept the client")
    return client


# nats-py: its connection collects messages until the event loop's next iteration


def _publish_nats(address: Address, _qos: int, pace: Pace) -> None:
    import nats

    async def run() -> None:
        connection = await nats.connect(f"nats://{_place(address)}")
        async for burst in pace.bursts_in_turn():
            for payload in burst:
                await connection.publish(_SUBJECT, payload)
        await connection.flush()
        pace.finish()
        await connection.close()

    asyncio.run(run())


def _subscribe_nats(address: Address, _qos: int, checker: ReceiveChecker) -> None:
    import nats

    async def take(message: Msg) -> None:
        checker.take(message.data)

    async def run() -> None:
        connection = await nats.connect(f"nats://{_place(address)}")
        await connection.subscribe(_SUBJECT, cb=take)
        await connection.flush()
        checker.begin()
        await checker.wait_in_turn()
        await connection.close()

    asyncio.run(run())


# eclipse-zenoh: its own threads, which call callbacks from a Python thread


def _publish_zenoh(address: Address, _qos: int, pace: Pace) -> None:
    import zenoh

    with zenoh.open(client_config(address)) as session:
        publisher = session.declare_publisher(_TOPIC, congestion_control=zenoh.CongestionControl.BLOCK)
        status: Any = publisher  # its stub declares the status as a bool
        while not status.matching_status.matching:  # the router does not know the subscriber yet
            threading.Event().wait(0.01)
        for burst in pace.bursts():
            for payload in burst:
                publisher.put(payload)
        pace.finish()


def _subscribe_zenoh(address: Address, _qos: int, checker: ReceiveChecker) -> None:
    import zenoh

    def take(sample: zenoh.Sample) -> None:
        checker.take(sample.payload.to_bytes())

    with zenoh.open(client_config(address)) as session:
        session.declare_subscriber(_TOPIC, take)
        checker.begin()
        checker.wait()


_BOTH: Final = frozenset({0, 1})

LIBRARIES: Final = (
    Library("hbroker, publish", "hbroker", Node(), partial(_publish_by, _each_awaited), _subscribe),
    Library("hbroker, try_publish", "hbroker", Node(), partial(_publish_by, _each_tried), _subscribe, _BOTH),
    Library(
        "hbroker, publish_many",
        "hbroker",
        Node(),
        partial(_publish_by, _all_at_once),
        _subscribe,
        _BOTH,
    ),
    Library("hbroker.sync, try_publish", "hbroker", Node(), _publish_blocking, _subscribe_blocking, _BOTH),
    Library("paho-mqtt", "paho-mqtt", Mosquitto(), _publish_paho, _subscribe_paho, _BOTH),
    Library("nats-py", "nats-py", NatsCore(), _publish_nats, _subscribe_nats),
    Library("eclipse-zenoh", "eclipse-zenoh", ZenohRouter(), _publish_zenoh, _subscribe_zenoh),
)
