"""The subscriptions of one client, and their listeners (§6).

A subscription begins with its first listener and ends with its last. It is complete when every owner of
topics that its filter matches has it. `SubscriptionOwners` finds these owners.

When it ends, UNSUBSCRIBE goes to every owner (§6.3). If the link to an owner ends, the owner has ended the
subscription, too. If an owner does not answer in time, the application does not wait for it any longer.

If the client leaves a shared group, an owner that has not received the UNSUBSCRIBE sends messages that are
for another member (§6.5). So the core acknowledges no message without a listener, from before the listener is
removed until each owner has answered, or its link has ended.

A subscription may be moving from owner to owner when it ends (§5.4). Then an owner may take it over that got
no UNSUBSCRIBE. In a session that is not persistent, the client ends every subscription that it does not want
now. In a persistent session an earlier run may have made others. So this client remembers which subscriptions
it has ended, and ends only these again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.client_context import ClientContext
from hbroker.protocol.packets import TEMPORARY_REASONS, Address, Reason, pack
from hbroker.protocol.results import Subscribed, SubscriptionFailed, Unsubscribed
from hbroker.protocol.subscriptions.client.options import Key, NewListener
from hbroker.protocol.subscriptions.client.owners import SubscriptionOwners
from hbroker.protocol.subscriptions.client.subscription import ClientSubscription, SubscriptionEvent
from hbroker.protocol.timers import SECOND, TimerQueue, earliest

__all__ = ["ClientSubscriptions", "UnsubscribeRequests"]

_TIMEOUT: Final = 2 * SECOND
_MOST_REMEMBERED: Final = 4_096
"""The most subscriptions that are remembered as ended: the latest."""


@dataclass(slots=True, eq=False)
class _PendingUnsubscribe:
    """`listener`: whose `Unsubscribed` follows; None: nobody's, or it has followed. `awaited`: the links of
    the owners that have not answered, by request."""

    listener: int | None
    is_shared: bool
    awaited: dict[int, int] = field(default_factory=dict)


class UnsubscribeRequests:
    """All subscriptions that are being ended."""

    __slots__ = ("_by_request", "_context", "_deadlines", "_ended", "_leaving")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._by_request: dict[int, _PendingUnsubscribe] = {}
        self._deadlines: TimerQueue[_PendingUnsubscribe] = TimerQueue()
        self._leaving = 0
        """The number of open requests about shared groups."""
        self._ended: dict[Key, None] = {}

    def prepare(self, key: Key) -> None:
        """A listener of `key` is about to be removed. `start` or `forget` follows."""
        group, _ = key
        if group:
            self._context.core.set_leaving(True)

    def remember(self, key: Key) -> None:
        """The last listener of `key` was removed, and no owner may keep the subscription."""
        self._ended[key] = None
        if len(self._ended) > _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def revoke(self, key: Key) -> None:
        """The client wants `key` again."""
        self._ended.pop(key, None)

    def has_ended(self, key: Key) -> bool:
        """Whether this run has ended `key`, and does not want it again."""
        return key in self._ended

    def start(self, now: int, listener: int, key: Key, links: Iterable[int]) -> None:
        """Ends `key` in the sessions of `links`. `Unsubscribed` for `listener` follows."""
        pending = self._send(listener, key, links)
        self._deadlines.set(pending, now + _TIMEOUT)
        self._finish_if_answered(pending)

    def forget(self, key: Key, links: Iterable[int]) -> None:
        """Ends `key` in the sessions of `links`, without an outcome."""
        self._finish_if_answered(self._send(None, key, links))

    def handle_suback(self, request: int) -> bool:
        """Handles the answer to an UNSUBSCRIBE. False: it answers something else."""
        pending = self._by_request.pop(request, None)
        if pending is None:
            return False
        del pending.awaited[request]
        self._leaving -= pending.is_shared
        self._finish_if_answered(pending)
        return True

    def handle_link_down(self, link: int) -> None:
        """The link ended, and with it the subscriptions of the session."""
        for request, pending in list(self._by_request.items()):
            if pending.awaited[request] == link:
                self.handle_suback(request)

    def handle_timeout(self, now: int) -> None:
        """Reports the outcomes that silent owners have delayed for too long."""
        for pending in self._deadlines.due(now):
            self._say(pending)

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return self._deadlines.next()

    def _send(self, listener: int | None, key: Key, links: Iterable[int]) -> _PendingUnsubscribe:
        group, filter = key
        pending = _PendingUnsubscribe(listener, bool(group))
        for link in links:
            request = self._context.random.getrandbits(64) or 1
            if self._context.core.send(
                link, pack(pb.Unsubscribe(request=request, filter=filter, group=group))
            ):
                pending.awaited[request] = link
                self._by_request[request] = pending
                self._leaving += pending.is_shared
        return pending

    def _finish_if_answered(self, pending: _PendingUnsubscribe) -> None:
        if not pending.awaited:
            self._deadlines.cancel(pending)
            self._say(pending)
        if pending.is_shared:
            self._context.core.set_leaving(self._leaving > 0)

    def _say(self, pending: _PendingUnsubscribe) -> None:
        listener, pending.listener = pending.listener, None
        if listener is not None:
            self._context.on_result(Unsubscribed(listener))


class ClientSubscriptions:
    """All subscriptions of one client."""

    __slots__ = ("_by_id", "_by_key", "_context", "_deadlines", "_unsubscribe_requests", "owners")

    def __init__(self, context: ClientContext) -> None:
        self._context = context
        self._by_key: dict[Key, ClientSubscription] = {}
        self._by_id: dict[int, ClientSubscription] = {}
        self._deadlines: TimerQueue[int] = TimerQueue()
        self.owners = SubscriptionOwners(context, self._update, self._handle_refused)
        self._unsubscribe_requests = UnsubscribeRequests(context)

    # In: the application

    def subscribe(self, now: int, new_listeners: Sequence[NewListener], timeout: int) -> None:
        """Adds listeners. Messages may arrive for them from now on; `Subscribed` follows for each once the
        subscription is complete.

        All of them listen before the first SUBSCRIBE is sent, because queued messages of the session arrive
        with the first link (§6.4).
        """
        for each in new_listeners:
            (group, filter), options = each.key, each.options
            self._context.core.listen(each.listener, filter, options.qos, options.retain_as_published, group)
        for each in new_listeners:
            self._deadlines.set(each.listener, now + timeout)
            self._add(now, each)

    def unsubscribe(self, now: int, listener: int) -> None:
        """Removes a listener; with the last one the subscription ends. `Unsubscribed` follows."""
        subscription = self._by_id.get(listener)
        key = ("", "") if subscription is None else subscription.key
        self._unsubscribe_requests.prepare(key)
        self._unsubscribe_requests.start(now, listener, key, self._remove(now, listener))

    def release(self, now: int, listener: int) -> None:
        """Removes a listener, and leaves the subscription in the session at its owners (§6.4)."""
        self._remove(now, listener, is_kept=True)

    def renew(self, now: int) -> None:
        """Sends the options of the session to every owner."""
        for subscription in self._by_key.values():
            self.owners.renew(now, subscription)
            self._update(subscription)

    def give_up(self, now: int, reason: int) -> None:
        """Fails every subscription, and sends nothing to the owners."""
        for subscription in list(self._by_key.values()):
            subscription.reason = reason
            for listener in sorted(subscription.listeners):
                self._fail(now, listener, reason, answered=True)

    # In: the network

    def handle_session_suback(self, now: int, link: int, source: Address, suback: pb.SubAck) -> None:
        """§6.2, §5.4: handles a SUBACK within a session: an answer or, with request 0, an unsolicited one."""
        key = suback.group, suback.filter
        subscription = self._by_key.get(key)
        if subscription is not None and suback.active and not suback.resumed:
            subscription.was_missing = True
        if not suback.request:
            self._handle_owner_change(now, link, source, suback, subscription)
        elif self._unsubscribe_requests.handle_suback(suback.request):
            pass
        elif not self.owners.handle_session_suback(now, link, suback) and suback.active:
            self._forget_if_unwanted(link, key)

    def handle_link_down(
        self, now: int, link: int, *, is_refused: bool = False, is_reset: bool = False
    ) -> None:
        """§6.3: makes every subscription of that session again. `is_refused`: the owner refused the session,
        because it has too many. `is_reset`: the owner is there, and does not know the session."""
        self._unsubscribe_requests.handle_link_down(link)
        for subscription in self._by_key.values():
            subscription.handle_link_down(link)
        self.owners.handle_link_down(now, link, is_refused=is_refused, is_reset=is_reset)

    def handle_timeout(self, now: int) -> None:
        """Asks silent nodes again, makes lost subscriptions again, and fails those whose time is over."""
        for listener in self._deadlines.due(now):
            subscription = self._by_id[listener]
            reason = subscription.reason or Reason.REASON_OWNER_UNREACHABLE
            self._abandon(now, listener, reason, answered=reason == Reason.REASON_QUOTA_EXCEEDED)
        self.owners.handle_timeout(now)
        self._unsubscribe_requests.handle_timeout(now)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due, in microseconds; None: never."""
        return earliest(
            self._deadlines.next(),
            self.owners.poll_timeout(),
            self._unsubscribe_requests.poll_timeout(),
        )

    # Listeners and outcomes

    def _add(self, now: int, new_listener: NewListener) -> None:
        key, listener, options = new_listener.key, new_listener.listener, new_listener.options
        subscription = self._by_key.get(key)
        is_new = subscription is None
        before = None if subscription is None else subscription.options
        if subscription is None:
            group, filter = key
            subscription = self._by_key[key] = ClientSubscription(filter, group)
            self._unsubscribe_requests.revoke(key)
        subscription.listeners[listener] = options
        subscription.pending_listeners.add(listener)
        self._by_id[listener] = subscription
        if is_new:
            self.owners.begin(now, subscription)
        elif subscription.options != before or options.retain_handling == pb.RETAIN_HANDLING_SEND:
            self.owners.renew(now, subscription)
        self._update(subscription)

    def _handle_owner_change(
        self, now: int, link: int, source: Address, suback: pb.SubAck, subscription: ClientSubscription | None
    ) -> None:
        if suback.active:
            self._forget_if_unwanted(link, (suback.group, suback.filter))
        if subscription is None or not suback.node:
            return
        # §7.8: the client chose that the session ends when its queue overflows. §4.6: it has no right to it
        # any more.
        if suback.reason in (Reason.REASON_QUOTA_EXCEEDED, Reason.REASON_NOT_AUTHORIZED):
            self._abandon_all(now, subscription, suback.reason)
        else:
            self.owners.handle_owner_change(now, subscription, link, source, suback)

    def _update(self, subscription: ClientSubscription) -> None:
        subscription.update_state()
        if subscription.is_complete:
            subscription.restarts = 0
            for listener in sorted(subscription.pending_listeners):
                self._deadlines.cancel(listener)
                self._context.on_result(Subscribed(listener, subscription.owners, subscription.is_resumed))
            subscription.set_complete()

    def _forget_if_unwanted(self, link: int, key: Key) -> None:
        """Ends a subscription that a node has made or taken over, although this client has ended it. In a
        persistent session it ends only what this run has ended, because an earlier run may have made the rest
        (§6.3)."""
        is_ours = not self._context.session_options.is_persistent or self._unsubscribe_requests.has_ended(key)
        if key not in self._by_key and is_ours:
            self._unsubscribe_requests.forget(key, [link])

    # Ends

    def _handle_refused(self, now: int, subscription: ClientSubscription, reason: int) -> None:
        """§8: a refusal that passes is handled like silence; any other one ends the subscription."""
        subscription.reason = reason
        if reason not in TEMPORARY_REASONS:
            self._abandon_all(now, subscription, reason)

    def _abandon_all(self, now: int, subscription: ClientSubscription, reason: int) -> None:
        for listener in sorted(subscription.listeners):
            self._abandon(now, listener, reason, answered=True)

    def _fail(self, now: int, listener: int, reason: int, *, answered: bool) -> list[int]:
        """Fails a listener. Returns the links of the sessions in which the subscription goes on."""
        subscription = self._by_id[listener]
        tried = tuple(owner.text for owner in subscription.pending_owners)
        self._context.on_result(SubscriptionFailed(listener, subscription.title, reason, answered, tried))
        return self._remove(now, listener)

    def _abandon(self, now: int, listener: int, reason: int, *, answered: bool) -> None:
        """Fails a listener. With the last one, ends the subscription at all owners that have it."""
        key = self._by_id[listener].key
        self._unsubscribe_requests.prepare(key)
        self._unsubscribe_requests.forget(key, self._fail(now, listener, reason, answered=answered))

    def _remove(self, now: int, listener: int, *, is_kept: bool = False) -> list[int]:
        """Removes a listener. Returns the links of the sessions in which the subscription must be ended.

        If the other listeners ask for less, the owners get a SUBSCRIBE with the new options. `is_kept`: the
        subscription stays in the session.
        """
        subscription = self._by_id.pop(listener, None)
        is_member = subscription is not None and bool(subscription.key[0])
        self._context.core.unlisten(listener, is_member and not is_kept)
        self._deadlines.cancel(listener)
        if subscription is None:
            return []
        before = subscription.options
        del subscription.listeners[listener]
        subscription.pending_listeners.discard(listener)
        if subscription.listeners:
            if subscription.options != before:
                self.owners.renew(now, subscription)
                self._update(subscription)
            return []
        del self._by_key[subscription.key]
        if not is_kept:
            self._unsubscribe_requests.remember(subscription.key)
        subscription.state_machine.handle(SubscriptionEvent.END)
        for owner in subscription.all_owners:
            self.owners.release(owner)
        return sorted(subscription.links)
