"""The controls of a load's clients of hbroker's own protocol, all in one loop.

Each client is the native core's, as any other; its control (`hbroker.protocol.client`) is any client's, too.
What the control does not see is messages, and what became of them: the load in the core has those.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from random import SystemRandom
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Final

from hbroker.bench.launching import NoAnswer
from hbroker.protocol.client import ClientControl
from hbroker.protocol.outcome import Resolved, Subscribed
from hbroker.protocol.subscription import Options
from hbroker.runtime.identity import Identity
from hbroker.runtime.turns import EVENTS, clock

if TYPE_CHECKING:
    from hbroker._native import LoadMember
    from hbroker.bench.plan import Address
    from hbroker.protocol.lookup import Resolution

__all__ = ["Controls"]

_LOOK_S: Final = 0.05
"""How often deadlines are looked at: those of requests and leases are far longer."""


class Controls:
    """Takes the turns of all controls, while somebody runs it. `root`: of the network."""

    def __init__(self, root: Address, patience_s: float) -> None:
        self._root = root
        self._patience = round(patience_s * 1e6)
        self._selector = DefaultSelector()
        self._controls: list[tuple[LoadMember, ClientControl]] = []
        self._waiting: ClientControl | None = None
        self._next_look = 0.0
        self._resolution: Resolution | None = None

    def add(self, member: LoadMember, identity: Identity) -> None:
        """Takes a client over."""
        control = ClientControl(member, SystemRandom(), self._root, identity.terms)
        self._controls.append((member, control))
        self._selector.register(member.fileno(), EVENT_READ, (member, control))

    def subscribe(self, filter: str, qos: int) -> None:
        """Has the last client subscribe; returns once every owner has that. Raises NoAnswer."""
        control = self._controls[-1][1]
        control.subscribe(clock(), filter, Options(qos), patience=self._patience)
        self._settle(control)

    def find(self, topic: str) -> Resolution:
        """Has the last client ask who owns a topic. Raises NoAnswer."""
        control = self._controls[-1][1]
        control.resolve(clock(), topic, patience=self._patience)
        self._settle(control)
        assert self._resolution is not None, "a look-up ends with one, or raises"
        return self._resolution

    def run(self, seconds: float) -> None:
        """Takes turns for so long."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._turn(min(left, _LOOK_S))

    def close(self) -> None:
        """Has every client leave its owners. Idempotent."""
        for member, control in self._controls:
            control.leave()
            self._selector.unregister(member.fileno())
        for member, _ in self._controls:
            member.drain(0.2)
        self._controls = []
        self._selector.close()

    def _settle(self, control: ClientControl) -> None:
        """Returns once the client has what it asked for."""
        self._waiting = control
        self._hear(control)
        while self._waiting is not None:
            self._turn(_LOOK_S)

    def _turn(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            member, control = key.data
            for event in member.poll_events(EVENTS):
                control.handle_event(clock(), event)
            self._hear(control)
        if (at := time.monotonic()) >= self._next_look:
            self._next_look = at + _LOOK_S
            self._handle_timeouts(control for _, control in self._controls)

    def _handle_timeouts(self, controls: Iterable[ClientControl]) -> None:
        now = clock()
        for control in controls:
            if (deadline := control.poll_timeout()) is not None and deadline <= now:
                control.handle_timeout(now)
                self._hear(control)

    def _hear(self, control: ClientControl) -> None:
        while (outcome := control.poll_outcome()) is not None:
            if isinstance(outcome, Resolved):
                self._resolution = outcome.resolution
            if isinstance(outcome, Resolved | Subscribed):
                self._waiting = None if control is self._waiting else self._waiting
            else:
                raise NoAnswer(f"a client of the load cannot go on: {outcome}")
