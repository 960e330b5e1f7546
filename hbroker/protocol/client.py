"""A client's control: events of the native core in, packets, changes of its zones and outcomes out (§5.2,
§6).

The resolver, the subscriber and the will share what is known about nodes, also with other clients at the same
address. This module routes each packet to the one that sent the request; a packet without a request is
discarded. Many clients never resolve a topic and have no will, so the resolver and the will are created when
they are first needed.

If another run of the client takes its session over, this control ends (§6.4). It makes nothing again, so two
runs do not take the session from each other for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import Final

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent, PublishedEvent, UnresolvedEvent
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.client_context import ClientContext
from hbroker.protocol.core import ClientCore, Event
from hbroker.protocol.packets import Address, Reason, body_of, pack
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.resolution.resolver import LOOKUP_TIMEOUT, Resolver
from hbroker.protocol.results import Published, Resolved, ResolveFailed, Result, TakenOver
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.subscriptions.client.options import NewListener, Options
from hbroker.protocol.subscriptions.client.subscriptions import ClientSubscriptions
from hbroker.protocol.timers import earliest
from hbroker.protocol.wills.client_will import ClientWill, Will
from hbroker.protocol.wills.client_will import State as WillState

__all__ = ["ClientControl"]

_ROOTS_OWN: Final = "$SYS"
_ID_BITS: Final = 48


class ClientControl:
    """Every decision of one client. Times are microseconds of one monotonic clock.

    - `root`: where look-ups and discoveries begin.
    - `session_options`: the session; its id is that of the core's `Config`.
    - `ids`: yields the ids of tickets and subscriptions, for several controls with common ids; None: ids of
      its own.
    - `caches`: what is known about nodes, for several controls with one address; None: its own.
    - `on_result`: called with each outcome; None: outcomes wait for `poll_result`.
    """

    __slots__ = (
        "_client_will",
        "_context",
        "_has_left",
        "_ids",
        "_is_taken_over",
        "_links",
        "_resolver",
        "_results",
        "_subscriptions",
    )

    def __init__(
        self,
        core: ClientCore,
        random: Random,
        root: Address,
        session_options: SessionOptions | None = None,
        ids: Iterator[int] | None = None,
        caches: ResolverCaches | None = None,
        on_result: Callable[[Result], None] | None = None,
    ) -> None:
        self._ids = count(random.getrandbits(_ID_BITS)) if ids is None else ids
        """Begins at a random number, because nodes may still have the listeners of an earlier run (§7.6)."""
        self._results: deque[Result] | None = deque() if on_result is None else None
        own = (
            session_options or SessionOptions(),
            caches or ResolverCaches(),
            on_result or self._queue_result,
        )
        self._context = ClientContext(core, random, root, *own)
        self._subscriptions = ClientSubscriptions(self._context)
        self._resolver: Resolver | None = None
        self._client_will: ClientWill | None = None
        self._links: set[int] = set()
        self._is_taken_over = False
        self._has_left = False
        """It makes nothing again any more: its owners end their links, and what was subscribed there."""

    # In: the application

    def start(self, now: int, timeout: int = LOOKUP_TIMEOUT) -> int:
        """Asks the root for its own zone. `Resolved` with the returned ticket shows that the root serves.

        The answer names the root's cuts, so the first look-ups begin at these nodes and not at the root.
        """
        return self.resolve(now, _ROOTS_OWN, trace=True, timeout=timeout)

    def resolve(self, now: int, topic: str, *, trace: bool = False, timeout: int = LOOKUP_TIMEOUT) -> int:
        """Resolves the owner of a valid topic. Returns the ticket of the outcome. `trace`: asks every node
        from the root down. `timeout`: microseconds."""
        lookup_id = self._next_id()
        self._look_up().resolve(now, lookup_id, topic, trace=trace, timeout=timeout)
        return lookup_id

    def subscribe(
        self,
        now: int,
        filter: str,
        options: Options,
        *,
        group: str = "",
        timeout: int = LOOKUP_TIMEOUT,
    ) -> int:
        """Subscribes to a valid filter. Returns the id of the outcome. `timeout`: microseconds."""
        subscription = self._next_id()
        self.subscribe_together(now, [NewListener(subscription, (group, filter), options)], timeout=timeout)
        return subscription

    def subscribe_together(
        self, now: int, new_listeners: Sequence[NewListener], *, timeout: int = LOOKUP_TIMEOUT
    ) -> None:
        """Subscribes to valid filters. Each listener has a new id of `ids`, so the caller knows it before the
        first message arrives. One outcome follows for each. If the client had no link yet, a queued message
        arrives for all listeners that it matches (§6.4)."""
        self._subscriptions.subscribe(now, new_listeners, timeout)

    def unsubscribe(self, now: int, subscription: int) -> None:
        """Ends a subscription. `Unsubscribed` follows."""
        self._subscriptions.unsubscribe(now, subscription)

    def release(self, now: int, subscription: int) -> None:
        """Leaves a subscription in the session, and takes no more of its messages. No outcome follows."""
        self._subscriptions.release(now, subscription)

    def set_will(self, now: int, will: Will, *, timeout: int = LOOKUP_TIMEOUT) -> None:
        """Registers the will with the owner of its topic, in place of the one before. `WillSet` or
        `WillRefused` follows (§6.6)."""
        if self._client_will is None:
            self._client_will = ClientWill(self._context, self._look_up, self._next_id())
        self._client_will.start(now, will, timeout)

    def set_expiry(self, now: int, expiry_s: int) -> None:
        """Sets the session expiry (seconds) at every owner, with the subscriptions."""
        self._context.session_options = replace(self.session_options, expiry_s=expiry_s)
        self._subscriptions.renew(now)

    def leave(self, *, end_session: bool = False, with_will: bool = False) -> None:
        """Sends LEAVE to every owner (§6.4). A persistent session stays there, offline, unless `end_session`.
        `with_will`: the owner of the will publishes it (§6.6)."""
        if self._client_will is not None:
            self._client_will.stop()
        keep = self.session_options.is_persistent and not end_session
        reason = pb.REASON_DISCONNECT_WITH_WILL if with_will else pb.REASON_NORMAL_DISCONNECTION
        packet = pack(pb.Leave(reason=reason, keep_session=keep))
        self._has_left = True
        for link in self._links:
            self._context.core.send(link, packet)

    @property
    def is_will_kept(self) -> bool:
        """Whether the owner of the will's topic has the will now, as far as this client knows."""
        return self.will_state is WillState.KEPT

    @property
    def session_options(self) -> SessionOptions:
        """The session that this client has at every owner."""
        return self._context.session_options

    # In: the core

    def handle_event(self, now: int, event: Event) -> None:
        """Handles one event of the native core."""
        match event:
            case LinkDownEvent() if self._has_left:
                self._links.discard(event.link)
            case ControlEvent() if not self._has_left:
                self._handle_packet(now, event)
            case UnresolvedEvent() if not self._has_left:
                self._look_up().handle_unresolved(now, event.topic, event.start)
            case PublishedEvent():
                for sequence in range(event.sequence, event.sequence + event.count):
                    self._context.on_result(Published(sequence, event.topic, event.reason))
            case LinkUpEvent():
                self._links.add(event.link)
                if self._resolver is not None:
                    self._resolver.refusals.forget(event.address)
            case LinkDownEvent():
                self._handle_link_down(now, event)
        self._pass_on(now)

    def handle_timeout(self, now: int) -> None:
        """Does what is due."""
        if self._has_left:
            return
        if self._resolver is not None:
            self._resolver.handle_timeout(now)
        self._subscriptions.handle_timeout(now)
        if self._client_will is not None:
            self._client_will.handle_timeout(now)
        self._pass_on(now)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        if self._has_left:
            return None
        due = self._subscriptions.poll_timeout()
        if self._resolver is not None:
            due = earliest(due, self._resolver.poll_timeout())
        return due if self._client_will is None else earliest(due, self._client_will.poll_timeout())

    def poll_result(self) -> Result | None:
        """The next outcome; None: there is none now."""
        return self._results.popleft() if self._results else None

    @property
    def links(self) -> int:
        """The number of owners to which there is a link."""
        return len(self._links)

    @property
    def will_state(self) -> WillState | None:
        """The state of the will; None: there is none."""
        return None if self._client_will is None else self._client_will.state

    def _handle_packet(self, now: int, event: ControlEvent) -> None:
        body = body_of(event.packet)
        match body:
            case pb.SubAck() if event.link is not None:
                self._subscriptions.handle_session_suback(now, event.link, event.source, body)
            case pb.SubAck():
                self._subscriptions.owners.handle_answer(now, event.source, body)
            case pb.PubAccept() if self._resolver is not None:
                self._resolver.handle_accept(now, event.source, body)
            case pb.Referral() if self._resolver is not None:
                self._resolver.handle_referral(now, body)
            case pb.WillAck() if event.link is not None and self._client_will is not None:
                self._client_will.handle_ack(now, event.link, body)
            case pb.Leave() if event.link is None and body.reason == Reason.REASON_SESSION_TAKEN_OVER:
                self._taken_over(now, body.session)
            case pb.Challenge():
                if self._resolver is not None:
                    self._resolver.requests.handle_challenge(now, event.source, body)
                self._subscriptions.owners.handle_challenge(now, event.source, body)

    def _handle_link_down(self, now: int, event: LinkDownEvent) -> None:
        is_refused = event.reason == "refused"
        self._links.discard(event.link)
        if is_refused and self._resolver is not None:
            self._resolver.refusals.add(now, event.address)
        is_reset = event.reason in ("reset", "restarted")
        self._subscriptions.handle_link_down(now, event.link, is_refused=is_refused, is_reset=is_reset)
        if self._client_will is not None:
            self._client_will.handle_link_down(now, event.link, is_refused=is_refused)

    def _pass_on(self, now: int) -> None:
        """Gives the resolver's outcomes to the will or to the application, by their tickets."""
        if self._resolver is None:
            return
        client_will = self._client_will
        while (result := self._resolver.poll_result()) is not None:
            match result:
                case Resolved(lookup_id=lookup_id) if (
                    client_will is not None and lookup_id == client_will.lookup_id
                ):
                    client_will.handle_resolved(now, result.resolution)
                case ResolveFailed(lookup_id=lookup_id) if (
                    client_will is not None and lookup_id == client_will.lookup_id
                ):
                    client_will.handle_unresolved(now, result)
                case _:
                    self._context.on_result(result)

    def _look_up(self) -> Resolver:
        if self._resolver is None:
            context = self._context
            self._resolver = Resolver(context.core, context.random, context.caches, context.root)
        return self._resolver

    def _taken_over(self, now: int, session: int) -> None:
        """Obeys a LEAVE only if it has the session id, which is a secret (§6.4)."""
        if not session or session != self.session_options.session or self._is_taken_over:
            return
        self._is_taken_over = True
        if self._client_will is not None:
            self._client_will.stop()
        # This outcome comes before those of the subscriptions, so that their readers learn the reason.
        self._context.on_result(TakenOver())
        self._subscriptions.give_up(now, Reason.REASON_SESSION_TAKEN_OVER)

    def _queue_result(self, result: Result) -> None:
        assert self._results is not None, "nobody else is told"
        self._results.append(result)

    def _next_id(self) -> int:
        return next(self._ids)
