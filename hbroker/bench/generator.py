"""The connected clients of a load, in this process.

Subscribers connect first, so that every message has its subscribers. One thread of the native core runs all
clients. This thread only waits, and runs the controls if there are some.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hbroker._native import LoadGenerator
from hbroker.bench.controls import Controls
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import open_many_files, sharpen_sleep
from hbroker.runtime.address import listen_for
from hbroker.runtime.client.dispatcher import config_of
from hbroker.runtime.client.identity import Identity

if TYPE_CHECKING:
    from hbroker._native import Credentials, LoadClientPool, LoadReport
    from hbroker.bench.plan import Address, Plan, Transport, Trust

__all__ = ["Generator", "generator"]

_PATIENCE_S: Final = 15.0


class Generator:
    """A connected load. Made by `generator`."""

    def __init__(self, plan: Plan, native: LoadGenerator, controls: Controls | None) -> None:
        self.plan = plan
        self._native = native
        self._controls = controls

    def start(self) -> None:
        """Publishers publish from now on."""
        self._native.start()

    def stop(self) -> None:
        """Publishers stop publishing."""
        self._native.stop()

    def forget_times(self) -> None:
        """Resets the counts of latencies."""
        self._native.forget_times()

    def run(self, seconds: float) -> None:
        """Lets the load run. Raises NoAnswer if a connection ended."""
        if self._controls is not None:
            self._controls.run(seconds)
        else:
            time.sleep(seconds)
        if (fault := self._native.fault) is not None:
            raise NoAnswer(f"a connection of the load ended: {fault}")

    def report(self) -> LoadReport:
        """The counters now."""
        return self._native.report()


@contextmanager
def generator(
    plan: Plan, address: Address, trust: Trust | None = None, credentials: Credentials | None = None
) -> Iterator[Generator]:
    """Connects a load to a broker for as long as the context lasts. Raises OSError, NoAnswer.

    `trust`: for MQTT over TLS. `credentials`: with which hbroker's own protocol is sealed; None: it is not.
    """
    open_many_files()
    sharpen_sleep()  # threads that start from now on inherit it
    shape = plan.shape
    native = LoadGenerator(
        groups=[plan.pace_of(group) for group in shape.groups],
        subscribers=[(first, count) for _, first, count in shape.subscribers],
        payload=plan.payload,
        qos=plan.qos,
        topics=plan.topics,
        polls=plan.polls,
        tls=trust,
    )
    controls = Controls(address, _PATIENCE_S) if plan.transport == "hbroker" else None
    try:
        _connect(plan, native, controls, address, credentials)
        yield Generator(plan, native, controls)
    finally:
        if controls is not None:
            controls.close()
        native.shutdown()


def _connect(
    plan: Plan,
    native: LoadGenerator,
    controls: Controls | None,
    address: Address,
    credentials: Credentials | None,
) -> None:
    run = os.urandom(4).hex()
    names = _Names.of(plan, run)
    pools = _pools(plan, native, controls, address, credentials)
    parts: list[tuple[int, int | None, int | None]] = [
        *((name, None, number) for number, (name, _, _) in enumerate(plan.shape.subscribers)),
        *((name, number, None) for number, name in enumerate(plan.shape.publishers)),
    ]
    for index, (number, publishes, subscribes) in enumerate(parts):
        client = f"bench-{run}-{index}"
        topics = [] if publishes is None else names.topics(number)
        filter = None if subscribes is None else names.filter(number)
        if controls is None:
            native.add_connection(
                plan.transport,
                address,
                name=client,
                topics=topics,
                filter=filter,
                publishes=publishes,
                subscribes=subscribes,
                timeout_s=_PATIENCE_S,
            )
            continue
        identity = replace(Identity.of(client), credentials=credentials)
        if pools and subscribes is not None and filter is not None:
            # In rotation: a subscriber's next copy is at another socket, as with separate clients.
            controls.join(pools[subscribes % len(pools)], identity, subscribes)
            controls.subscribe(filter, plan.qos)
            continue
        member = native.add_client(
            config_of(identity),
            listen_for(address),
            topics=topics,
            publishes=publishes,
            subscribes=subscribes,
        )
        controls.add(member, identity)
        if filter is None:
            # Usually one zone covers all topics. Any other zone is looked up when it is needed.
            controls.find(topics[0])
        else:
            controls.subscribe(filter, plan.qos)
    if controls is not None:
        controls.settle()


def _pools(
    plan: Plan,
    native: LoadGenerator,
    controls: Controls | None,
    address: Address,
    credentials: Credentials | None,
) -> Sequence[LoadClientPool]:
    """The sockets that subscribers share; empty if each has its own."""
    if controls is None or plan.sockets is None:
        return []
    config = config_of(replace(Identity.of(), credentials=credentials))
    pools = [
        native.add_client_pool(config, listen_for(address))
        for _ in range(min(plan.sockets, len(plan.shape.subscribers)))
    ]
    for pool in pools:
        controls.add_client_pool(pool)
    return pools


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of topics: 24 bytes below the root, with a random part for each run.

    So two runs at one broker do not meet. If a publisher has several topics, their numbers are one more
    level.
    """

    transport: Transport
    run: str
    subtrees: Sequence[str]
    each: int

    @classmethod
    def of(cls, plan: Plan, run: str) -> _Names:
        """The names for one run of a load."""
        return cls(plan.transport, run, plan.shape.subtrees, plan.topics)

    def topics(self, number: int) -> list[str]:
        """The topics of the publishers with this number."""
        name = self._name(number)
        return [name] if self.each == 1 else [self._join(name, f"{topic:06}") for topic in range(self.each)]

    def filter(self, number: int) -> str:
        """The filter of the subscribers with this number."""
        everything = ">" if self.transport == "nats" else "#"
        return self._name(number) if self.each == 1 else self._join(self._name(number), everything)

    def _name(self, number: int) -> str:
        subtree = self.subtrees[number] if self.subtrees else ""
        levels = ("bench", self.run, f"{number:09}")
        return self._join(subtree, *levels) if subtree else self._join(*levels)

    def _join(self, *levels: str) -> str:
        return ("." if self.transport == "nats" else "/").join(levels)
