"""A control plane without a data plane: recording cores, which `fake_network` connects in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hbroker._native import topic_matches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.packets import Address, Cut
from hbroker.subtree import is_within

if TYPE_CHECKING:
    from hbroker._native import SessionStatus
    from hbroker.protocol.core import Event
    from tests.protocol.fake_network import FakeLink, Network


class Control(Protocol):
    def handle_event(self, now: int, event: Event) -> None: ...
    def handle_timeout(self, now: int) -> None: ...
    def poll_timeout(self) -> int | None: ...


@dataclass(slots=True)
class Export:
    """Messages that wait are being copied."""

    before: tuple[list[bytes], list[bytes]]
    copied: int = 0


class FakeCore:
    """The verbs of the native core over plain dictionaries."""

    def __init__(self, network: Network, address: Address, session: int) -> None:
        self.network = network
        self.address = address
        self.session = session
        self.incarnation = session
        self.control: Control | None = None
        self.alive = True
        self.links: dict[int, FakeLink] = {}
        self.grants: dict[str, tuple[int, bool]] = {}
        self.cuts: dict[str, Cut] = {}
        self.opened: dict[int, bool] = {}
        """Whether each session is persistent."""
        self.subscriptions: dict[tuple[int, str], int] = {}
        self.messages: dict[str, bytes] = {}
        self.published: list[tuple[str, bytes, int, bool]] = []
        self.retained_sent: list[tuple[int, str, int]] = []
        self.retained_parts: list[tuple[str, str]] = []
        """For each call of `send_retained`: its subtree and its first topic."""
        self.left_to_replay: list[tuple[int, str, int, int, str]] = []
        self.waiting: tuple[list[bytes], list[bytes]] = ([], [])
        """Serialised QueuedRecords and SeenRecords."""
        self.held: dict[int, tuple[list[bytes], list[bytes]]] = {}
        self.exports: dict[int, Export] = {}
        self.moves = 0
        self.open_messages = 0
        self.handing_on = False
        """Messages are on their way between the workers."""
        self.reads_store = False
        """Messages that wait are still being read from the store."""
        self.prioritised: set[int] = set()

    def counters(self) -> dict[str, int]:
        return {"messages_in": 0, "drop.no_subscriber": 0}

    # Links

    def connect(self, address: Address, token: bytes = b"") -> int:
        return self.network.open(self, address, self.session)

    def adopt(self, session: int, address: Address, rights: int = 0) -> int:
        for link, fake_link in self.links.items():
            if fake_link.session == session:
                return link
        return self.network.open(self, address, session)

    def allow_session(self, session: int, rights: int) -> None:
        raise AssertionError("no client has a token here")

    def refuse_session(self, session: int, client: Address, rights: int) -> None:
        raise AssertionError("no client has a token here")

    def has_association(self, association: int) -> bool:
        raise AssertionError("no client has a token here")

    def set_rights(
        self, association: int, key: int, blocks: Sequence[tuple[Sequence[str], bool]], is_empty: bool
    ) -> bool:
        raise AssertionError("no client has a token here")

    def is_half_open(self, link: int) -> bool:
        return False

    def prioritise(self, link: int) -> None:
        self.prioritised.add(link)

    def peer_of(self, link: int) -> Address | None:
        return None

    def will_publisher(self, link: int) -> int:
        return self.links[link].session if link in self.links else 0

    def close(self, link: int) -> None:
        if link in self.links:
            self.network.end(self.links[link], "closed")

    def send(self, link: int, packet: bytes) -> bool:
        if link not in self.links:
            return False
        self.network.carry(self.links[link], self, packet)
        return True

    def send_to(
        self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        self.network.cast(self, address, packet)

    def token_for(self, address: Address) -> bytes:
        return f"{address[0]}:{address[1]}".encode()

    # Jurisdiction

    def grant(self, subtree: str, epoch: int, serving: bool, *limits: Any, **flags: Any) -> None:
        self.network.has_changed |= self.grants.get(subtree) != (epoch, serving)
        self.grants[subtree] = epoch, serving
        self.network.granted(self, subtree, epoch)

    def revoke(self, subtree: str) -> None:
        self.grants.pop(subtree, None)
        self.network.has_changed = True

    def cut(self, cut: Cut) -> None:
        self.network.has_changed |= cut[0] not in self.cuts
        self.cuts[cut[0]] = cut

    def uncut(self, subtree: str) -> None:
        del self.cuts[subtree]
        self.network.has_changed = True

    def serves(self, topic: str) -> bool:
        """Whether this node accepts a PUBLISH to this topic (§7.2): the longest subtree that holds the topic
        decides."""
        if not self.alive:
            return False
        levels = topic.split("/")
        for depth in range(len(levels), -1, -1):
            subtree = "/".join(levels[:depth])
            if subtree in self.cuts:
                return False
            if subtree in self.grants:
                return self.grants[subtree][1]
        return False

    # Subscriptions

    def sessions(self, most: int) -> list[SessionStatus]:
        return []

    def publish_raw(self, publish: bytes) -> int:
        return pb.REASON_SUCCESS

    def open_session(
        self, session: int, *, persistent: bool, queue_messages: int, queue_bytes: int, rights: int = 0
    ) -> bool:
        is_connected = any(fake_link.session == session for fake_link in self.links.values())
        if is_connected or persistent:
            self.opened[session] = persistent
        return session in self.opened

    def restore_queue(self, session: int) -> int:
        return 0

    def submit_stored(self) -> int:
        return 0

    def stored(self) -> int:
        return 0

    def end_session(self, session: int, reason: str = "session_ended") -> None:
        self.opened.pop(session, None)
        for key in [key for key in self.subscriptions if key[0] == session]:
            del self.subscriptions[key]

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
    ) -> bool:
        if session not in self.opened:
            return False
        is_new = (session, filter) not in self.subscriptions
        self.subscriptions[session, filter] = qos
        return is_new

    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool:
        return self.subscriptions.pop((session, filter), None) is not None

    def send_retained(
        self, session: int, filter: str, qos: int, listener: int, subtree: str = "", first: str = ""
    ) -> bool:
        self.retained_sent.append((session, filter, listener))
        self.retained_parts.append((subtree, first))
        return True

    def replays(self, subtree: str) -> list[tuple[int, str, int, int, str]]:
        return self.left_to_replay

    def retained(self, subtree: str, excluded: Sequence[str]) -> list[bytes]:
        return [m for topic, m in self.messages.items() if _is_of(topic, subtree, excluded)]

    def take_retained(self, messages: Sequence[bytes]) -> int:
        for message in messages:
            publish = pb.Publish.FromString(message)
            if publish.payload:
                self.messages[publish.topic] = message
            else:
                self.messages.pop(publish.topic, None)
        return 0

    def drop_retained(self, subtree: str, excluded: Sequence[str]) -> None:
        for topic in [t for t in self.messages if _is_of(t, subtree, excluded)]:
            del self.messages[topic]

    def drain_subtree(self, subtree: str, excluded: Sequence[str]) -> int:
        return self.open_messages

    def raise_barrier(self, subtree: str) -> int:
        return 1

    def has_passed(self, barrier: int) -> bool:
        return not self.handing_on

    # Waiting messages move: all of them, whatever the subtree

    def begin_export(self, subtree: str, excluded: Sequence[str], before: int = 0) -> int:
        self.moves += 1
        self.exports[self.moves] = Export(self.held.pop(before, ([], [])))
        return self.moves

    def copy_export(self, export: int, excluded: Sequence[str]) -> tuple[list[bytes], bool]:
        copying = self.exports[export]
        return self._uncopied(copying), True

    def has_uncopied(self, export: int, excluded: Sequence[str]) -> bool:
        return self.reads_store

    def stop_export(self, export: int) -> int:
        before = self.exports.pop(export).before
        if any(before):
            self.held[export] = before
        return export if any(before) else 0

    def finish_export(self, export: int, excluded: Sequence[str]) -> list[bytes]:
        copying = self.exports.pop(export)
        difference = self._uncopied(copying)
        (before, before_seen), (waiting, seen) = copying.before, self.waiting
        self.held[export] = [*before, *waiting], [*before_seen, *seen]
        self.waiting = ([], [])
        return [
            *difference,
            *(pb.Transfer(seen=[one]).SerializeToString() for one in _seen(self.held[export])),
        ]

    def begin_import(self) -> int:
        self.moves += 1
        self.held[self.moves] = ([], [])
        return self.moves

    def take_records(self, held: int, transfer: bytes) -> int:
        records = pb.Transfer.FromString(transfer)
        self.held[held][0].extend(record.SerializeToString() for record in records.queued)
        self.held[held][1].extend(record.SerializeToString() for record in records.seen)
        return 0

    def install(self, held: int) -> int:
        queued, seen = self.held.pop(held, ([], []))
        self.waiting[0].extend(queued)
        self.waiting[1].extend(seen)
        return 0

    def drop_held(self, held: int) -> None:
        self.held.pop(held, None)

    def _uncopied(self, copying: Export) -> list[bytes]:
        queued = [*copying.before[0], *self.waiting[0]][copying.copied :]
        copying.copied += len(queued)
        records = map(pb.QueuedRecord.FromString, queued)
        return [pb.Transfer(queued=[record]).SerializeToString() for record in records]

    def matching(self, topic: str) -> int:
        return sum(topic_matches(filter, topic) for _, filter in self.subscriptions)

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int:
        self.published.append((topic, payload, qos, retain))
        if retain:
            message = pb.Publish(topic=topic, payload=payload, retain=True)
            self.take_retained([message.SerializeToString()])
        return 1

    # For tests

    def filters(self) -> list[str]:
        return sorted(filter for _, filter in self.subscriptions)

    def stores(self, filter: str) -> bool:
        return filter in self.filters()


def _seen(held: tuple[list[bytes], list[bytes]]) -> list[pb.SeenRecord]:
    return [pb.SeenRecord.FromString(one) for one in held[1]]


def _is_of(topic: str, subtree: str, excluded: Sequence[str]) -> bool:
    return is_within(topic, subtree) and not any(is_within(topic, other) for other in excluded)
