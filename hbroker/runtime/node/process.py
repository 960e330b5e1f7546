"""A node's process: the native endpoint, the control over it, and signals.

- SIGTERM or SIGINT: the node hands its subtrees back to their parents, and then ends. A second one ends it at
  once.
- SIGUSR1: a node with a store ends at once. Its next run, at the same address, has everything. A node without
  one does as on SIGTERM.
- SIGUSR2: a node with a store is replaced by a new process, which takes over its sockets
  (`hbroker.runtime.node.successor`).
- SIGHUP, which a terminal sends when it closes: the node reads its settings again, and logs which changes
  take effect at the next start. It goes on.

If the endpoint fails, the process ends, so that its launcher starts it again.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from hbroker._native import Config, Endpoint
from hbroker.addresses import Address, format_address
from hbroker.config import Durability, NodeSettings
from hbroker.errors import ConfigError, ConfigErrors
from hbroker.identity.authority import AuthorityCertificate
from hbroker.identity.certificate import NodeCertificate
from hbroker.identity.node_identity import Identity
from hbroker.identity.revocation_list import RevocationAuthority
from hbroker.metrics.exposition import exposition
from hbroker.metrics.hot_topics import HotTopics, topic_rates
from hbroker.protocol.events import LogLevelOrdered, NodeEvent, event_name
from hbroker.protocol.node import Node
from hbroker.protocol.status import ProcessFacts
from hbroker.rights.token import verify
from hbroker.rights.verified import VerifiedToken
from hbroker.runtime.control_loop import clock
from hbroker.runtime.credentials import credentials_of, key_log_file, node_certificate
from hbroker.runtime.driver import Driver
from hbroker.runtime.hosts.service_manager import SOCKETS, Watchdog, tell
from hbroker.runtime.logs import EventLog, audit_fields, set_level
from hbroker.runtime.metrics_server import MetricsServer
from hbroker.runtime.node.event_entries import WARNINGS, entry_of
from hbroker.runtime.node.revoked_file_watch import RevokedFileWatch
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.runtime.node.successor import Successor
from hbroker.runtime.node.writer_threads import StateWriter
from hbroker.runtime.process_usage import process_usage
from hbroker.runtime.telemetry import Facts, Recorder
from hbroker.runtime.traces import span_sender
from hbroker.subtree import is_within

__all__ = ["core_config", "run_node"]

DRAIN_S: Final = 1.0
"""Seconds that the last packets may take to leave, when the process ends."""
SHORT_DRAIN_S: Final = 0.1
"""The same for a process that ends in place."""

WATCH_S: Final = 1.0
"""Seconds between two looks at how the store's disk does, and at the list of revoked tokens."""

_STOPPED: Final = 0
_FAILED: Final = 1


def run_node(
    settings: NodeSettings,
    *,
    on_ready: Callable[[Address], None] = lambda address: None,
    on_left: Callable[[], None] = lambda: None,
    state_path: Path | None = None,
    on_disk_fault: Callable[[str], None] = lambda fault: None,
    reload: Callable[[], NodeSettings] | None = None,
    sockets: Sequence[int] = (),
) -> int:
    """Runs a node until it is told to end. Returns the exit code: 0: it ended as asked; 1: its network
    refused it for good, or the endpoint failed.

    `on_ready(address)` is called once the node serves all subtrees that it claims. `on_left` is called once
    it has handed all of them back because of an order to leave (§5.7). `state_path`: the file of its
    delegations, with other state files beside it (`hbroker.runtime.node.state_files`). None: the node keeps
    no files. Then its orders are forgotten at a restart, a restart within a lease may give its children's
    topics two owners until the children renew, and messages are acknowledged before subscribers are back.

    `on_disk_fault(what)` is called, in a thread, when the disk fails, and with an empty text once it works
    again. `reload`: returns the settings on SIGHUP; None: they do not change. `sockets`: descriptors of bound
    sockets of an earlier process, one for each worker; empty: they are bound now. Raises OSError if the
    address cannot be bound, or a state file cannot be read or created.
    """

    def complete(settings: NodeSettings) -> NodeSettings:
        default = Durability.NONE if state_path is None else Durability.FSYNC
        return replace(settings, durability=settings.durability or default)

    again = None if reload is None else lambda: complete(reload())
    node = _Process(complete(settings), on_ready, on_left, state_path, on_disk_fault, again, sockets)
    return asyncio.run(node.run())


def core_config(settings: NodeSettings, incarnation: int) -> Config:
    """The native core's settings for one run of a node: its session, keys and limits."""
    return Config(
        node=True,
        session=secrets.randbits(64) or 1,
        incarnation=incarnation,
        token_keys=[_token_key(settings)],
        seed=secrets.randbits(64),
        max_links=settings.limits.sessions,
        max_links_of_host=settings.limits.sessions_per_address,
        queue_messages=settings.limits.queue_messages,
        queue_bytes=settings.limits.queue_bytes,
        telemetry=settings.telemetry.is_on,
        credentials=credentials_of(settings.security, settings.name),
        requires_tokens=settings.security.requires_tokens,
        workspace_rates=[
            (each.name, each.messages_per_second) for each in settings.workspaces if each.messages_per_second
        ],
        traces=bool(settings.traces),
    )


class _Process:
    """The endpoint, control and driver of one node."""

    def __init__(
        self,
        settings: NodeSettings,
        on_ready: Callable[[Address], None],
        on_left: Callable[[], None],
        state_path: Path | None,
        on_disk_fault: Callable[[str], None],
        reload: Callable[[], NodeSettings] | None,
        sockets: Sequence[int],
    ) -> None:
        incarnation = secrets.randbits(64)
        self._log = EventLog("node")
        files = None if state_path is None else NodeStateFiles(state_path, settings.subtrees)
        self._disk_faults = {"files": "", "store": ""}
        self._on_disk_fault = on_disk_fault
        report = partial(self._report_disk_fault, "files")
        self._state_writer = None if files is None else StateWriter(files, self._log, report)
        restored = None if self._state_writer is None else self._state_writer.load()
        config = core_config(settings, incarnation)
        self._endpoint = _new_endpoint(config, settings, sockets)
        self._spans = span_sender(
            config, "node", settings.name, settings.traces, self._endpoint.unix_offset_us
        )
        self._warn_of_security(settings)
        self._configured, self._reload = settings, reload
        self._authorities = _authorities(settings)
        self._revoked = RevokedFileWatch(settings.security)
        self._fingerprints = _fingerprints(settings)
        if files is not None:
            had_store = self._open_store(files.path.with_name(f"{files.path.name}.store"))
            if restored is not None:
                # Without syncs, the end of the log is gone with the power, and nobody can tell.
                is_whole = settings.durability is not Durability.OS or restored.is_same_boot
                restored = replace(restored, had_store=had_store and is_whole)
        self._settings = settings.on_port(self._endpoint.address[1]) if not settings.listen[1] else settings
        self._on_ready: Callable[[Address], None] | None = on_ready
        self._on_left: Callable[[], None] | None = on_left
        self._recorder = Recorder(settings.telemetry, settings.name, "node", self._endpoint.take_load)
        self._node = Node(
            self._settings,
            self._endpoint,
            Random(secrets.randbits(64)),
            incarnation=incarnation,
            unix_offset_us=self._endpoint.unix_offset_us,
            restored=restored,
            storage=files,
            process=ProcessFacts(self._process_status, self._recorder.hottest_topics.describe),
            certificates=self._certificate_of if settings.security.is_on else None,
            verify_token=self._verify_token if settings.security.requires_tokens else None,
            authorities=[RevocationAuthority.of(key) for key in self._authorities],
        )
        self._driver = Driver(self._endpoint, self._node, on_iteration=self._after_iteration)
        self._successor = Successor(self._stop_in_place, lambda: self._log.error("not_replaced"))
        self._watchdog = Watchdog()
        self._metrics: MetricsServer | None = None
        self._is_stopping = False
        self._drain_s = DRAIN_S
        self._has_failed = False
        self._store_fault: tuple[bool, str] | None = None
        self._ended = asyncio.Event()

    def _warn_of_security(self, settings: NodeSettings) -> None:
        if settings.security.is_on and key_log_file():
            self._log.warning("keys_logged", file=key_log_file())
        if not settings.security.is_on:
            self._log.warning("security_off", danger="nothing is encrypted, and no node proves who it is")

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGUSR1, self._stop_in_place)
        loop.add_signal_handler(signal.SIGUSR2, self._replace)
        loop.add_signal_handler(signal.SIGHUP, self._reload_settings)
        self._read_credentials()  # SIGHUP may have come since the start.
        address = format_address(self._settings.address)
        self._log.info("started", address=address, subtree=self._settings.subtree)
        tasks: list[asyncio.Task[None]] = []
        try:
            if self._settings.metrics is not None:
                self._metrics = MetricsServer(self._settings.metrics, self._exposition)
                self._log.info("metrics", address=format_address(self._metrics.address))
            if self._state_writer is not None:
                self._state_writer.start(lambda: self._wake_driver(loop))
            self._node.start(clock())
            self._endpoint.run_store()
            tasks.append(asyncio.create_task(self._watch_files()))
            if self._spans is not None:
                tasks.append(asyncio.create_task(self._spans.run()))
            if self._node.is_in_doubt:
                self._log.warning("waits", why="delegations were lost: what it may have delegated must end")
            self._check_revoked()
            self._driver.start()
            self._recorder.start(self._facts)
            await self._ended.wait()
        finally:
            for task in tasks:
                task.cancel()
            if self._metrics is not None:
                await self._metrics.stop()
            self._driver.stop()
            if not self._has_failed and self._successor.is_ready:
                self._endpoint.reset_peers()
            elif not self._has_failed:
                await asyncio.to_thread(self._endpoint.drain, self._drain_s)
            self._endpoint.shutdown()
            if self._spans is not None:
                await asyncio.to_thread(self._spans.stop)
            self._check_store()
            self._recorder.stop()
            if self._state_writer is not None:
                await asyncio.to_thread(self._state_writer.stop)
        self._log.info("ended")
        self._successor.let_go()
        return _STOPPED if self._is_stopping and not self._has_failed else _FAILED

    def _facts(self) -> Facts:
        held = (grant.subtree for grant in self._node.jurisdiction.grants if grant.serving)
        return Facts(
            address=format_address(self._settings.address),
            parent=self._node.claims.parent or None,
            subtrees=tuple(sorted(subtree for subtree in held if not is_within(subtree, "$SYS"))),
        )

    def _wake_driver(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the writer's thread when more is on the disk, or when the disk begins or ceases to
        fail."""
        loop.call_soon_threadsafe(self._driver.wake)

    def _stop(self) -> None:
        if self._is_stopping or self._settings.is_root or self._node.is_in_doubt:
            self._ended.set()
        self._is_stopping = True
        self._node.leave(clock())
        self._driver.wake()

    def _stop_in_place(self) -> None:
        if not self._settings.has_store:
            self._stop()
            return
        self._is_stopping = True
        self._drain_s = SHORT_DRAIN_S
        self._ended.set()

    def _replace(self) -> None:
        """Handles SIGUSR2."""
        if not self._settings.has_store:
            self._log.error("not_replaced", why="without a store, the successor would have nothing")
        elif not self._is_stopping and not self._successor.is_under_way:
            try:
                pid = self._successor.start(self._endpoint.descriptors)
            except OSError as wrong:
                self._log.error("not_replaced", why=str(wrong))
            else:
                self._log.info("replacing", successor=pid)

    def _reload_settings(self) -> None:
        """Handles SIGHUP. No setting changes while the node runs, because other nodes were sent the settings,
        too. But certificates are read again: new peers get the new ones, and connected peers stay."""
        try:
            settings = self._configured if self._reload is None else self._reload()
            self._read_credentials()
        except (ConfigError, ConfigErrors, OSError) as wrong:
            self._log.error("not_reloaded", errors=str(wrong))
            return
        names = (field.name for field in fields(settings))
        changed = [name for name in names if getattr(settings, name) != getattr(self._configured, name)]
        if changed:
            self._log.warning("not_reloaded", changed=",".join(changed), remedy="restart the node")
        else:
            self._log.info("reloaded", changed="nothing")

    def _read_credentials(self) -> None:
        """Raises ConfigError and OSError."""
        credentials = credentials_of(self._configured.security, self._configured.name)
        if credentials is None:
            return
        authorities, fingerprints = _authorities(self._configured), _fingerprints(self._configured)
        self._endpoint.set_credentials(credentials)
        for key, event in (("authorities", "authority_changed"), ("certificate", "certificate_changed")):
            if fingerprints[key] != self._fingerprints[key]:
                self._tell(self._log.info, event, {key: fingerprints[key]})
        self._fingerprints = fingerprints
        if authorities != self._authorities:
            self._authorities = authorities
            self._node.review_tokens(clock(), [RevocationAuthority.of(key) for key in authorities])
            self._revoked.read_again()
            self._check_revoked()
            self._driver.wake()

    def _exposition(self, accept: str) -> tuple[bytes, str]:
        """The metrics of this node alone."""
        topics = topic_rates([HotTopics.parse(self._recorder.hottest_topics.describe())])
        return exposition([(self._node.status(clock()), True)], topics, accept)

    def _process_status(self) -> dict[str, object]:
        """What its status says of the process."""
        return {**process_usage(), "security": "on" if self._configured.security.is_on else "off"}

    def _verify_token(self, token: bytes, now: float) -> VerifiedToken:
        return verify(token, self._authorities, now)

    def _certificate_of(self, peer: Address) -> NodeCertificate | None:
        certificate = self._endpoint.certificate(peer)
        return None if certificate is None else node_certificate(certificate)

    def _open_store(self, folder: Path) -> bool:
        """Opens the store, if there is to be one. Otherwise a store of an earlier run is set aside: its
        queues are no longer those of the sessions that this run will have. Returns whether an earlier run
        had a store here, and it is intact. Raises OSError."""
        existed = folder.exists()
        damage: list[str] = []
        if self._configured.has_store:
            syncs = self._configured.durability is Durability.FSYNC
            damage, cut = self._endpoint.open_store(str(folder), syncs, self._configured.limits.store_bytes)
            for line in damage:
                self._log.error("store_damaged", folder=str(folder), what=line)
            if cut:
                self._log.warning("store_torn", folder=str(folder), bytes_cut_off=cut)
        elif folder.exists():
            aside = folder.with_name(f"{folder.name}.unused-{time.time_ns() // 1_000_000_000}")
            folder.rename(aside)
            self._log.warning("store_set_aside", folder=str(aside), why="durability is none")
        return self._configured.has_store and existed and not damage

    def _check_store(self) -> None:
        """Logs what the store reports. If its disk has failed for good, the process ends: its launcher starts
        another one, which takes over what is on the disk."""
        for damage in self._endpoint.take_store_damage():
            self._log.error("store_damaged", what=damage)
        fault = self._endpoint.store_fault
        if fault == self._store_fault:
            return
        self._store_fault = fault
        self._report_disk_fault("store", "" if fault is None else f"the store: {fault[1]}")
        if fault is None:
            self._log.info("store_recovered")
            return
        is_final, why = fault
        self._log.error(
            "store_failed", why=why, consequence="the node ends" if is_final else "waits for room"
        )
        if is_final:
            self._has_failed = True
            self._ended.set()

    def _report_disk_fault(self, what: str, fault: str) -> None:
        """Passes on what fails. Called in two threads, in each for another `what`."""
        self._disk_faults[what] = fault
        self._on_disk_fault("; ".join(filter(None, self._disk_faults.values())))

    def _check_revoked(self) -> None:
        """Takes the list of revoked tokens that is on this host, if it has changed."""
        try:
            found = self._revoked.read_if_changed()
        except (ConfigError, OSError) as wrong:
            self._log.error("revocations_refused", why=str(wrong))
            return
        if found is not None:
            self._node.revocations.take_file(found.authority, found.records)
            self._driver.wake()

    async def _watch_files(self) -> None:
        while True:
            self._check_store()
            self._check_revoked()
            self._driver.wake()  # Then the watchdog sees progress, although nothing happens.
            await asyncio.sleep(WATCH_S)

    def _after_iteration(self, now: int) -> bool:
        self._watchdog.ping()
        while (node_event := self._node.poll_event()) is not None:
            self._log_event(node_event)
        if self._on_ready is not None and self._node.is_serving:
            self._on_ready(self._settings.address)
            self._on_ready = None
        if self._on_left is not None and self._node.has_left:
            self._on_left()
            self._on_left = None
        if self._node.has_stopped and not self._ended.is_set():
            self._is_stopping = self._is_stopping or self._node.has_left
            self._ended.set()
        fault = self._endpoint.fault
        if fault is not None and not self._has_failed:
            self._has_failed = True
            self._log.error("endpoint_failed", fault=fault)
            self._ended.set()
        return False

    def _log_event(self, node_event: NodeEvent) -> None:
        if isinstance(node_event, LogLevelOrdered):
            set_level(node_event.level)
        log = self._log.warning if isinstance(node_event, WARNINGS) else self._log.info
        self._tell(log, event_name(type(node_event)), entry_of(node_event))

    def _tell(self, log: Callable[..., None], event: str, entry: Mapping[str, object]) -> None:
        """Logs an event, and publishes it below `$SYS/audit`."""
        log(event, **entry)
        self._node.audit(clock(), event, audit_fields(self._configured.name, event, entry))


def _new_endpoint(config: Config, settings: NodeSettings, sockets: Sequence[int]) -> Endpoint:
    """The endpoint, on these sockets, or on new ones, which the service manager then keeps. Raises
    OSError."""
    endpoint = Endpoint(config, settings.listen, settings.workers, list(sockets))
    if not sockets:
        tell("FDSTORE=1", f"FDNAME={SOCKETS}", descriptors=endpoint.descriptors)
    return endpoint


def _authorities(settings: NodeSettings) -> list[Ed25519PublicKey]:
    """Whose signatures of tokens the node believes. Raises ConfigError and OSError."""
    if not settings.security.requires_tokens:
        return []
    return [
        authority.public_key
        for authority in AuthorityCertificate.load_file(Path(settings.security.authority))
    ]


def _fingerprints(settings: NodeSettings) -> dict[str, str]:
    """The first 16 bytes of SHA-256 of the keys of the authorities that the node believes, and of its own
    certificate. Raises ConfigError and OSError."""
    if not settings.security.is_on:
        return {"authorities": "", "certificate": ""}
    known = AuthorityCertificate.load_file(Path(settings.security.authority))
    certificate = Identity.load(Path(settings.security.identity), settings.name).chain[0]
    keys = [each.public_key.public_bytes_raw() for each in known]
    authorities, own = [sha256(key).digest()[:16].hex() for key in keys], sha256(certificate).digest()[:16]
    return {"authorities": ",".join(authorities), "certificate": own.hex()}


def _token_key(settings: NodeSettings) -> bytes:
    """The key of address tokens, and of the proofs in resets. Nodes with the same join key accept each
    other's tokens (§4.2). Without one, a node that has an identity has the same key in its next run."""
    secret = settings.join_key
    if not secret and settings.security.is_on:
        secret = Identity.load(Path(settings.security.identity), settings.name).key
    if not secret:
        return secrets.token_bytes(16)
    return hmac.digest(secret, b"hbroker address validation", "sha256")[:16]
