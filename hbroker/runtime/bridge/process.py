"""The process of a bridge.

It connects to the other broker, then to the network, and carries messages until one of the two connections
fails. It closes both then, waits, and begins again. So there is one state: both are there, or none. While
none is there, both sides keep what waits for the bridge in its sessions, unless it starts clean.

- SIGTERM or SIGINT: the bridge closes both connections, and ends.
- SIGHUP has no effect: files are read for each connection.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from random import Random
from typing import Final

from hbroker.addresses import format_address
from hbroker.config import BridgeSettings, BridgeTopic
from hbroker.errors import HBrokerError
from hbroker.runtime.bridge.backoff import Backoff
from hbroker.runtime.bridge.files import require_bridges
from hbroker.runtime.bridge.remote import Remote, RemoteFailed, versions_of
from hbroker.runtime.bridge.topics import TopicMap
from hbroker.runtime.bridge.transfer import Counters, Transfer, subscribe_locally
from hbroker.runtime.client.async_client import Client, connect
from hbroker.runtime.client.identity import Will
from hbroker.runtime.logs import EventLog

__all__ = ["run_bridge"]

SESSION_EXPIRY_S: Final = 7 * 86_400
"""For how long owners keep the session of a bridge that is not connected. Nodes may have a lower bound."""
RAN_WELL_S: Final = 10.0
"""Seconds after which the next failure counts as the first."""
COUNTERS_S: Final = 10.0
"""Seconds between two publications of the counters."""
END_TIMEOUT_S: Final = 0.5
"""Seconds for the last messages about the bridge, and for each end of a connection. All together take less
than a launcher waits (`supervisor.GRACE`)."""
_CONNECTED: Final = b"1"
_NOT_CONNECTED: Final = b"0"
_AT_ONCE: Final = 0
_IF_NEW: Final = 1
_NEVER: Final = 2


def run_bridge(
    settings: BridgeSettings,
    *,
    on_ready: Callable[[], None] = lambda: None,
    on_remote: Callable[[str], None] = lambda text: None,
) -> int:
    """Runs a bridge until it is told to end. Returns the exit code 0.

    `on_ready` is called once the network has its subscriptions. `on_remote` is called with the address of the
    other broker when the bridge has connected to it, and with an empty text when that connection has ended.
    Raises ConfigErrors if a file has an error.
    """
    require_bridges([settings], settings.name)
    return asyncio.run(_Process(settings, on_ready, on_remote).run())


class _Process:
    """One bridge."""

    def __init__(
        self, settings: BridgeSettings, on_ready: Callable[[], None], on_remote: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._on_ready = on_ready
        self._on_remote = on_remote
        self._topics = TopicMap(settings.topics)
        self._client_id = settings.client_id or f"{settings.name}.{socket.gethostname()}"
        self._state_topic = f"$SYS/broker/connection/{self._client_id}/state"
        self._backoff = Backoff(settings.pause, settings.longest_pause, Random(secrets.randbits(64)))
        self._versions = versions_of(settings.version)
        self._version = 0
        """Which of the versions is tried next."""
        self._address = 0
        """Which of the addresses is tried next. After a connection it is the first."""
        self._unsent: set[BridgeTopic] = set()
        """Entries whose retained messages have not been sent to the other broker yet."""
        self._counters = Counters()
        self._log = EventLog("bridge")

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        work = asyncio.create_task(self._run())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, work.cancel)
        self._log.info("started", root=format_address(self._settings.root), client_id=self._client_id)
        with suppress(asyncio.CancelledError):
            await work
        self._log.info("ended", **asdict(self._counters))
        return 0

    async def _run(self) -> None:
        await self._until_it_works(self._register)
        self._on_ready()
        while True:
            await self._until_it_works(self._connect)

    async def _until_it_works(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Makes one attempt after the other, until one does not fail."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await attempt()
            except (RemoteFailed, HBrokerError, OSError) as error:
                why = error
            else:
                return
            if asyncio.get_running_loop().time() - began >= RAN_WELL_S:
                self._backoff.reset()
            pause = self._backoff.next()
            self._log.warning("not_connected", why=str(why), again_in_s=round(pause, 1))
            await asyncio.sleep(pause)

    async def _register(self) -> None:
        """Makes the session with its subscriptions, so that owners keep messages also if the other broker is
        down when the bridge starts for the first time. Retained messages come once there is a connection to
        it."""
        async with self._local() as local:
            if not self._settings.clean_start:
                made = await subscribe_locally(local, self._topics.outward, lambda _: _NEVER)
                self._unsent = {entry for entry, subscription in made if not subscription.resumed}

    def _retain_handling(self, entry: BridgeTopic) -> int:
        is_first = self._settings.clean_start or entry in self._unsent
        return _AT_ONCE if is_first else _IF_NEW

    async def _connect(self) -> None:
        """Connects both sides, and carries messages. Raises what ended that."""
        addresses, version = self._settings.addresses, self._versions[self._version]
        remote = Remote(self._settings, addresses[self._address % len(addresses)], version, self._client_id)
        try:
            will = (self._state_topic, _NOT_CONNECTED) if self._settings.notifies == "both" else None
            try:
                await remote.open(will)
            except RemoteFailed as error:
                self._address += 1
                if error.is_version:
                    self._version = (self._version + 1) % len(self._versions)
                raise RemoteFailed(f"{remote}: {error}") from None
            self._address = 0
            async with self._local() as local:
                await self._carry(local, remote)
        finally:
            await remote.close()

    async def _carry(self, local: Client, remote: Remote) -> None:
        subscriptions = await subscribe_locally(local, self._topics.outward, self._retain_handling)
        refused = await remote.subscribe(self._topics.inward)
        if refused:
            self._log.warning("subscription_refused", broker=str(remote), filters=" ".join(refused))
        self._counters.connections += 1
        self._unsent.clear()
        lost = [entry.local for entry, subscription in subscriptions if not subscription.resumed]
        if lost and not self._settings.clean_start and self._counters.connections > 1:
            self._log.warning("session_lost", filters=" ".join(lost))
        self._log.info("connected", broker=str(remote))
        telling = asyncio.create_task(self._tell_counters(local))
        try:
            await self._tell_state(local, remote, _CONNECTED)
            self._on_remote(format_address(remote.address))
            await Transfer(self._topics, local, remote, subscriptions, self._counters).run()
        finally:
            telling.cancel()
            self._on_remote("")
            with suppress(HBrokerError, TimeoutError):
                async with asyncio.timeout(END_TIMEOUT_S):
                    await self._tell_state(local, remote, _NOT_CONNECTED)

    @asynccontextmanager
    async def _local(self) -> AsyncIterator[Client]:
        """The client of the network. Its session outlives the connection, unless the bridge starts clean."""
        settings, notifies = self._settings, self._settings.notifies != "none"
        local = await connect(
            settings.root,
            authority=settings.security.authority or None,
            token=settings.security.token or None,
            client_id=f"bridge-{settings.name}",
            session_expiry=0 if settings.clean_start else SESSION_EXPIRY_S,
            session_key=hmac.digest(settings.join_key, b"bridge", "sha256"),
            clean_start=settings.clean_start,
            will=Will(self._state_topic, _NOT_CONNECTED, qos=1, retain=True) if notifies else None,
            acknowledge="explicit",
        )
        try:
            yield local
        finally:
            await local.close(END_TIMEOUT_S)

    async def _tell_state(self, local: Client, remote: Remote, state: bytes) -> None:
        """Publishes whether the bridge is connected, on both sides."""
        if self._settings.notifies == "both":
            remote.publish_state(self._state_topic, state)
        if self._settings.notifies != "none":
            await local.publish(self._state_topic, state, qos=1, retain=True, ack_queued=True)

    async def _tell_counters(self, local: Client) -> None:
        """Publishes the counters, as long as the bridge is connected."""
        topic = f"$SYS/bridges/{self._settings.name}"
        while True:
            await asyncio.sleep(COUNTERS_S)
            with suppress(HBrokerError):
                local.try_publish(topic, json.dumps(asdict(self._counters)), retain=True)
