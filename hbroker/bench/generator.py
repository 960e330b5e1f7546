"""A load's clients, connected, in this process.

Subscribers come first, so that nothing is published to nobody. One thread of the native core drives them
all; this one only waits, and takes the controls' turns where there are some.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from hbroker._native import LoadGenerator
from hbroker.bench.controls import Controls
from hbroker.bench.launching import NoAnswer
from hbroker.bench.process import sharpen_sleep
from hbroker.runtime.address import listen_for
from hbroker.runtime.hub import config_of
from hbroker.runtime.identity import Identity

if TYPE_CHECKING:
    from hbroker._native import LoadReport
    from hbroker.bench.plan import Address, Plan

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
def generator(plan: Plan, address: Address) -> Iterator[Generator]:
    """Connects a load to a broker for as long as the context lasts. Raises OSError, NoAnswer."""
    _open_many_files()
    sharpen_sleep()  # which threads inherit that are started from now on
    shape = plan.shape
    native = LoadGenerator(
        publishers=len(shape.publishers),
        subscribers=[(first, count) for _, first, count in shape.subscribers],
        payload=plan.payload,
        qos=plan.qos,
        window=plan.window_each,
        rate=plan.rate,
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
    parts: list[tuple[int, int | None, int | None]] = [
        *((topic, None, number) for number, (topic, _, _) in enumerate(plan.shape.subscribers)),
        *((topic, number, None) for number, topic in enumerate(plan.shape.publishers)),
    ]
    separator = "." if plan.transport == "nats" else "/"
    for index, (number, publishes, subscribes) in enumerate(parts):
        topic = separator.join(("bench", run, f"{number:09}"))
        name = f"bench-{run}-{index}"
        if controls is None:
            native.add_connection(
                plan.transport,
                address,
                name=name,
                topic=topic,
                publishes=publishes,
                subscribes=subscribes,
                timeout_s=_PATIENCE_S,
            )
            continue
        identity = Identity.of(name)
        member = native.add_member(
            config_of(identity), listen_for(address), topic=topic, publishes=publishes, subscribes=subscribes
        )
        controls.add(member, identity, topic, None if subscribes is None else plan.qos)
        controls.settle()


def _open_many_files() -> None:
    """As many connections as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
