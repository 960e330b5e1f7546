"""The nodes that a client's subscriptions touch (§6): discovers, confirms, recovers.

Two streams of answers meet here. Outside of a session every node that the filter touches tells whether it
is responsible, and to whom it passed the question on; within the sessions the responsible ones confirm. Who
stays silent is asked directly; a session that is lost is made again with the same node once, and then by a
new discovery, because the subtree may have moved (§6.3). Owners also come and go of themselves, by
handover: they say so with a SUBACK that answers no request (§5.4).

Where a sibling has heard of the one node that serves the filter (`chart`), that one is confirmed with at
once, and what it answers there takes the place of the discovery. If that does not do, all begins at the root.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.core import ClientCore
from hbroker.protocol.packets import Address, Reason, cut_from
from hbroker.protocol.reasons import PASSING_REASONS
from hbroker.protocol.resolution.owner_cache import HINT_PATIENCE, Holder, Knowledge
from hbroker.protocol.resolution.requests import (
    TOKEN_LIFETIME,
    Request,
    Requests,
    keep_token,
    reachable,
)
from hbroker.protocol.sessions.options import SessionTerms
from hbroker.protocol.state_machine import Machine
from hbroker.protocol.subscriptions.client.owner import TRANSITIONS, Event, Site, State
from hbroker.protocol.subscriptions.client.suback_parts import Parts
from hbroker.protocol.subscriptions.client.subscribe_requests import Confirmations
from hbroker.protocol.subscriptions.client.subscription import Subscription
from hbroker.protocol.timer_queue import Agenda, earliest
from hbroker.protocol.timers import SECOND, retry_after

__all__ = ["Sites"]

_DIRECT_TRIES: Final = 4
_CONFIRM_PATIENCE: Final = 5 * SECOND
_MOST_SITES: Final = 10_000


class Sites:
    """Those of all subscriptions of one client. `review`: called after what may complete a subscription, or
    make it incomplete; `refuse`: with the reason for which a node refuses one."""

    __slots__ = (
        "_by_link",
        "_chart",
        "_confirmations",
        "_core",
        "_pauses",
        "_questions",
        "_random",
        "_refuse",
        "_review",
        "_root",
        "_terms",
        "_tokens",
    )

    def __init__(
        self,
        core: ClientCore,
        random: Random,
        knowledge: Knowledge,
        root: Address,
        terms: SessionTerms,
        review: Callable[[Subscription], None],
        refuse: Callable[[int, Subscription, int], None],
    ) -> None:
        self._core = core
        self._random = random
        self._tokens = knowledge.tokens
        self._chart = knowledge.chart
        self._root = root
        self._terms = terms
        self._review = review
        self._refuse = refuse
        self._questions: Requests[Site] = Requests(core, random, knowledge.tokens)
        self._by_link: dict[int, dict[Site, None]] = {}
        self._confirmations = Confirmations(core, random, terms)
        self._pauses: Agenda[Site] = Agenda()

    # In: the client

    def begin(self, now: int, known: Subscription) -> None:
        """A new subscription."""
        hint = self._chart.sole_holder(now, known.filter)
        if hint is None:
            self._discover(now, known)
        else:
            self._begin_at(now, known, hint)

    def renew(self, now: int, known: Subscription) -> None:
        """What is wanted of a subscription is not what it was: who holds it is told."""
        for site in known.everyone:
            if site.machine.accepts(Event.RENEW):
                site.machine.handle(Event.RENEW)
                self._confirm(now, site)

    def set_terms(self, terms: SessionTerms) -> None:
        """Other terms of the session, for what is asked from now on."""
        self._terms = terms
        self._confirmations.set_terms(terms)

    def release(self, site: Site) -> None:
        """Awaits nothing more from this node, and forgets the session with it."""
        self._close_question(site)
        self._pauses.cancel(site)
        self._confirmations.forget(site)
        if site.link is not None:
            there = self._by_link[site.link]
            del there[site]
            if not there:
                del self._by_link[site.link]
            site.link = None

    # In: the network

    def handle_challenge(self, now: int, source: Address, challenge: pb.Challenge) -> None:
        """§4.1."""
        self._questions.handle_challenge(now, source, challenge)

    def handle_answer(self, now: int, source: Address, suback: pb.SubAck) -> None:
        """§6.1: a SUBACK outside of a session says who is responsible, and who was asked besides."""
        question = self._questions.find(suback.request)
        if question is None or not suback.node:
            return
        asked = question.owner
        known = asked.subscription
        is_direct = asked is not known.entry
        self._name(now, known, suback.passed_to, ask=is_direct)
        if suback.reason != Reason.REASON_SUCCESS:
            self._refuse(now, known, suback.reason)
            return
        site = self._site(now, known, suback.node, reachable(suback.address, source))
        self._learn(now, site, suback, is_root=not is_direct and source == question.address)
        if not site.parts.take(suback):
            self._review(known)
            return
        if site.link is None and not self._stands(now, site, suback):
            self._review(known)
            return
        if not is_direct and (source == question.address or suback.hops == 0):
            asked.machine.handle(Event.DISCLAIM)
            self._questions.settle(question)
        elif is_direct and asked.node != suback.node:  # another node has this address now
            asked.machine.handle(Event.DISCLAIM)
            self.release(asked)
            self._doubt(now, asked)
        self._judge(now, site, suback.responsible)
        self._review(known)

    def handle_confirmation(self, now: int, link: int, suback: pb.SubAck) -> bool:
        """§6.2: an answer within a session; False: to nothing that is open."""
        site = self._confirmations.find(suback.request)
        if site is None or site.link != link:
            return False
        self._confirmed(now, link, site, suback)
        return True

    def handle_news(
        self, now: int, known: Subscription, link: int, source: Address, suback: pb.SubAck
    ) -> None:
        """§5.4: an owner that came or went of itself."""
        before = known.sites.get(suback.node)
        is_awaited = known.is_discovering if before is None else before.is_awaited
        site = self._site(now, known, suback.node, reachable(suback.address, source))
        self._learn(now, site, suback)
        is_whole = site.told.take(suback)
        if is_whole:
            site.heard(site.answer.amended(site.told.answer))
        self._name(now, known, suback.passed_to, ask=False, moved=True)
        if not is_whole:
            return
        if suback.active and site.asked and site.link == link:
            return  # Its answer to what it was asked follows.
        if suback.active and is_awaited:  # §6.2: it has not told what it delegated
            site.machine.handle(Event.CLAIM)
            self._confirm(now, site)
        elif suback.active and site.state is State.BACKING_OFF:  # Nor what it has been handed since.
            site.machine.handle(Event.RESUME)
            self._confirm(now, site)
        elif suback.active:
            self.release(site)
            self._attach(site, link)
            self._confirmations.began(site)
            self._activate(now, site)
        elif not site.told.answer.held or site.has_told:
            self._disclaimed(now, link, site, suback)
        elif site.is_awaited:
            self._ask_directly(now, site)
        self._review(known)

    def handle_link_down(self, now: int, link: int, *, is_refused: bool) -> None:
        """§6.3: every subscription in that session is to be made again. `is_refused`: see `Subscriber`."""
        for site in list(self._by_link.get(link, ())):
            if is_refused:
                site.subscription.reason = Reason.REASON_QUOTA_EXCEEDED
            self._chart.forget(site.address)
            self._pause(now, site, Event.LINK_DOWN)
            self._review(site.subscription)

    def handle_timeout(self, now: int) -> None:
        """Asks the silent, and makes again what was lost."""
        for question in self._questions.unanswered(now):
            self._unanswered(now, question.owner, question)
        for site in self._pauses.due(now):
            self._pause_over(now, site)

    # Out

    def poll_timeout(self) -> int | None:
        """When `handle_timeout` is due."""
        return earliest(self._questions.poll_timeout(), self._pauses.next())

    # Discovery

    def _discover(self, now: int, known: Subscription) -> None:
        for site in known.restart():
            self.release(site)
        known.entry = Site(known, "", self._root, Machine(TRANSITIONS, State.ASKED))
        self._ask(now, known.entry, pb.MODE_RECURSIVE)

    def _begin_at(self, now: int, known: Subscription, hint: Holder) -> None:
        """Begins with the node that seems to serve all of it: what it holds it says within the session."""
        site = known.name(hint.node, hint.address)
        site.took_note_of(hint.subtree, 0)
        self._judge(now, site, responsible=True)
        if site.state is State.CONFIRMING:
            self._pauses.set(site, now + HINT_PATIENCE)

    def _learn(self, now: int, site: Site, suback: pb.SubAck, *, is_root: bool = False) -> None:
        """What siblings may be spared to ask."""
        keep_token(self._tokens, now, site.address, suback.token, TOKEN_LIFETIME)
        self._chart.learn(now, suback.node, site.address, suback.held, suback.passed_to, is_root=is_root)

    def _ask(self, now: int, site: Site, mode: pb.Mode) -> None:
        known = site.subscription
        body = known.packet(self._terms)
        body.mode = mode
        self._close_question(site)
        site.question = self._questions.ask(now, site, site.address, body)

    def _name(
        self, now: int, known: Subscription, cuts: Iterable[pb.Cut], *, ask: bool, moved: bool = False
    ) -> None:
        """Takes note of a `passed_to`. `ask`: the question was not passed on to them, so we ask. `moved`: the
        subtrees have come to them, of which they will speak themselves; or else we ask. Otherwise they are
        asked whose answer does not stand for the delegation (§6.1)."""
        for subtree, node, address, epoch in filter(None, map(cut_from, cuts)):
            site = known.sites.get(node)
            is_new = site is None
            if site is None:
                if len(known.sites) >= _MOST_SITES or not node:
                    continue
                site = self._expect(now, known, node, address)
            if not site.took_note_of(subtree, epoch):
                continue
            if site.state is State.ACTIVE:
                self._doubt(now, site)
            elif site.state is not State.CLEAR and not (ask and is_new):
                continue
            elif ask or (not moved and (subtree, epoch) in site.left_out):
                self._ask_directly(now, site)
            elif moved:
                site.machine.handle(Event.EXPECT)
                self._await(now, site)

    def _stands(self, now: int, site: Site, suback: pb.SubAck) -> bool:
        """§6.1: whether an answer outside of a session is of use. One that is not responsible, and does not
        stand for all that the node was named for, is as good as none."""
        site.heard(site.parts.answer)
        if suback.responsible or not site.left_out:
            return True
        site.subscription.reason = Reason.REASON_NOT_SERVING
        if site.state is State.CLEAR:
            self._ask_directly(now, site)
        return False

    def _doubt(self, now: int, site: Site) -> None:
        """§6.1: of what its answer leaves out the node may yet speak itself; else only a discovery tells."""
        if site.left_out:
            self._chart.forget(site.address)
            known = site.subscription
            known.reason = Reason.REASON_NOT_SERVING
            self._pauses.set(site, now + retry_after(known.restarts, self._random))

    def _ask_directly(self, now: int, site: Site) -> None:
        site.machine.handle(Event.SILENCE)
        self._pauses.cancel(site)
        self._ask(now, site, pb.MODE_REFERRAL)

    def _unanswered(self, now: int, site: Site, question: Request[Site]) -> None:
        site.machine.handle(Event.SILENCE)
        if site is site.subscription.entry or question.tries < _DIRECT_TRIES:
            self._questions.repeat(now, question)
        else:
            self._chart.forget(site.address)
            self._start_over(now, site.subscription)

    def _start_over(self, now: int, known: Subscription) -> None:
        """Discovers anew. Who holds the subscription is asked again in its session, to name its cuts."""
        known.restarts += 1
        self._discover(now, known)
        self.renew(now, known)
        self._review(known)

    def _site(self, now: int, known: Subscription, node: str, address: Address) -> Site:
        site = known.sites.get(node) or self._expect(now, known, node, address)
        if site.link is None:
            site.address = address
        return site

    def _expect(self, now: int, known: Subscription, node: str, address: Address) -> Site:
        site = known.name(node, address)
        self._await(now, site)
        return site

    def _await(self, now: int, site: Site) -> None:
        self._pauses.set(site, now + retry_after(0, self._random))

    def _judge(self, now: int, site: Site, responsible: bool) -> None:
        """What a node says outside of a session counts only until the session with it begins."""
        if site.link is not None or site.state is State.BACKING_OFF:
            return
        site.machine.handle(Event.CLAIM if responsible else Event.DISCLAIM)
        self.release(site)
        if responsible:
            self._confirm(now, site)

    # Within sessions

    def _confirm(self, now: int, site: Site) -> None:
        """§6.2: makes the subscription in the session with this node, or renews it."""
        self._close_question(site)
        link = self._core.connect(site.address, self._tokens.get(now, site.address) or b"")
        if link != site.link:
            self.release(site)
            self._attach(site, link)
        if self._confirmations.ask(site, link):
            self._pauses.set(site, now + _CONFIRM_PATIENCE)
        else:
            self._pause(now, site, Event.LINK_DOWN)

    def _confirmed(self, now: int, link: int, site: Site, suback: pb.SubAck) -> None:
        known = site.subscription
        self._learn(now, site, suback)
        if suback.node and suback.node != site.node:  # another node has this address now
            site.machine.handle(Event.DISCLAIM)
            self.release(site)
            self._start_over(now, known)
            return
        is_whole = site.told.take(suback)
        if is_whole:
            site.heard(site.told.answer)
        self._name(now, known, suback.passed_to, ask=True)
        self._ask_heirs(now, known, suback.passed_to)
        if suback.reason in PASSING_REASONS:
            known.reason = suback.reason
            self._pause(now, site, Event.DEFER)
        elif suback.reason not in (Reason.REASON_SUCCESS, Reason.REASON_NOT_RESPONSIBLE):
            self._refuse(now, known, suback.reason)
        elif not is_whole:
            pass
        elif suback.active:
            self._served(now, site, suback)
        else:
            self._disclaimed(now, link, site, suback)
        self._review(known)

    def _served(self, now: int, site: Site, suback: pb.SubAck) -> None:
        is_settled = self._confirmations.answered(site, suback.request)
        if is_settled:
            self._activate(now, site)

    def _ask_heirs(self, now: int, known: Subscription, cuts: Iterable[pb.Cut]) -> None:
        """§5.4: what a node got by a handover is older than what the one that gave it was asked since."""
        for heir in [known.sites[cut.node] for cut in cuts if cut.node in known.sites]:
            if heir.state is State.ACTIVE and self._confirmations.has_askers(heir):
                heir.machine.handle(Event.RENEW)
                self._confirm(now, heir)

    def _disclaimed(self, now: int, link: int, site: Site, suback: pb.SubAck) -> None:
        """§6.3: where it does not say who has what it was named for, it may have lost that to anybody."""
        known = site.subscription
        known.links.discard(link)
        site.machine.handle(Event.DISCLAIM)
        self.release(site)
        if site.left_out or not (suback.passed_to or suback.held):
            self._chart.forget(site.address)
            self._start_over(now, known)

    def _activate(self, now: int, site: Site) -> None:
        site.machine.handle(Event.ACTIVATE)
        site.failures = 0
        self._pauses.cancel(site)
        self._doubt(now, site)

    def _pause(self, now: int, site: Site, event: Event) -> None:
        """Makes the subscription again later (§6.3)."""
        site.machine.handle(event)
        self.release(site)
        attempts = site.failures + site.subscription.restarts
        site.failures += 1
        self._pauses.set(site, now + retry_after(attempts, self._random))

    def _pause_over(self, now: int, site: Site) -> None:
        if site.state is State.EXPECTED:
            self._ask_directly(now, site)
        elif site.state is State.BACKING_OFF and site.failures == 1:
            site.machine.handle(Event.RESUME)
            self._confirm(now, site)
        else:  # it did not answer a second time, or is silent in its session: the subtree may have moved
            self._chart.forget(site.address)
            self._start_over(now, site.subscription)

    def _attach(self, site: Site, link: int) -> None:
        site.link, site.told = link, Parts()
        site.subscription.links.add(link)
        self._by_link.setdefault(link, {})[site] = None

    def _close_question(self, site: Site) -> None:
        if site.question is not None:
            self._questions.close(site.question)
            site.question = None
