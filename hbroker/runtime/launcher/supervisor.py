"""Decides which process runs when: the decisions of the launcher, without processes or clocks.

1. A node is first started once its parent serves. If it joined earlier, the parent would refuse it, or it
   would be in its parent's way (docs/protocol.md §5.1).
2. A gateway or a bridge is first started once all nodes serve. Earlier, its look-ups would lead to ancestors
   of the later owners, where a message of QoS 0 is lost (docs/guarantees.md). It starts without the missing
   nodes once the node above it has served for `GATEWAY_TIMEOUT` seconds.
3. From then on each process runs until the network is stopped. If one ends, it is started again after a
   pause. The pause grows with each failure in a row, and is the first again once the process has served for
   `RAN_WELL` seconds. It has jitter, so that processes that died together do not come back together.
4. A node that left because of an order stays down (docs/protocol.md §5.7).
5. The network stops from the leaves to the root, so that each node can hand its subtree back to a running
   parent. A node gets SIGTERM once its children have ended. A node that keeps what it has until the next
   start gets SIGUSR1 instead, once all gateways and its other children have ended. After a grace period all
   remaining processes get SIGKILL.

The verbs are those of the protocol: `handle_…` in, `poll_…` out. `now` is an argument, in seconds.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from random import Random
from typing import Final, TypeAlias

FIRST_PAUSE: Final = 0.1
PAUSE_FACTOR: Final = 2.0
LONGEST_PAUSE: Final = 10.0
JITTER: Final = 0.25
RAN_WELL: Final = 10.0
"""Seconds of service after which the next failure counts as the first."""
GRACE: Final = 2.0
"""Seconds between SIGTERM or SIGUSR1 and SIGKILL."""
STORED_GRACE: Final = 10.0
"""The same for a network in which a node ends in place: it may have a lot to store."""
GATEWAY_TIMEOUT: Final = 3.0
"""Seconds that a gateway waits for the other nodes, after the node above it serves."""


class State(Enum):
    """The state of a process, named for what it waits for. The value is what `hbroker status` shows."""

    AWAITING_PARENT = "pending"
    """The process was not started yet: its parent does not serve, or, for a gateway, another node does
    not."""
    AWAITING_START = "waiting"
    """The process waits for the end of its pause."""
    AWAITING_READY = "joining"
    """The process runs and has not joined yet."""
    SERVING = "up"
    AWAITING_CHILDREN = "leaving"
    """The process is to end, once its children have ended."""
    AWAITING_EXIT = "stopping"
    """The process got SIGTERM or SIGUSR1."""
    LEFT = "left"
    """The node left its network because of an order, and ends by itself."""
    ENDED = "down"


class Event(Enum):
    """What happens to a process."""

    PARENT_READY = (
        "its parent has joined, for the first time (a gateway: all nodes have, or it waited for long)"
    )
    DUE = "its pause is over"
    READY = "it says that it has joined"
    EXIT = "it ended"
    LEAVE = "it says that it left, as it was ordered to"
    STOP = "the network is being stopped"
    CHILDREN_ENDED = "none of its children is left"


TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.AWAITING_PARENT, Event.PARENT_READY): State.AWAITING_START,
    (State.AWAITING_PARENT, Event.STOP): State.ENDED,
    (State.AWAITING_START, Event.DUE): State.AWAITING_READY,
    (State.AWAITING_START, Event.STOP): State.ENDED,
    (State.AWAITING_READY, Event.READY): State.SERVING,
    (State.AWAITING_READY, Event.EXIT): State.AWAITING_START,
    (State.AWAITING_READY, Event.LEAVE): State.LEFT,
    (State.AWAITING_READY, Event.STOP): State.AWAITING_CHILDREN,
    (State.SERVING, Event.EXIT): State.AWAITING_START,
    (State.SERVING, Event.LEAVE): State.LEFT,
    (State.SERVING, Event.STOP): State.AWAITING_CHILDREN,
    (State.AWAITING_CHILDREN, Event.READY): State.AWAITING_CHILDREN,
    (State.AWAITING_CHILDREN, Event.EXIT): State.ENDED,
    (State.AWAITING_CHILDREN, Event.LEAVE): State.AWAITING_CHILDREN,
    (State.AWAITING_CHILDREN, Event.STOP): State.AWAITING_CHILDREN,
    (State.AWAITING_CHILDREN, Event.CHILDREN_ENDED): State.AWAITING_EXIT,
    (State.AWAITING_EXIT, Event.READY): State.AWAITING_EXIT,
    (State.AWAITING_EXIT, Event.EXIT): State.ENDED,
    (State.AWAITING_EXIT, Event.LEAVE): State.AWAITING_EXIT,
    (State.AWAITING_EXIT, Event.STOP): State.AWAITING_EXIT,
    (State.LEFT, Event.EXIT): State.LEFT,
    (State.LEFT, Event.STOP): State.ENDED,
    (State.ENDED, Event.EXIT): State.ENDED,
    (State.ENDED, Event.STOP): State.ENDED,
}


@dataclass(frozen=True, slots=True)
class Start:
    """The launcher must start this process."""

    name: str


@dataclass(frozen=True, slots=True)
class Signal:
    """The launcher must send this signal to this process."""

    name: str
    signal: signal.Signals


Action: TypeAlias = Start | Signal


class Backoff:
    """Computes the pause before each start of one process."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failures = 0

    def after_failure(self, served: float) -> float:
        """Seconds until the next start of a process that ended. `served`: for how many seconds it had served;
        0: it never did."""
        self._failures = 1 if served >= RAN_WELL else self._failures + 1
        pause = min(FIRST_PAUSE * PAUSE_FACTOR ** min(self._failures - 1, 16), LONGEST_PAUSE)
        return pause * self._random.uniform(1 - JITTER, 1 + JITTER)


@dataclass(slots=True)
class _Process:
    backoff: Backoff
    parent: str | None
    state: State
    gateway: bool
    due: float
    """In seconds: when to start the process (AWAITING_START), or when a gateway stops waiting for other nodes
    (AWAITING_PARENT)."""
    serving_since: float = 0.0
    starts: int = 0


class Supervisor:
    """Decides for the processes of a network, until it is stopped.

    `parents`: the node above each process; None: it waits for no other. `gateways`: the names that are
    gateways or bridges. `in_place`: the nodes that hand nothing back when the network stops, and have it at
    the next start.
    """

    def __init__(
        self,
        parents: Mapping[str, str | None],
        now: float,
        random: Random,
        gateways: Collection[str] = (),
        in_place: Collection[str] = (),
    ) -> None:
        self._in_place = in_place
        self._processes = {
            name: _Process(
                Backoff(random),
                parent,
                State.AWAITING_START if parent is None else State.AWAITING_PARENT,
                gateway=name in gateways,
                due=now if parent is None else inf,
            )
            for name, parent in parents.items()
        }
        self._actions: deque[Action] = deque()
        self._kill_at: float | None = None
        self._stopping = False

    def handle_timeout(self, now: float) -> None:
        """Starts the processes that are due. Kills the remaining ones if the grace period is over."""
        for name, process in self._processes.items():
            if process.state is State.AWAITING_PARENT and process.due <= now:
                self._release(now, process)
            if process.state is State.AWAITING_START and process.due <= now:
                self._move(process, Event.DUE)
                process.starts += 1
                self._actions.append(Start(name))
        if self._kill_at is not None and self._kill_at <= now:
            self.stop_now()

    def handle_ready(self, now: float, name: str) -> None:
        """The process serves."""
        process = self._processes[name]
        process.serving_since = now
        self._move(process, Event.READY)
        if process.state is State.SERVING:
            self._release_children(now, name)

    def handle_leave(self, now: float, name: str) -> None:
        """The node left because of an order: it stays down, and its children do not wait for it any more."""
        self._move(self._processes[name], Event.LEAVE)
        if self._processes[name].state is State.LEFT:
            self._release_children(now, name)

    def handle_exit(self, now: float, name: str) -> float | None:
        """The process ended. Returns the seconds until its next start; None: it stays down."""
        process = self._processes[name]
        served = now - process.serving_since if process.state is State.SERVING else 0.0
        self._move(process, Event.EXIT)
        if process.state in (State.ENDED, State.LEFT):
            self._stop_leaves()
            return None
        pause = process.backoff.after_failure(served)
        process.due = now + pause
        return pause

    def stop(self, now: float) -> None:
        """Ends all processes. Those that run at the end of the grace period are killed."""
        if self._stopping:
            return
        self._stopping = True
        self._kill_at = now + (STORED_GRACE if self._in_place else GRACE)
        for process in self._processes.values():
            self._move(process, Event.STOP)
        self._stop_leaves()

    def stop_now(self) -> None:
        """Kills all processes that still run, without waiting for the grace period."""
        self._kill_at = None
        left = self.names_in(State.AWAITING_CHILDREN) + self.names_in(State.AWAITING_EXIT)
        self._actions.extend(Signal(name, signal.SIGKILL) for name in left)

    def poll_action(self) -> Action | None:
        """The next action; None: there is none now."""
        return self._actions.popleft() if self._actions else None

    def poll_timeout(self) -> float | None:
        """When `handle_timeout` is due next, in seconds; None: never."""
        waiting = (State.AWAITING_PARENT, State.AWAITING_START)
        deadlines = [p.due for p in self._processes.values() if p.state in waiting and p.due < inf]
        if self._kill_at is not None:
            deadlines.append(self._kill_at)
        return min(deadlines, default=None)

    def state(self, name: str) -> State:
        """The state of this process."""
        return self._processes[name].state

    def restarts(self, name: str) -> int:
        """How often this process was started again."""
        return max(self._processes[name].starts - 1, 0)

    def all_in(self, *states: State) -> bool:
        """Whether every process is in one of these states."""
        return all(process.state in states for process in self._processes.values())

    def names_in(self, state: State) -> list[str]:
        """The names of the processes in this state."""
        return [name for name, process in self._processes.items() if process.state is state]

    def _release_children(self, now: float, name: str) -> None:
        waiting = [child for child in self._processes.values() if child.state is State.AWAITING_PARENT]
        for child in waiting:
            if child.parent == name and not child.gateway:
                self._release(now, child)
            elif child.parent == name:
                child.due = now + GATEWAY_TIMEOUT
        nodes = (process for process in self._processes.values() if not process.gateway)
        if all(node.state in (State.SERVING, State.LEFT) for node in nodes):
            for child in waiting:
                if child.gateway:
                    self._release(now, child)

    def _release(self, now: float, process: _Process) -> None:
        self._move(process, Event.PARENT_READY)
        process.due = now

    def _move(self, process: _Process, event: Event) -> None:
        process.state = TRANSITIONS[process.state, event]

    def _stop_leaves(self) -> None:
        alive = {name: p for name, p in self._processes.items() if p.state is not State.ENDED}
        parents = {process.parent for process in alive.values()}
        # A node that ends in place gets nothing from others that do. But a gateway that ends publishes wills.
        awaited = {process.parent for name, process in alive.items() if name not in self._in_place}
        has_gateways = any(process.gateway for process in alive.values())
        for name in self.names_in(State.AWAITING_CHILDREN):
            ends_in_place = name in self._in_place
            if not ((has_gateways or name in awaited) if ends_in_place else name in parents):
                self._move(self._processes[name], Event.CHILDREN_ENDED)
                number = signal.SIGUSR1 if name in self._in_place else signal.SIGTERM
                self._actions.append(Signal(name, number))
