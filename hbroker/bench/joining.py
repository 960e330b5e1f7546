"""How fast nodes join a root, each with a subtree directly below it.

Each is a complete node, with control and native endpoint, but all share this process and its event loop. The
measured time is from a node's first JOIN, which it sends again when its address is proved, until it serves,
with its parent's JOINACK and the handed-over state (docs/protocol.md §5.1).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from hbroker._native import Endpoint
from hbroker.bench.measurement import Percentiles
from hbroker.bench.process import sharpen_sleep
from hbroker.bench.resource_totals import ResourceTotals, Spent
from hbroker.config import NodeSettings, SecuritySettings
from hbroker.identity.authority import Authority
from hbroker.protocol.node import Node
from hbroker.runtime.address import listen_for
from hbroker.runtime.control_loop import clock
from hbroker.runtime.driver import Driver
from hbroker.runtime.node.process import core_config

if TYPE_CHECKING:
    from hbroker.bench.brokers import Broker
    from hbroker.bench.plan import Address

__all__ = ["Joined", "measure_joins"]

_PATIENCE_S: Final = 60.0
"""Seconds for all nodes together."""


@dataclass(frozen=True, slots=True)
class Joined:
    """The result.

    `at_once`: the number of nodes that joined at the same time. `join_us`: from the first JOIN until the node
    served. `packets_out`, `packets_in`: datagrams of each node until then. `root_bytes_each`: the growth of
    the root's memory. Shares of a CPU: 1.0 is one whole CPU.
    """

    nodes: int
    at_once: int
    joined: int
    joined_per_s: float
    join_us: Percentiles | None
    packets_out: float
    packets_in: float
    root_cpu: float
    root_cpu_s: float
    root_bytes_each: float
    generator_cpu: float
    others_cpu: float

    def to_json(self) -> dict[str, Any]:
        """All fields, ready for JSON."""
        return {"layout": "join", **asdict(self)}


def measure_joins(root: Broker, count: int, at_once: int) -> Joined:
    """Makes this number of nodes join. Gives up after a minute in all. If the root's security is on, its
    authority issues their certificates, so its key must be there. Raises OSError and ConfigError."""
    sharpen_sleep()
    with TemporaryDirectory(prefix="hbroker-bench-") as identities:
        return asyncio.run(_measure(root, count, at_once, Path(identities)))


class _Joiner:
    """One node that joins."""

    def __init__(self, root: Address, name: str, subtree: str, security: SecuritySettings) -> None:
        settings = NodeSettings(name, subtree, listen_for(root), root, security=security)
        incarnation = secrets.randbits(64)
        self._endpoint = Endpoint(core_config(settings, incarnation), settings.listen)
        self._node = Node(
            settings.on_port(self._endpoint.address[1]),
            self._endpoint,
            SystemRandom(),
            incarnation=incarnation,
            unix_offset_us=self._endpoint.unix_offset_us,
        )
        self._driver = Driver(self._endpoint, self._node, on_iteration=self._after_iteration)
        self._serves = asyncio.Event()
        self._served_at = 0
        self.took_ns: int | None = None
        """Nanoseconds; None: it has not joined."""
        self.packets = (0, 0)
        """Datagrams out and in, until it had joined."""

    async def join(self) -> None:
        """Returns when the node serves."""
        begun = time.monotonic_ns()
        self._node.start(clock())
        self._driver.start()
        await self._serves.wait()
        self.took_ns = self._served_at - begun

    def close(self) -> None:
        """Ends the node without leaving: its root ends, too."""
        self._driver.stop()
        self._endpoint.shutdown()

    def _after_iteration(self, now: int) -> bool:
        while self._node.poll_event() is not None:
            pass
        if self._node.is_serving and not self._serves.is_set():
            self._served_at = time.monotonic_ns()
            counters = self._endpoint.counters()
            self.packets = counters["socket.datagrams_out"], counters["socket.datagrams_in"]
            self._serves.set()
        return False


async def _measure(root: Broker, count: int, at_once: int, identities: Path) -> Joined:
    run = os.urandom(4).hex()
    authority = Authority.load(Path(root.authority).parent) if root.authority else None
    security = SecuritySettings(root.authority, str(identities)) if root.authority else SecuritySettings()
    joiners: list[_Joiner] = []
    try:
        for number in range(count):
            name, subtree = f"bench-{run}-{number}", f"bench/{run}/{number:06}"
            if authority is not None:
                authority.issue(name, [subtree], time.time()).save(identities)
            joiners.append(_Joiner(root.address, name, subtree, security))
        before = ResourceTotals.now(root.pids)
        with suppress(TimeoutError):
            await asyncio.wait_for(_all(joiners, at_once), _PATIENCE_S)
        after = ResourceTotals.now(root.pids)
    finally:
        for joiner in joiners:
            joiner.close()
    return _joined(joiners, at_once, before.until(after))


async def _all(joiners: list[_Joiner], at_once: int) -> None:
    """Makes all nodes join, `at_once` at the same time."""
    waiting = iter(joiners)

    async def some() -> None:
        for joiner in waiting:
            await joiner.join()

    await asyncio.gather(*(some() for _ in range(at_once)))


def _joined(joiners: list[_Joiner], at_once: int, spent: Spent) -> Joined:
    times = [joiner.took_ns for joiner in joiners if joiner.took_ns is not None]
    return Joined(
        nodes=len(joiners),
        at_once=at_once,
        joined=len(times),
        joined_per_s=len(times) / spent.seconds,
        join_us=Percentiles.among(times) if times else None,
        packets_out=sum(joiner.packets[0] for joiner in joiners) / len(joiners),
        packets_in=sum(joiner.packets[1] for joiner in joiners) / len(joiners),
        root_cpu=spent.broker_cpu,
        root_cpu_s=spent.broker_cpu_s,
        root_bytes_each=spent.grown_bytes / len(joiners),
        generator_cpu=spent.ours_cpu,
        others_cpu=spent.others_cpu,
    )
