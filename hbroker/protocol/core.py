"""What control logic asks of the native core: the verbs of `hbroker._native._Core`, as a structural type.

`Engine` and `Endpoint` both have them, and so does the recording fake of the tests. Meanings, units and
errors are in `hbroker/_native.pyi`; they are not repeated here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from hbroker._native import (
    ControlEvent,
    LinkDownEvent,
    LinkUpEvent,
    OverflowEvent,
    PublishedEvent,
    UnresolvedEvent,
)
from hbroker.protocol.packets import Address, Cut

__all__ = ["ClientCore", "Core", "Event", "NodeCore"]

Event: TypeAlias = (
    ControlEvent | LinkUpEvent | LinkDownEvent | OverflowEvent | UnresolvedEvent | PublishedEvent
)
"""What `poll_events` gives."""


class Core(Protocol):
    """Links and control packets: what a node and a client have in common."""

    def counters(self) -> dict[str, int]: ...
    def connect(self, address: Address, token: bytes = b"") -> int: ...
    def close(self, link: int) -> None: ...
    def send(self, link: int, packet: bytes) -> bool: ...
    def send_to(self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0) -> None: ...


class NodeCore(Core, Protocol):
    """A node's core: its jurisdiction, its subscriptions and its retained messages."""

    def adopt(self, session: int, address: Address) -> int: ...
    def token_for(self, address: Address) -> bytes: ...
    def grant(
        self,
        subtree: str,
        epoch: int,
        serving: bool,
        until_us: int | None = None,
        *,
        reserved: bool = False,
    ) -> None: ...
    def revoke(self, subtree: str) -> None: ...
    def cut(self, cut: Cut) -> None: ...
    def uncut(self, subtree: str) -> None: ...
    def open_session(
        self, session: int, *, persistent: bool, queue_messages: int, queue_bytes: int
    ) -> bool: ...
    def end_session(self, session: int, reason: str = "session_ended") -> None: ...
    def subscribe(
        self,
        session: int,
        filter: str,
        qos: int,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        group: str = "",
        overflow: int = 0,
    ) -> bool: ...
    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool: ...
    def send_retained(self, session: int, filter: str, qos: int) -> int: ...
    def retained(self, subtree: str) -> list[bytes]: ...
    def take_retained(self, messages: Sequence[bytes]) -> int: ...
    def drop_retained(self, subtree: str) -> None: ...
    def matching(self, topic: str) -> int: ...
    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int | None: ...


class ClientCore(Core, Protocol):
    """A client's core: its zones and its deliveries."""

    def install_zone(
        self, scope: str, cuts: Sequence[Cut], owner: Address, token: bytes, ttl_us: int
    ) -> None: ...
    def forget_zones(self, owner: Address | None = None) -> None: ...
    def zone(self, topic: str) -> tuple[Address, bool] | None: ...
    def reject(self, topic: str, reason: int) -> None: ...
    def listen(self, subscription: int, filter: str, qos: int) -> None: ...
    def unlisten(self, subscription: int) -> None: ...
