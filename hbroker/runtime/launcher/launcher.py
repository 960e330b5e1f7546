"""`hbroker up`: runs each node, gateway and bridge of a topology as a process, and the HTTP API as one more.

The `supervisor` decides; this module has the processes, signals and files. One thread waits for whichever is
first: a signal (SIGCHLD among them), a report from a process, a deadline.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final
from urllib.parse import unquote, urlsplit

from hbroker.addresses import format_address
from hbroker.config import AdminSettings, BridgeSettings, GatewaySettings, NodeSettings
from hbroker.runtime.launcher.events import (
    Ended,
    LauncherEvent,
    Left,
    Ready,
    Recovered,
    Starting,
    Stopped,
    StorageFailed,
    StorageRecovered,
    Waiting,
)
from hbroker.runtime.launcher.run_directory import (
    AdminRun,
    BridgeRun,
    GatewayRun,
    NetworkRun,
    NodeRun,
    RunDirectory,
)
from hbroker.runtime.launcher.spawn import (
    LEFT,
    REMOTE,
    SIGNALS,
    STORAGE,
    Bodies,
    Child,
    describe_exit,
    kept_socket,
    report_answering,
    report_listening,
    report_ready,
    report_registered,
    report_remote,
    spawn,
)
from hbroker.runtime.launcher.supervisor import Signal, Start, State, Supervisor
from hbroker.topology import Topology

RETRY_AFTER: Final = 1.0
"""Seconds until the state file is written again after a failure of the disk."""
REMIND_AFTER: Final = 5.0
"""Seconds between two `Waiting` events."""


class Launcher:
    """Runs one network. `on_event` is called with each `LauncherEvent`. `in_place`: as for the `Supervisor`.
    `before_reload` is called before SIGHUP is forwarded. `admin_listener`: where the HTTP API listens; None:
    the topology has none. The launcher closes it."""

    def __init__(
        self,
        topology: Topology,
        file: str,
        directory: RunDirectory,
        bodies: Bodies,
        on_event: Callable[[LauncherEvent], None],
        in_place: Collection[str] = (),
        before_reload: Callable[[], None] = lambda: None,
        admin_listener: socket.socket | None = None,
    ) -> None:
        self._before_reload = before_reload
        self._topology = topology
        self._file = os.path.abspath(file)
        self._directory = directory
        self._on_event = on_event
        self._bodies = bodies
        self._admin_listener = admin_listener
        self._admin_url: str | None = None
        if topology.admin is not None:
            assert admin_listener is not None, "the HTTP API needs a socket"
            self._admin_url = topology.admin.url(admin_listener.getsockname()[:2])
        self._nodes = self._processes()
        self._selector = selectors.DefaultSelector()
        self._started_at = time.time()
        self._began = time.monotonic()
        parent_of = {node.name: topology.parent(node) for node in topology.nodes}
        parents = {name: parent.name if parent else None for name, parent in parent_of.items()}
        gateways = self._nodes.keys() - parents.keys()
        parents |= dict.fromkeys(gateways, topology.root.name)
        self._supervisor = Supervisor(parents, self._began, Random(), gateways, in_place)
        self._remind_at: float | None = self._began + REMIND_AFTER
        self._stopping_since: float | None = None
        self._written: NetworkRun | None = None
        self._write_at = 0.0
        """The state file is not written before this time (monotonic seconds), because its disk failed."""
        self._faults: dict[str, str] = {}
        """The faults of the disk and since when, by the name of the process that met them."""
        self._events: deque[LauncherEvent] = deque()

    def run(self) -> None:
        """Returns once the network was told to stop (SIGINT or SIGTERM) and all processes have ended. SIGHUP,
        which a terminal sends when it closes, is forwarded to all processes, which read their files again.

        Raises OSError.
        """
        # Objects that are frozen stay in memory that the forked processes share, because the collector does
        # not write to them.
        gc.freeze()
        with _signals() as wakeup:
            self._selector.register(wakeup, selectors.EVENT_READ, self._handle_signals)
            try:
                while not self._supervisor.all_in(State.ENDED):
                    self._iterate()
            finally:
                self._kill_all()
                self._selector.close()
                if self._admin_listener is not None:
                    self._admin_listener.close()
                self._write_at = 0.0
                self._publish_state()
        since = self._began if self._stopping_since is None else self._stopping_since
        self._on_event(Stopped(time.monotonic() - since))

    def _iterate(self) -> None:
        now = time.monotonic()
        self._supervisor.handle_timeout(now)
        self._remind(now)
        self._run_actions()
        self._publish_state()
        for key, _ in self._selector.select(self._timeout()):
            key.data(key.fileobj)

    def _run_actions(self) -> None:
        while (action := self._supervisor.poll_action()) is not None:
            node = self._nodes[action.name]
            match action:
                case Start():
                    self._start(node)
                case Signal(signal=number) if node.child is not None:
                    node.child.send(number)

    def _start(self, node: _Process) -> None:
        try:
            child = self._spawn(node)
        # The system has no descriptor, process or memory left. It may have some later.
        except OSError as error:
            self._handle_no_process(node, f"it could not be started: {error.strerror or error}")
            return
        node.child = child
        node.started_at = time.time()
        self._selector.register(
            child.ready, selectors.EVENT_READ, lambda _: self._handle_reports(node, child)
        )

    def _spawn(self, node: _Process) -> Child:
        name = node.settings.name
        try:
            log = self._directory.open_log(name)
            self._set_fault(f"{name}.log", "")
        except OSError as error:
            log = os.dup(_STDERR)  # The process runs without a log file, rather than not at all.
            self._set_fault(f"{name}.log", f"{error.strerror or error}: written to stderr")
        try:
            if isinstance(node.settings, AdminSettings) and self._admin_listener is not None:
                return spawn(node.body, log, self._admin_listener.fileno())
            return spawn(node.body, log)
        finally:
            os.close(log)

    def _handle_reports(self, node: _Process, child: Child) -> None:
        if node.child is not child:
            return  # Its exit was handled earlier in the same iteration.
        reports = child.read_reports()
        if not reports:
            self._selector.unregister(child.ready)
            return  # It has ended; SIGCHLD follows.
        now = time.monotonic()
        for report in reports:
            if report.startswith(STORAGE):
                self._set_fault(node.settings.name, unquote(report.removeprefix(STORAGE)))
            elif report.startswith(REMOTE):
                node.broker = unquote(report.removeprefix(REMOTE))
        reports = [report for report in reports if not report.startswith((STORAGE, REMOTE))]
        if reports and reports != [LEFT]:
            if isinstance(node.settings, GatewaySettings):
                node.listeners = tuple(reports)
                node.settings = node.settings.on_ports([urlsplit(url).port or 0 for url in reports])
                node.body = self._gateway_body(node.settings)
            self._handle_joined(now, node)
        if LEFT in reports:
            self._handle_left(now, node)

    def _handle_joined(self, now: float, node: _Process) -> None:
        self._supervisor.handle_ready(now, node.settings.name)
        if node.ended is not None:
            self._events.append(Recovered(node.settings.name, now - node.ended))
            node.ended = None
        self._report_if_ready(now)

    def _handle_signals(self, wakeup: socket.socket) -> None:
        for number in wakeup.recv(4096):
            if number == signal.SIGCHLD:
                self._reap()
            elif number == signal.SIGHUP:
                self._before_reload()
                for node in self._nodes.values():
                    if node.child is not None:
                        node.child.send(signal.SIGHUP)
            elif self._stopping_since is None:
                self._stopping_since = time.monotonic()
                self._remind_at = None
                self._supervisor.stop(self._stopping_since)
            else:
                self._supervisor.stop_now()

    def _reap(self) -> None:
        for node in self._nodes.values():
            code = node.child.reap() if node.child is not None else None
            if code is not None:
                self._handle_exit(node, code)

    def _handle_exit(self, node: _Process, code: int) -> None:
        child = node.child
        assert child is not None, "only a child that was there can end"
        while child.ready in self._selector.get_map():
            self._handle_reports(node, child)  # Reads all its reports, up to the end of the pipe.
        os.close(child.ready)
        node.child = None
        node.broker = ""
        self._set_fault(node.settings.name, "")
        last_line = self._directory.last_line(node.settings.name) if code > 0 else ""
        self._handle_no_process(node, describe_exit(code), last_line)

    def _handle_no_process(self, node: _Process, how: str, last_line: str = "") -> None:
        now = time.monotonic()
        pause = self._supervisor.handle_exit(now, node.settings.name)
        if pause is None:
            return
        if node.ended is None:
            node.ended = now
        self._events.append(Ended(node.settings.name, how, last_line, pause))

    def _handle_left(self, now: float, node: _Process) -> None:
        self._supervisor.handle_leave(now, node.settings.name)
        self._events.append(Left(node.settings.name))
        self._report_if_ready(now)

    def _report_if_ready(self, now: float) -> None:
        if self._remind_at is None:
            return
        missing = self._missing()
        if missing:
            self._events.append(Starting(len(self._awaited()) - len(missing)))
            return
        self._remind_at = None
        names = [gateway.name for gateway in self._topology.gateways]
        listeners = {name: self._nodes[name].listeners for name in names}
        self._events.append(Ready(self._topology, now - self._began, listeners, self._admin_url))

    def _awaited(self) -> list[str]:
        """The processes without which the network is not ready: all but the HTTP API."""
        return [name for name, each in self._nodes.items() if not isinstance(each.settings, AdminSettings)]

    def _missing(self) -> tuple[str, ...]:
        running = (State.SERVING, State.LEFT)
        return tuple(name for name in self._awaited() if self._supervisor.state(name) not in running)

    def _remind(self, now: float) -> None:
        if self._remind_at is not None and self._remind_at <= now:
            self._remind_at = now + REMIND_AFTER
            self._events.append(Waiting(self._missing(), now - self._began))

    def _timeout(self) -> float | None:
        due = (self._supervisor.poll_timeout(), self._remind_at, self._write_at or None)
        deadlines = [at for at in due if at is not None]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

    def _kill_all(self) -> None:
        """Kills all processes, in case the launcher itself fails."""
        for node in self._nodes.values():
            if node.child is not None:
                node.child.send(signal.SIGKILL)
                os.waitpid(node.child.pid, 0)
                os.close(node.child.ready)
                node.child = None

    def _publish_state(self) -> None:
        """Writes the state file, and only then calls `on_event`, so that whoever acts on an event finds the
        new state."""
        self._write_state()
        while self._events:
            self._on_event(self._events.popleft())

    def _write_state(self) -> None:
        nodes = tuple(self._node_run(node, self._nodes[node.name]) for node in self._topology.nodes)
        gateways = tuple(self._gateway_run(self._nodes[gateway.name]) for gateway in self._topology.gateways)
        telemetry = self._topology.telemetry
        run = NetworkRun(
            self._topology.name,
            self._file,
            os.getpid(),
            self._started_at,
            nodes,
            gateways,
            os.path.abspath(telemetry.directory) if telemetry.is_on else None,
            self._topology.root.security.authority or None,
            str(self._directory.operator_token_file.absolute()) if self._topology.requires_tokens else None,
            tuple(self._bridge_run(self._nodes[bridge.name]) for bridge in self._topology.bridges),
            self._admin_run(),
        )
        if run == self._written or time.monotonic() < self._write_at:
            return
        try:
            self._directory.write(run)
        except OSError as error:
            self._write_at = time.monotonic() + RETRY_AFTER
            self._set_fault(self._topology.name, f"{error.strerror or error}: {self._directory.state_file}")
            return
        self._written, self._write_at = run, 0.0
        self._set_fault(self._topology.name, "")

    def _set_fault(self, name: str, fault: str) -> None:
        """Notes the fault of the disk that a process met; empty: its disk works again."""
        before = self._faults.get(name, "")
        if bool(fault) == bool(before):
            return
        if fault:
            self._faults[name] = f"{fault}, since {time.strftime('%H:%M:%S')}"
            self._events.append(StorageFailed(name, fault))
        else:
            del self._faults[name]
            self._events.append(StorageRecovered(name))
        with suppress(OSError):  # The fault can be written nowhere else.
            self._directory.write_faults(self._faults)

    def _node_run(self, settings: NodeSettings, node: _Process) -> NodeRun:
        return NodeRun(
            name=settings.name,
            subtree=settings.subtree,
            address=format_address(settings.address),
            state=self._supervisor.state(settings.name).value,
            pid=node.child.pid if node.child else None,
            started_at=node.started_at if node.child else None,
            restarts=self._supervisor.restarts(settings.name),
        )

    def _processes(self) -> dict[str, _Process]:
        """All processes, by name. None of them runs yet."""
        topology, bodies = self._topology, self._bodies
        processes = [_Process(node, partial(bodies.node, node, report_ready)) for node in topology.nodes]
        processes += [_Process(each, self._gateway_body(each)) for each in topology.gateways]
        processes += [
            _Process(each, partial(bodies.bridge, each, report_registered, report_remote))
            for each in topology.bridges
        ]
        if (admin := topology.admin) is not None:
            body = bodies.admin
            processes.append(_Process(admin, lambda: body(admin, kept_socket(), report_answering)))
        return {process.settings.name: process for process in processes}

    def _gateway_body(self, settings: GatewaySettings) -> Callable[[], int]:
        return partial(self._bodies.gateway, settings, report_listening)

    def _gateway_run(self, gateway: _Process) -> GatewayRun:
        name = gateway.settings.name
        return GatewayRun(
            name=name,
            listeners=gateway.listeners,
            state=self._supervisor.state(name).value,
            pid=gateway.child.pid if gateway.child else None,
            started_at=gateway.started_at if gateway.child else None,
            restarts=self._supervisor.restarts(name),
        )

    def _bridge_run(self, bridge: _Process) -> BridgeRun:
        name = bridge.settings.name
        return BridgeRun(
            name=name,
            broker=bridge.broker,
            state=self._supervisor.state(name).value,
            pid=bridge.child.pid if bridge.child else None,
            started_at=bridge.started_at if bridge.child else None,
            restarts=self._supervisor.restarts(name),
        )

    def _admin_run(self) -> AdminRun | None:
        if self._topology.admin is None or self._admin_url is None:
            return None
        name = self._topology.admin.name
        admin = self._nodes[name]
        return AdminRun(
            name=name,
            url=self._admin_url,
            state=self._supervisor.state(name).value,
            pid=admin.child.pid if admin.child else None,
            started_at=admin.started_at if admin.child else None,
            restarts=self._supervisor.restarts(name),
        )


@dataclass(slots=True)
class _Process:
    settings: NodeSettings | GatewaySettings | BridgeSettings | AdminSettings
    body: Callable[[], int]
    child: Child | None = None
    listeners: tuple[str, ...] = ()
    broker: str = ""
    """Of a bridge: the address of the broker to which it is connected."""
    started_at: float | None = None
    """Seconds since the Unix epoch."""
    ended: float | None = None
    """Monotonic seconds: when it first ended since it last served."""


_STDERR: Final = 2


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """A socket that receives the number of each signal, one byte each."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    before = {number: signal.signal(number, _ignore) for number in SIGNALS}
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _ignore(*_: object) -> None:
    """The number on the wake-up socket is enough."""
