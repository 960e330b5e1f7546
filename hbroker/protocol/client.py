"""A client's control: the core's events in, packets and changes of its zones out, outcomes for the
application (§5.2, §6).

Resolver and subscriber are two halves that share the address tokens. This is where packets find the half that
asked for them; a packet that nobody asked for is dropped.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent, PublishedEvent, UnresolvedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.agenda import earliest
from hbroker.protocol.core import ClientCore, Event
from hbroker.protocol.expiring import ExpiringCache
from hbroker.protocol.outcome import Outcome, Published
from hbroker.protocol.packets import Address, body_of, pack
from hbroker.protocol.requests import TokenCache
from hbroker.protocol.resolution import PATIENCE, Resolver
from hbroker.protocol.subscriber import Subscriber
from hbroker.protocol.subscription import Options

__all__ = ["ClientControl"]

_MOST_TOKENS: Final = 16_384
_ROOTS_OWN: Final = "$SYS"


class ClientControl:
    """Every decision of one client. Times are microseconds of one monotonic clock.

    `root` is where look-ups and discoveries begin. `client_id` is told to the owners, for those who operate
    the network.
    """

    def __init__(self, core: ClientCore, random: Random, root: Address, client_id: str = "") -> None:
        self._core = core
        self._random = random
        tokens: TokenCache = ExpiringCache(_MOST_TOKENS)
        self._resolver = Resolver(core, random, tokens, root)
        self._subscriber = Subscriber(core, random, tokens, root, client_id)
        self._published: deque[Outcome] = deque()
        self._links: set[int] = set()
        self._last_id = 0

    # In: the application

    def start(self, now: int, patience: int = PATIENCE) -> int:
        """Asks the root for its own zone; `Resolved` under this ticket says that it serves.

        The answer names the root's cuts, so that the first topics start there and not at the root.
        """
        return self.resolve(now, _ROOTS_OWN, trace=True, patience=patience)

    def resolve(self, now: int, topic: str, *, trace: bool = False, patience: int = PATIENCE) -> int:
        """Asks who owns a valid topic. Returns the ticket of the outcome that follows."""
        ticket = self._next_id()
        self._resolver.resolve(now, ticket, topic, trace=trace, patience=patience)
        return ticket

    def subscribe(self, now: int, filter: str, options: Options, *, patience: int = PATIENCE) -> int:
        """Subscribes to a valid filter. Returns the id of the outcome that follows."""
        subscription = self._next_id()
        self._subscriber.subscribe(now, subscription, filter, options, patience)
        return subscription

    def unsubscribe(self, now: int, subscription: int) -> None:
        """Ends a subscription; `Unsubscribed` follows."""
        self._subscriber.unsubscribe(now, subscription)

    def leave(self) -> None:
        """§6.4: ends every session, so that no owner keeps state for this client."""
        packet = pack(pb.Leave(reason=pb.REASON_NORMAL_DISCONNECTION))
        for link in self._links:
            self._core.send(link, packet)

    # In: the core

    def handle_event(self, now: int, event: Event) -> None:
        """Takes one event of the core."""
        match event:
            case ControlEvent():
                self._handle_packet(now, event)
            case UnresolvedEvent():
                self._resolver.handle_unresolved(now, event.topic, event.start)
            case PublishedEvent():
                self._published.append(Published(event.sequence, event.topic, event.reason))
            case LinkUpEvent():
                self._links.add(event.link)
            case LinkDownEvent():
                self._links.discard(event.link)
                self._subscriber.handle_link_down(now, event.link)

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        self._resolver.handle_timeout(now)
        self._subscriber.handle_timeout(now)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due; None: never."""
        return earliest(self._resolver.poll_timeout(), self._subscriber.poll_timeout())

    def poll_outcome(self) -> Outcome | None:
        """The next outcome; None: there is no more now."""
        if self._published:
            return self._published.popleft()
        return self._resolver.poll_outcome() or self._subscriber.poll_outcome()

    def _handle_packet(self, now: int, event: ControlEvent) -> None:
        body = body_of(event.packet)
        match body:
            case pb.SubAck() if event.link is not None:
                self._subscriber.handle_confirmation(now, event.link, event.source, body)
            case pb.SubAck():
                self._subscriber.handle_answer(now, event.source, body)
            case pb.PubAccept():
                self._resolver.handle_accept(now, event.source, body)
            case pb.Referral():
                self._resolver.handle_referral(now, body)
            case pb.Challenge():
                self._resolver.handle_challenge(now, event.source, body)
                self._subscriber.handle_challenge(now, event.source, body)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id
