"""A load's clients, connected, in this process.

Subscribers come first, so that nothing is published to nobody. One thread of the native core drives them
all; this one only waits, and takes the controls' turns where there are some.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hbroker._native import LoadGenerator
from hbroker.bench.controls import Controls
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import sharpen_sleep
from hbroker.runtime.address import listen_for
from hbroker.runtime.client.dispatcher import config_of
from hbroker.runtime.client.identity import Identity

if TYPE_CHECKING:
    from hbroker._native import LoadClientPool, LoadReport
    from hbroker.bench.plan import Address, Plan, Transport, Trust

__all__ = ["Generator", "generator"]

_PATIENCE_S: Final = 15.0


class Generator:
    """A load that is connected. Made by `generator`."""

    def __init__(self, plan: Plan, native: LoadGenerator, controls: Controls | None) -> None:
        self.plan = plan
        self._native = native
        self._controls = controls

    def start(self) -> None:
        """Publishers publish from now on."""
        self._native.start()

    def stop(self) -> None:
        """They publish no more."""
        self._native.stop()

    def forget_times(self) -> None:
        """Latencies are counted anew."""
        self._native.forget_times()

    def run(self, seconds: float) -> None:
        """Lets the load run. Raises NoAnswer where a connection ended."""
        if self._controls is not None:
            self._controls.run(seconds)
        else:
            time.sleep(seconds)
        if (fault := self._native.fault) is not None:
            raise NoAnswer(f"a connection of the load ended: {fault}")

    def report(self) -> LoadReport:
        """What was counted, now."""
        return self._native.report()


@contextmanager
def generator(plan: Plan, address: Address, trust: Trust | None = None) -> Iterator[Generator]:
    """Connects a load to a broker for as long as the context lasts. Raises OSError, NoAnswer."""
    _open_many_files()
    sharpen_sleep()  # which threads inherit that are started from now on
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
        _connect(plan, native, controls, address)
        yield Generator(plan, native, controls)
    finally:
        if controls is not None:
            controls.close()
        native.shutdown()


def _connect(plan: Plan, native: LoadGenerator, controls: Controls | None, address: Address) -> None:
    run = os.urandom(4).hex()
    names = _Names.of(plan, run)
    pools = _pools(plan, native, controls, address)
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
        identity = Identity.of(client)
        if pools and subscribes is not None and filter is not None:
            # In turn: who gets a copy after another has it at another socket, as clients apart have.
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
            # One zone has them all, as a rule; any other is found when it is wanted.
            controls.find(topics[0])
        else:
            controls.subscribe(filter, plan.qos)
    if controls is not None:
        controls.settle()


def _pools(
    plan: Plan, native: LoadGenerator, controls: Controls | None, address: Address
) -> Sequence[LoadClientPool]:
    """The sockets that subscribers share; none where each has its own."""
    if controls is None or plan.sockets is None:
        return []
    pools = [
        native.add_client_pool(config_of(Identity.of()), listen_for(address))
        for _ in range(min(plan.sockets, len(plan.shape.subscribers)))
    ]
    for pool in pools:
        controls.add_client_pool(pool)
    return pools


@dataclass(frozen=True, slots=True)
class _Names:
    """What topics are called: 24 bytes at the root's, with a word of their own for each run, so that two runs
    at one broker do not meet. Where a publisher has several, their numbers are one level more."""

    transport: Transport
    run: str
    subtrees: Sequence[str]
    each: int

    @classmethod
    def of(cls, plan: Plan, run: str) -> _Names:
        """For one run of a load."""
        return cls(plan.transport, run, plan.shape.subtrees, plan.topics)

    def topics(self, number: int) -> list[str]:
        """Of the publishers that have this one."""
        name = self._name(number)
        return [name] if self.each == 1 else [self._join(name, f"{topic:06}") for topic in range(self.each)]

    def filter(self, number: int) -> str:
        """Of its subscribers."""
        everything = ">" if self.transport == "nats" else "#"
        return self._name(number) if self.each == 1 else self._join(self._name(number), everything)

    def _name(self, number: int) -> str:
        subtree = self.subtrees[number] if self.subtrees else ""
        levels = ("bench", self.run, f"{number:09}")
        return self._join(subtree, *levels) if subtree else self._join(*levels)

    def _join(self, *levels: str) -> str:
        return ("." if self.transport == "nats" else "/").join(levels)


def _open_many_files() -> None:
    """As many connections as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
