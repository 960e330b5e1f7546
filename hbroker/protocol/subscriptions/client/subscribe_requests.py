"""A client's SUBSCRIBEs within sessions: in whose name each asks, and when a node has answered (§6.2, §7.6).

A node is asked in the name of each listener that still waits for the subscription, one SUBSCRIBE after the
other, so that what is retained comes to that listener alone. Where all have been served it is asked to go on:
in the name of the only listener, or else of all. The packets of a session are handled in order.
"""

from __future__ import annotations

from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import ClientCore
from hbroker.protocol.packets import Address, pack
from hbroker.protocol.sessions.options import SessionTerms
from hbroker.protocol.subscriptions.client.owner import Site

__all__ = ["Confirmations"]

_UNTOLD: Final = -1


class Confirmations:
    """What the responsible nodes of all subscriptions were asked within their sessions."""

    __slots__ = ("_cleaned", "_core", "_random", "_sites", "_terms")

    def __init__(self, core: ClientCore, random: Random, terms: SessionTerms) -> None:
        self._core = core
        self._random = random
        self._terms = terms
        self._sites: dict[int, Site] = {}
        """By request: who is to answer it."""
        self._cleaned: dict[Address, int | None] = {}
        """§6.4: the links in which the owners were told to begin clean; None: one of them has answered."""

    def set_terms(self, terms: SessionTerms) -> None:
        """Other terms of the session, for what is asked from now on."""
        self._terms = terms

    def ask(self, site: Site, link: int) -> bool:
        """Makes or renews the subscription over the link to this node; False: the link is gone."""
        return all([self._send(site, link, listener) for listener in _askers(site)])

    def has_askers(self, site: Site) -> bool:
        """Whether a listener waits in whose name this node was not asked."""
        return bool(_unasked(site))

    def find(self, request: int) -> Site | None:
        """Who was asked."""
        return self._sites.get(request)

    def answered(self, site: Site, request: int) -> bool:
        """The node has the subscription. Returns whether it has answered all that it was asked."""
        del self._sites[request]
        site.served = {*site.served, site.asked.pop(request)}
        self.began(site)
        return not site.asked

    def began(self, site: Site) -> None:
        """§6.4: what the node has now is of this run of the client."""
        if self._terms.clean_start:
            self._cleaned[site.address] = None

    def forget(self, site: Site) -> None:
        """What it was asked is not waited for any more."""
        for request in site.asked:
            del self._sites[request]
        site.asked.clear()

    def _send(self, site: Site, link: int, listener: int) -> bool:
        request = self._random.getrandbits(64) or 1
        site.asked[request] = listener
        self._sites[request] = site
        body = site.subscription.packet(self._terms, listener)
        body.request = request
        body.clean_start = self._begins_clean(site, link)
        return self._core.send(link, pack(body))

    def _begins_clean(self, site: Site, link: int) -> bool:
        """§6.4: the first SUBSCRIBE of each link says it, until an owner has answered one."""
        told = self._cleaned.get(site.address, _UNTOLD)
        if not self._terms.clean_start or told is None or told == link:
            return False
        self._cleaned[site.address] = link
        return True


def _askers(site: Site) -> list[int]:
    listeners = site.subscription.listeners
    return _unasked(site) or (list(listeners) if len(listeners) == 1 else [0])


def _unasked(site: Site) -> list[int]:
    known = site.subscription
    waiting = known.waiting.difference(site.served, site.asked.values())
    return sorted(
        each for each in waiting if known.listeners[each].retain_handling != pb.RETAIN_HANDLING_DO_NOT_SEND
    )
