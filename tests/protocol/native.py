"""The same network as `fake_network`, over the native core: real engines, connected by the simulated network.

`NativeCore` has the engine's verbs, and records what the engine does not report: the filters that it holds.
Whenever the record is read, it is compared with the engine's own count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hbroker._native import LinkDownEvent, NativeError
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol import timers
from hbroker.protocol.packets import Address
from hbroker.sim.network import CLEAR, Datagram, Host, World
from hbroker.sim.network import Faults as PathFaults
from tests.protocol.fake_network import Faults
from tests.protocol.fakes import Control

__all__ = ["NativeCore", "NativeNetwork"]


STEP: Final = timers.SECOND // 20
"""How much time passes between two checks of the invariants."""


class NativeCore(Host):
    """One engine, under the control that the test gives it."""

    control: Control | None  # type: ignore[assignment]

    def __init__(self, network: NativeNetwork, address: Address, *, is_node: bool) -> None:
        key = network.world.random.randbytes(16)
        super().__init__(network.world, address, node=is_node, token_key=key)
        self.network = network
        self.control = None
        self.alive = True
        self.subscriptions: dict[tuple[int, str], int] = {}

    def __getattr__(self, verb: str) -> Any:
        return getattr(self.engine, verb)

    def grant(self, subtree: str, epoch: int, serving: bool, *limits: Any, **flags: Any) -> None:
        self.engine.grant(subtree, epoch, serving, *limits, **flags)
        self.network.granted(subtree, epoch)

    def subscribe(self, session: int, filter: str, qos: int, **options: Any) -> bool:
        self.subscriptions[session, filter] = qos
        return self.engine.subscribe(session, filter, qos, **options)

    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool:
        self.subscriptions.pop((session, filter), None)
        return self.engine.unsubscribe(session, filter, group)

    def serves(self, topic: str) -> bool:
        """Whether this node accepts a PUBLISH to this topic (§7.2). It publishes one to find out."""
        if not self.alive:
            return False
        self.engine.handle_timeout(self.world.now)
        try:
            self.engine.publish(topic, b"")
        except NativeError:
            return False
        return True

    def filters(self) -> list[str]:
        assert len(self.subscriptions) == self.engine.counters()["subscriptions"]
        return sorted(filter for _, filter in self.subscriptions)

    def stores(self, filter: str) -> bool:
        return filter in self.filters()

    @property
    def messages(self) -> dict[str, bytes]:
        """The retained messages by topic."""
        return {pb.Publish.FromString(message).topic: message for message in self.engine.retained("", [])}

    # As a host

    def process_events(self) -> None:
        while self.control is not None and (events := self.engine.poll_events()):
            for event in events:
                if isinstance(event, LinkDownEvent):
                    for key in [key for key in self.subscriptions if key[0] == event.session]:
                        del self.subscriptions[key]
                self.control.handle_event(self.clock(), event)
        self.engine.poll_messages()

    def handle_timeout(self) -> None:
        now = self.clock()
        self.engine.handle_timeout(now)
        if self.control is not None:
            self.control.handle_timeout(now)

    def poll_timeout(self) -> int | None:
        control = None if self.control is None else self.control.poll_timeout()
        return min((at for at in (self.engine.poll_timeout(), control) if at is not None), default=None)


class NativeNetwork:
    """Hosts by address, and datagrams between them."""

    unix_offset_us = 0

    def __init__(self, seed: int = 0, faults: Faults | None = None) -> None:
        wanted = faults or Faults()
        self.world = World(seed)
        self.hosts: dict[Address, NativeCore] = {}
        self.epochs: dict[str, int] = {}
        self.epochs_fell: list[str] = []
        self.on_step: Callable[[], None] = lambda: None
        self._cut: set[frozenset[Address]] = set()
        self._faults = PathFaults(
            loss=wanted.loss,
            delay_us=200,
            jitter_us=1_800,
            reordering=wanted.late,
            late_us=timers.SECOND,
            duplication=wanted.duplication,
        )
        self.world.path = self._path

    @property
    def now(self) -> int:
        return self.world.now

    def attach(self, address: Address, *, is_node: bool = True) -> NativeCore:
        core = self.hosts[address] = NativeCore(self, address, is_node=is_node)
        self.world.add(core)
        return core

    def kill(self, address: Address) -> None:
        self.hosts[address].alive = False
        self.world.remove(self.hosts[address])

    def part(self, one: Address, other: Address) -> None:
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        self._cut.clear()

    def restarted(self, address: Address) -> None:
        """Does nothing: the peers notice by themselves (§3.6)."""

    def run(self, duration: int) -> None:
        end = self.now + duration
        while self.now < end:
            for core in list(self.world.hosts.values()):
                self.world.drive(core)
            self.world.run(min(STEP, end - self.now))
            self.on_step()

    def granted(self, subtree: str, epoch: int) -> None:
        if epoch < self.epochs.get(subtree, 0):
            self.epochs_fell.append(subtree)
        self.epochs[subtree] = epoch

    def _path(self, datagram: Datagram) -> PathFaults | None:
        is_cut = frozenset((datagram.source, datagram.destination)) in self._cut
        in_session = bool(datagram.decode().header.session)
        return None if is_cut else CLEAR if in_session else self._faults
