"""A client's SUBSCRIBEs within sessions: the listener of each, and when a node has answered all (§6.2, §7.6).

A node gets one SUBSCRIBE for each listener that still waits for the subscription, so that each listener gets
the retained messages for itself. If no listener waits, the SUBSCRIBE is in the name of the only listener, or
in the name of all. The packets of a session are handled in order.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import ClientCore
from hbroker.protocol.packets import Address, pack
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.subscriptions.client.owner import SubscriptionOwner

__all__ = ["SubscribeRequests"]

_NEVER_ASKED: Final = -1


class SubscribeRequests:
    """The SUBSCRIBEs to the responsible nodes of all subscriptions, within their sessions."""

    __slots__ = ("_cleaned", "_core", "_owners", "_random", "_session_options")

    def __init__(self, core: ClientCore, random: Random, session_options: SessionOptions) -> None:
        self._core = core
        self._random = random
        self._session_options = session_options
        self._owners: dict[int, SubscriptionOwner] = {}
        """By request: the node that must answer it."""
        self._cleaned: dict[Address, int | None] = {}
        """§6.4: by owner, the link on which it was asked for a clean start; None: it has answered."""

    def set_session_options(self, session_options: SessionOptions) -> None:
        """Sets the options of the session for later requests."""
        self._session_options = session_options

    def ask(self, owner: SubscriptionOwner, link: int) -> bool:
        """Makes or renews the subscription over the link to this node. False: the link is gone."""
        return all([self._send(owner, link, listener) for listener in _askers(owner)])

    def has_askers(self, owner: SubscriptionOwner) -> bool:
        """Whether a listener waits for which this node was not asked yet."""
        return bool(_unasked(owner))

    def find(self, request: int) -> SubscriptionOwner | None:
        """The node that must answer this request, or None."""
        return self._owners.get(request)

    def answered(self, owner: SubscriptionOwner, request: int) -> bool:
        """The node has the subscription. Returns whether it has answered all requests."""
        del self._owners[request]
        owner.served = {*owner.served, owner.pending.pop(request)}
        self.began(owner)
        return not owner.pending

    def began(self, owner: SubscriptionOwner) -> None:
        """§6.4: everything that the node has now is of this run of the client."""
        if self._session_options.clean_start:
            self._cleaned[owner.address] = None

    def forget(self, owner: SubscriptionOwner) -> None:
        """Forgets the requests to this node."""
        for request in owner.pending:
            del self._owners[request]
        owner.pending.clear()

    def _send(self, owner: SubscriptionOwner, link: int, listener: int) -> bool:
        request = self._random.getrandbits(64) or 1
        owner.pending[request] = listener
        self._owners[request] = owner
        body = owner.subscription.packet(self._session_options, listener)
        body.request = request
        body.clean_start = self._begins_clean(owner, link)
        return self._core.send(link, pack(body))

    def _begins_clean(self, owner: SubscriptionOwner, link: int) -> bool:
        """§6.4: `clean_start` is in the first SUBSCRIBE of each link to an owner, until the owner has
        answered one."""
        last_link = self._cleaned.get(owner.address, _NEVER_ASKED)
        if not self._session_options.clean_start or last_link is None or last_link == link:
            return False
        self._cleaned[owner.address] = link
        return True


def _askers(owner: SubscriptionOwner) -> list[int]:
    listeners = owner.subscription.listeners
    return _unasked(owner) or (list(listeners) if len(listeners) == 1 else [0])


def _unasked(owner: SubscriptionOwner) -> list[int]:
    known = owner.subscription
    waiting = known.waiting.difference(owner.served, owner.pending.values())
    return sorted(
        each for each in waiting if known.listeners[each].retain_handling != pb.RETAIN_HANDLING_DO_NOT_SEND
    )
