"""One root node, over a core that records its calls. The test decides which links exist."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.config import Durability, Limits, NodeSettings
from hbroker.protocol.node import Node
from hbroker.protocol.packets import Address, Body, body_of, pack
from hbroker.protocol.storage import RestoredState, Storage
from hbroker.protocol.timers import SECOND

HOME: Address = ("10.0.0.1", 7700)
HERE: Address = ("10.1.1.1", 5000)
ELSEWHERE: Address = ("10.2.2.2", 6000)
OFFSET_US = 1_000_000 * SECOND
WILLS = 7
"""The publisher id of the wills of all clients, unless `runs` has another."""


class ScriptedCore:
    """`sent`: by link. `sent_outside`: by address. `opened`: (persistent, messages, bytes) by session id."""

    def __init__(self) -> None:
        self.sent: list[tuple[int, Body | None]] = []
        self.sent_outside: list[tuple[Address, Body | None]] = []
        self.opened: dict[int, tuple[bool, int, int]] = {}
        self.ended: list[tuple[int, str]] = []
        self.subscriptions: dict[tuple[int, str, str], dict[str, Any]] = {}
        self.retained_sent: list[tuple[int, str, int]] = []
        self.takes_replays = True
        self.adopted: list[tuple[int, Address]] = []
        self.closed: list[int] = []
        self.half_open: set[int] = set()
        self.peers: dict[int, Address] = {}
        """The current address of each peer that has moved, by link."""
        self.runs: dict[int, int] = {}
        """The publisher id of the wills of a run, by link."""
        self.published: list[pb.Publish] = []
        self.message_totals: list[Any] = []
        self.own: list[tuple[str, bytes, int, bool]] = []
        """What the node itself published."""
        self.has_room = True
        self.owns_topics = True
        self.is_full = False
        self.prioritised: list[int] = []
        self.restored: list[int] = []
        """The sessions that have got their stored queues back."""
        self._links = count(1_000)

    def send(self, link: int, packet: bytes) -> bool:
        self.sent.append((link, body_of(packet)))
        return True

    def send_to(
        self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        self.sent_outside.append((address, body_of(packet)))

    def is_half_open(self, link: int) -> bool:
        return link in self.half_open

    def prioritise(self, link: int) -> None:
        self.prioritised.append(link)

    def peer_of(self, link: int) -> Address | None:
        return self.peers.get(link)

    def will_publisher(self, link: int) -> int:
        return self.runs.get(link, WILLS)

    def close(self, link: int) -> None:
        self.closed.append(link)

    def adopt(self, session: int, address: Address, rights: int = 0) -> int:
        self.adopted.append((session, address))
        return next(self._links)

    def open_session(
        self, session: int, *, persistent: bool, queue_messages: int, queue_bytes: int, rights: int = 0
    ) -> bool:
        if self.has_room:
            self.opened[session] = persistent, queue_messages, queue_bytes
        return self.has_room

    def restore_queue(self, session: int) -> int:
        self.restored.append(session)
        return 0

    def submit_stored(self) -> int:
        return 0

    def stored(self) -> int:
        return 0

    def end_session(self, session: int, reason: str = "session_ended") -> None:
        self.ended.append((session, reason))
        self.opened.pop(session, None)
        for key in [key for key in self.subscriptions if key[0] == session]:
            del self.subscriptions[key]

    def subscribe(self, session: int, filter: str, qos: int, *, group: str = "", **options: Any) -> bool:
        self.subscriptions[session, group, filter] = {"qos": qos, **options}
        return True

    def unsubscribe(self, session: int, filter: str, group: str = "") -> bool:
        return self.subscriptions.pop((session, group, filter), None) is not None

    def send_retained(
        self, session: int, filter: str, qos: int, listener: int, subtree: str = "", first: str = ""
    ) -> bool:
        self.retained_sent.append((session, filter, listener))
        return self.takes_replays

    def replays(self, subtree: str) -> list[tuple[int, str, int, int, str]]:
        return []

    def sessions(self, most: int) -> list[Any]:
        return self.message_totals[:most]

    def publish(self, topic: str, payload: bytes, qos: int = 0, retain: bool = False) -> int:
        self.own.append((topic, payload, qos, retain))
        return len(self.own)

    def matching(self, topic: str) -> int:
        return 0

    def publish_raw(self, publish: bytes) -> int:
        if self.is_full:
            return pb.REASON_QUOTA_EXCEEDED
        self.published.append(pb.Publish.FromString(publish))
        return pb.REASON_SUCCESS if self.owns_topics else pb.REASON_NOT_RESPONSIBLE

    def token_for(self, address: Address) -> bytes:
        return b"token"

    def counters(self) -> dict[str, int]:
        return {}

    def __getattr__(self, verb: str) -> Any:
        if verb in ("grant", "revoke", "cut", "uncut"):
            return lambda *_, **__: None
        if verb == "retained":
            return lambda *_: []
        if verb in ("begin_export", "stop_export", "drop_held", "take_retained", "drop_retained"):
            return lambda *_: 0
        if verb == "copy_export":
            return lambda *_: ([], True)
        raise AttributeError(verb)


class SoleNode:
    """The node and its clock. Times are in seconds."""

    def __init__(
        self,
        limits: Limits | None = None,
        storage: Storage | None = None,
        restored: RestoredState | None = None,
        durability: Durability = Durability.NONE,
        at: int = 100 * SECOND,
    ) -> None:
        self.core = ScriptedCore()
        settings = NodeSettings("root", "", HOME, limits=limits or Limits(), durability=durability)
        self.node = Node(
            settings,
            self.core,
            Random(1),
            incarnation=1,
            unix_offset_us=OFFSET_US,
            restored=restored,
            storage=storage,
        )
        self.now = at
        self.node.start(self.now)
        self._links = count(1)
        self._requests = count(1)

    def link_up(self, session: int, address: Address = HERE, *, run: int = WILLS) -> int:
        link = next(self._links)
        self.core.runs[link] = run
        self.node.handle_event(self.now, LinkUpEvent(link, address, session, True))
        return link

    def link_down(self, link: int, session: int, reason: str = "timeout", address: Address = HERE) -> None:
        self.node.handle_event(self.now, LinkDownEvent(link, address, session, True, reason))

    def tell(self, link: int, body: Body, address: Address = HERE) -> Body | None:
        """Hands the node a packet of a session. Returns the first answer."""
        before = len(self.core.sent)
        self.node.handle_event(self.now, ControlEvent(link, address, pack(body), True))
        answers = self.core.sent[before:]
        return answers[0][1] if answers else None

    def subscribe(self, link: int, filter: str, **fields: Any) -> pb.SubAck:
        ack = self.tell(link, pb.Subscribe(request=next(self._requests), filter=filter, **fields))
        assert isinstance(ack, pb.SubAck)
        return ack

    def will(
        self, link: int, topic: str, *, delay_s: int = 0, session_expiry_s: int = 0, **fields: Any
    ) -> pb.WillAck:
        message = pb.Publish(topic=topic, payload=b"gone", publisher=WILLS, sequence=1)
        message.MergeFrom(pb.Publish(**fields))
        ack = self.tell(
            link,
            pb.Will(
                request=next(self._requests),
                publish=message.SerializeToString(),
                delay_s=delay_s,
                session_expiry_s=session_expiry_s,
            ),
        )
        assert isinstance(ack, pb.WillAck)
        return ack

    def pass_time(self, seconds: float) -> None:
        """Advances the clock from one deadline to the next."""
        end = self.now + round(seconds * SECOND)
        while (due := self.node.poll_timeout()) is not None and due <= end:
            self.now = max(self.now, due)
            self.node.handle_timeout(self.now)
        self.now = end
        self.node.handle_timeout(self.now)
