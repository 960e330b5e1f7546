"""A gateway's process: the native core, the control over it, threads for what blocks, and signals.

- SIGTERM, SIGINT or SIGUSR1: the gateway disconnects every client, waits until wills and records are
  distributed, and ends. A second one ends it at once.
- SIGUSR2: the gateway logs everything, and after another one what it logged before.
- SIGHUP: the gateway reads passwords, rules and certificates again; if it was started from a topology file,
  also that file, with its limits and listeners. If a file has an error, all of them stay as they were, and
  the log has the error.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Final, ParamSpec

from hbroker._native import Config, Credentials
from hbroker.addresses import format_address
from hbroker.config import GatewaySettings, ListenerSettings
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.gateway.access.password_checks import MOST_RUNNING
from hbroker.gateway.access.policy import Check, Decision, Refusal
from hbroker.gateway.control import Gateway
from hbroker.gateway.events import WARNINGS
from hbroker.gateway.reason_codes import Code
from hbroker.metrics.exposition import gateway_exposition
from hbroker.runtime.address import listen_for
from hbroker.runtime.control_loop import clock
from hbroker.runtime.credentials import credentials_of, key_log_file, workspace_for
from hbroker.runtime.gateway.native_gateway import NativeGateway, native_listeners
from hbroker.runtime.gateway.policies import load_policy
from hbroker.runtime.hosts.service_manager import Watchdog
from hbroker.runtime.launcher.ports import require_listeners
from hbroker.runtime.logs import EventLog, audit_fields, level, set_level
from hbroker.runtime.metrics_server import MetricsServer
from hbroker.runtime.process_usage import process_usage, resident_bytes
from hbroker.runtime.telemetry import Facts, Recorder
from hbroker.runtime.traces import span_sender

__all__ = ["run_gateway"]

P = ParamSpec("P")

STOP_TIMEOUT: Final = 1.5
"""Seconds that wills and records may take to be distributed, when the gateway ends. It is less than the time
for which a launcher waits (`supervisor.GRACE`)."""
LEAVE_S: Final = 0.2
"""Seconds that the last packets to the owners may take. Not every owner acknowledges them."""
BATCH: Final = 512
"""The most events, messages and requests that one iteration takes, of each kind."""
_SHORTEST_S: Final = 0.001
_CHECKER_NICE: Final = 15
"""The nice value of the threads that check passwords: guesses leave the processors to messages."""
_YOUNG: Final = 20_000
"""The garbage collector's threshold for young objects. Many clients that connect at once make millions of
objects that stay, so frequent collections would find little."""

logger = logging.getLogger(__name__)


def run_gateway(
    settings: GatewaySettings,
    *,
    on_ready: Callable[[tuple[str, ...]], None] = lambda urls: None,
    version: str = "",
    policy: str = "",
    reload: Callable[[], GatewaySettings] | None = None,
) -> int:
    """Runs a gateway until it is told to end. Returns the exit code: 0: it ended as asked; 1: the core
    failed.

    `on_ready(urls)` is called once the gateway accepts clients. `policy`: as `hook` in `load_policy`.
    `reload`: returns the settings on SIGHUP; None: they do not change, and their files are read again. Raises
    OSError and PortTaken if an address cannot be bound, and ConfigErrors if a file has an error.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    return asyncio.run(_Process(settings, on_ready, version, policy, reload).run())


class _Process:
    """The native core and the control of one gateway."""

    def __init__(
        self,
        settings: GatewaySettings,
        on_ready: Callable[[tuple[str, ...]], None],
        version: str,
        policy: str,
        reload: Callable[[], GatewaySettings] | None,
    ) -> None:
        loaded = load_policy(settings.access, policy)
        config = _core_config(settings)
        self._settings = settings
        self._listeners = require_listeners(settings.listeners)
        native_listeners(
            self._listeners, settings.limits
        )  # A file with an error is reported now, before the gateway has joined.
        listen = settings.listen or listen_for(settings.root)
        self._native = NativeGateway(config, listen, workers=settings.workers, limits=settings.limits)
        self._core = self._native.core
        unix_offset_us = time.time_ns() // 1000 - clock()
        self._spans = span_sender(config, "gateway", settings.name, settings.traces, unix_offset_us)
        self._hook = policy
        self._reload = reload
        self._on_ready: Callable[[tuple[str, ...]], None] | None = on_ready
        self._log = EventLog("gateway")
        if settings.security.is_on and key_log_file():
            self._log.warning("keys_logged", file=key_log_file())
        if not settings.security.is_on:
            self._log.warning("security_off", danger="nothing between it and nodes is encrypted")
        self._reloading: asyncio.Task[None] | None = None
        self._must_reload = False
        self._control = Gateway(
            settings,
            self._core,
            Random(secrets.randbits(64)),
            loaded,
            run=secrets.randbits(63),
            publisher=config.publisher,
            unix_offset_us=unix_offset_us,
            version=version,
            process_counters=lambda: {"rss_bytes": resident_bytes()},
        )
        self._recorder = Recorder(settings.telemetry, settings.name, "gateway", self._core.take_load)
        self._checkers = ThreadPoolExecutor(
            MOST_RUNNING, thread_name_prefix="passwords", initializer=_lower_own_priority
        )
        self._timer: asyncio.TimerHandle | None = None
        self._watchdog = Watchdog()
        self._log_level = level()
        self._is_debugging = False
        self._is_stopping = False
        self._has_failed = False
        self._ended = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGUSR2, self._switch_debug)
        loop.add_signal_handler(signal.SIGHUP, self._reload_files)
        # SIGHUP may have come since the files were read.
        self._set_credentials(credentials_of(self._settings.security))
        self._log.info("started", root=format_address(self._settings.root))
        metrics: MetricsServer | None = None
        sending: asyncio.Task[None] | None = None
        try:
            if self._spans is not None:
                sending = asyncio.create_task(self._spans.run())
            if self._settings.metrics is not None:
                metrics = MetricsServer(self._settings.metrics, self._exposition)
                self._log.info("metrics", address=format_address(metrics.address))
            loop.add_reader(self._core.fileno(), self._iterate)
            self._guard(self._control.start, clock())
            self._iterate()
            self._recorder.start(lambda: Facts(address=format_address(self._core.address)))
            await self._ended.wait()
        finally:
            loop.remove_reader(self._core.fileno())
            if metrics is not None:
                await metrics.stop()
            if sending is not None:
                sending.cancel()
            if self._timer is not None:
                self._timer.cancel()
            if not self._has_failed:
                self._control.leave()
                await asyncio.to_thread(self._core.drain, LEAVE_S)
            self._core.shutdown()
            if self._spans is not None:
                await asyncio.to_thread(self._spans.stop)
            self._recorder.stop()
            self._checkers.shutdown(wait=False, cancel_futures=True)
        self._log.info("ended")
        return int(self._has_failed)

    def _exposition(self, accept: str) -> tuple[bytes, str]:
        counters = {**self._control.counters(), **process_usage()}
        return gateway_exposition(self._settings.name, counters, accept)

    # Iterations

    def _iterate(self) -> None:
        """Runs one iteration: takes events, messages and requests, and does what is due."""
        if self._ended.is_set():
            return
        self._core.gather(True)
        try:
            self._run_iteration()
        finally:
            self._core.gather(False)

    def _run_iteration(self) -> None:
        now = clock()
        core, control = self._core, self._control
        events = core.poll_pool_events(BATCH)
        for pool_client, event in events:
            self._guard(control.handle_event, now, pool_client, event)
        messages = core.poll_pool_messages(BATCH)
        for pool_client, message in messages:
            self._guard(control.handle_message, now, pool_client, message)
        mqtt_events = self._native.poll_mqtt(BATCH)
        for request in mqtt_events:
            self._guard(control.handle_mqtt, now, request)
        due = control.poll_timeout()
        if due is not None and due <= now:
            self._guard(control.handle_timeout, now)
        while (check := control.poll_check(now)) is not None:
            self._check(*check)
        while (gateway_event := control.poll_event()) is not None:
            log = self._log.warning if gateway_event.name in WARNINGS else self._log.debug
            log(gateway_event.name, **gateway_event.fields)
            fields = audit_fields(self._settings.name, gateway_event.name, gateway_event.fields)
            self._guard(control.audit, now, gateway_event.name, fields)
        self._check_progress(now)
        self._watchdog.ping()
        self._plan(now, at_once=BATCH in (len(events), len(messages), len(mqtt_events)))

    def _plan(self, now: int, *, at_once: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        due = self._control.poll_timeout()
        pause = None if due is None else max(_SHORTEST_S, (due - now) / 1e6)
        if at_once:
            pause = 0.0
        if self._watchdog.interval_s is not None:
            pause = min(self._watchdog.interval_s, self._watchdog.interval_s if pause is None else pause)
        loop = asyncio.get_running_loop()
        self._timer = None if pause is None else loop.call_later(pause, self._iterate)

    def _check_progress(self, now: int) -> None:
        """Checks whether the core has failed, the gateway can begin to listen, or it can end."""
        fault = self._core.fault
        if fault is not None:
            self._has_failed = True
            self._log.error("core_failed", fault=fault)
            self._ended.set()
        elif self._on_ready is not None and self._control.is_ready:
            self._listen(now)
        elif self._is_stopping and self._control.is_idle:
            self._ended.set()

    def _listen(self, now: int) -> None:
        try:
            urls = tuple(self._open(number, listener).url for number, listener in enumerate(self._listeners))
        except (OSError, ConfigError) as error:
            self._has_failed = True
            self._log.error("cannot_listen", error=str(error))
            self._ended.set()
            return
        self._guard(self._control.announce, now, urls)
        self._log.info("listening", urls=" ".join(urls))
        assert self._on_ready is not None, "it listens once"
        self._on_ready(urls)
        self._on_ready = None

    def _open(self, number: int, listener: ListenerSettings) -> ListenerSettings:
        """Opens a listener. Returns it with its port. A listener that gives way takes any free port here,
        too, because its port may have been taken since it was checked."""
        try:
            port = self._native.open_listener(number, listener)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not listener.gives_way:
                raise
            port = self._native.open_listener(number, replace(listener, address=(listener.address[0], 0)))
        return replace(listener, address=(listener.address[0], port))

    def _check(self, number: int, check: Check) -> None:
        loop = asyncio.get_running_loop()

        def run_check() -> None:
            decision = _decision(check)
            loop.call_soon_threadsafe(self._finish_check, number, decision)

        self._checkers.submit(run_check)

    def _finish_check(self, number: int, decision: Decision) -> None:
        self._guard(self._control.handle_decision, clock(), number, decision)
        self._iterate()

    def _guard(self, handler: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls a handler. An exception is a defect of this program: it is logged, and the next event is
        handled, so that one client's failure does not affect the others."""
        try:
            handler(*args, **kwargs)
        except Exception:
            logger.exception("a handler of the gateway failed: a defect of this program")

    # Signals

    def _stop(self) -> None:
        if self._is_stopping or not self._control.is_ready:
            self._ended.set()
            return
        self._is_stopping = True
        self._guard(self._control.stop, clock())
        asyncio.get_running_loop().call_later(STOP_TIMEOUT, self._ended.set)
        self._iterate()

    def _switch_debug(self) -> None:
        """Handles SIGUSR2."""
        self._is_debugging = not self._is_debugging
        wanted = "debug" if self._is_debugging else self._log_level
        set_level(wanted)
        self._log.info("log_level_changed", now=wanted)

    def _reload_files(self) -> None:
        """Handles SIGHUP. While the files are read, clients are served."""
        self._must_reload = True
        if self._reloading is None or self._reloading.done():
            self._reloading = asyncio.create_task(self._run_reloads())

    async def _run_reloads(self) -> None:
        while self._must_reload:
            self._must_reload = False
            await self._reload_once()

    async def _reload_once(self) -> None:
        try:
            settings = self._settings if self._reload is None else self._reload()
            policy = await asyncio.to_thread(load_policy, settings.access, self._hook)
            credentials = credentials_of(self._settings.security)
            listeners = self._set_listeners(settings)
        except (ConfigError, ConfigErrors, OSError) as wrong:
            self._log.error("not_reloaded", errors=str(wrong))
            return
        self._set_credentials(credentials)
        self._guard(self._control.reload, clock(), policy, replace(settings, listeners=listeners))
        self._log.info("reloaded")
        self._iterate()

    def _set_credentials(self, credentials: Credentials | None) -> None:
        if credentials is not None:
            self._core.set_credentials(credentials)

    def _set_listeners(self, settings: GatewaySettings) -> tuple[ListenerSettings, ...]:
        """The listeners from now on. Their URLs do not change while the gateway runs, because they were
        announced. If the settings have other URLs, only the files of the present listeners are read again."""
        listeners = settings.listeners
        if settings.urls != self._settings.urls:
            self._log.warning("listeners_kept", remedy="restart the gateway for listeners at other URLs")
            listeners = self._settings.listeners
        if self._on_ready is None:
            self._native.set_listeners(listeners, settings.limits)
        return listeners


def _lower_own_priority() -> None:
    """Lowers the priority of the calling thread. Only Linux has a priority for each thread; elsewhere the
    call would lower that of the whole process."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _CHECKER_NICE)


def _decision(check: Check) -> Decision:
    try:
        return check()
    except Exception:
        logger.exception("a check of the policy failed")
        return Refusal(Code.UNSPECIFIED_ERROR)


def _core_config(settings: GatewaySettings) -> Config:
    """The native core's settings for one run of a gateway; its session is that of the shared client. Raises
    ConfigError if its token is of a workspace: a gateway is for clients of all."""
    workspace_for(settings.security, "")
    return Config(
        node=False,
        session=secrets.randbits(64) or 1,
        incarnation=secrets.randbits(64),
        token_keys=[secrets.token_bytes(16)],
        seed=secrets.randbits(64),
        hold=True,
        receive_messages=_RECEIVE_MESSAGES,
        receive_bytes=_RECEIVE_BYTES,
        for_many=True,
        telemetry=settings.telemetry.is_on,
        traces=bool(settings.traces),
        credentials=credentials_of(settings.security),
    )


_RECEIVE_MESSAGES: Final = 65_536
_RECEIVE_BYTES: Final = 64 << 20
"""The credit of the gateway's clients at one owner, in bytes and in messages. It is large, because each of
them acts for many MQTT clients."""
