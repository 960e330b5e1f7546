"""One client's control among scripted nodes, in virtual time, over a network that loses, duplicates and
delays.

The nodes follow docs/protocol.md §§4.1, 5.2, 5.3 and 6. The link layer is taken for granted: every packet of
a session arrives once and in order. All random choices come from one seed.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from hbroker._native import ControlEvent, LinkDownEvent, LinkUpEvent, UnresolvedEvent, filter_touches
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.client import ClientControl
from hbroker.protocol.core import Event
from hbroker.protocol.packets import Address, Body, address_of, body_of, cut_of, pack
from hbroker.protocol.resolution.caches import ResolverCaches
from hbroker.protocol.results import Result, Subscribed
from hbroker.protocol.sessions.options import SessionOptions
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.subtree import is_within
from tests.protocol.fake_network import Faults

CLIENT: Address = ("10.9.9.9", 4000)
SECOND = 1_000_000


@dataclass(eq=False)
class Node:
    """A node that follows docs/protocol.md."""

    world: World
    name: str
    subtree: str
    address: Address
    children: list[Node] = field(default_factory=list)
    other_subtrees: list[str] = field(default_factory=list)
    """Other subtrees that the node holds."""
    epoch: int = 1
    alive: bool = True
    is_alone: bool = False
    """The node has no session with any of its children."""
    service_time: int = 0
    """How long the node takes for each request from a proved address, one request after the other, in
    microseconds."""
    is_free_at: int = 0
    reason: int = 0
    subscriptions: dict[str, pb.Subscribe] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    told: list[Body | None] = field(default_factory=list)
    """The packets that arrived in the session."""
    is_mute: bool = False
    """The node answers nothing within the session."""
    has_session: bool = False
    will_reason: int = 0

    def cut(self) -> tuple[str, str, Address, int]:
        return (self.subtree, self.name, self.address, self.epoch)

    def zone(self) -> pb.Zone:
        cuts = [cut_of(child.cut()) for child in self.children]
        return pb.Zone(subtree=self.subtree, epoch=self.epoch, scope=self.subtree, cuts=cuts)

    def below(self, topic: str) -> Node | None:
        return next((child for child in self.children if is_within(topic, child.subtree)), None)

    def touched(self, filter: str) -> list[Node]:
        return [child for child in self.children if filter_touches(filter, child.subtree)]

    def owns_match(self, filter: str) -> bool:
        """Exact enough for the filters of these tests: the node owns no match only if the whole filter lies
        below a cut."""
        return filter_touches(filter, self.subtree) and not any(
            is_within(filter.removesuffix("/#"), child.subtree) for child in self.children
        )

    def receive(self, packet: bytes, token: bytes) -> None:
        """Handles a datagram from the client outside of a session."""
        body = body_of(packet)
        self.asked[type(body).__name__] += 1
        if token != self.token:
            self.answer(pb.Challenge(token=self.token, lifetime_s=120))
        elif self.service_time:
            self.is_free_at = max(self.world.now, self.is_free_at) + self.service_time
            self.world.later(lambda: self.decide(body), self.is_free_at - self.world.now)
        else:
            self.decide(body)

    def decide(self, body: Body | None) -> None:
        if isinstance(body, pb.PubConnect):
            self.resolve(body, 0)
        elif isinstance(body, pb.Subscribe):
            self.discover(body, 0)

    def resolve(self, body: pb.PubConnect, hops: int) -> None:
        if not self.alive:
            return
        child = self.below(body.topic)
        is_recursive = body.mode == pb.MODE_RECURSIVE
        if self.reason or not is_within(body.topic, self.subtree):
            self.refuse(body, self.reason or pb.REASON_NOT_RESPONSIBLE)
        elif child is None:
            accept = pb.PubAccept(request=body.request, node=self.name, address=address_of(self.address))
            accept.zone.CopyFrom(self.zone())
            accept.ttl_s, accept.token, accept.hops = 300, self.token, hops
            self.answer(accept)
        elif is_recursive and self.is_alone:
            self.refuse(body, pb.REASON_OWNER_UNREACHABLE)
        elif is_recursive:
            self.world.later(lambda: child.resolve(body, hops + 1))
        else:
            referral = pb.Referral(request=body.request, node=self.name, next=cut_of(child.cut()))
            referral.zone.CopyFrom(self.zone())
            self.answer(referral)

    def refuse(self, body: pb.PubConnect, reason: int) -> None:
        name = pb.Reason.Name(reason)
        self.answer(pb.PubAccept(request=body.request, reason=name, node=self.name, ttl_s=1))

    def discover(self, body: pb.Subscribe, hops: int) -> None:
        if not self.alive:
            return
        touched = self.touched(body.filter)
        if body.mode == pb.MODE_RECURSIVE:
            for child in touched:
                self.world.later(partial(child.discover, body, hops + 1))
        self.answer(self.suback(body, touched, hops))

    def suback(self, body: pb.Subscribe, touched: list[Node], hops: int = 0) -> pb.SubAck:
        return pb.SubAck(
            request=body.request,
            reason=pb.Reason.Name(self.reason),
            node=self.name,
            address=address_of(self.address),
            filter=body.filter,
            group=body.group,
            responsible=self.owns_match(body.filter),
            passed_to=[cut_of(child.cut()) for child in touched],
            held=[held for held in (self.subtree, *self.other_subtrees) if filter_touches(body.filter, held)],
            token=self.token,
            hops=hops,
        )

    def receive_in_session(self, packet: bytes) -> None:
        body = body_of(packet)
        if not self.alive:
            return
        self.told.append(body)
        if self.is_mute:
            return
        if isinstance(body, pb.Subscribe):
            suback = self.suback(body, self.touched(body.filter))
            suback.active = suback.responsible
            suback.resumed = suback.active and self.has_session
            if suback.active:
                self.subscriptions[body.filter] = body
            self.world.deliver(self, suback)
        elif isinstance(body, pb.Unsubscribe):
            self.subscriptions.pop(body.filter, None)
            self.world.deliver(
                self, pb.SubAck(request=body.request, node=self.name, filter=body.filter, group=body.group)
            )
        elif isinstance(body, pb.Will):
            reason = pb.Reason.Name(self.will_reason)
            self.world.deliver(self, pb.WillAck(request=body.request, reason=reason))
        elif isinstance(body, pb.Leave):
            self.subscriptions.clear()

    def answer(self, body: pb.PubAccept | pb.SubAck | pb.Challenge | pb.Referral) -> None:
        self.world.to_client(self, pack(body))

    def install_state(self, child: Node) -> None:
        """Hands over to a new child: the subscriptions that touch it move, and both nodes tell the client
        (§5.4)."""
        self.children.append(child)
        for filter in list(self.subscriptions):
            if filter_touches(filter, child.subtree):
                child.subscriptions[filter] = self.subscriptions[filter]
                news = pb.Subscribe(filter=filter)
                suback = self.suback(news, [child])
                suback.active = suback.responsible
                if not suback.active:
                    del self.subscriptions[filter]
                self.world.deliver(self, suback)
                suback = child.suback(news, [])
                suback.active = True
                self.world.deliver(child, suback)

    @property
    def token(self) -> bytes:
        return f"token of {self.name}".encode()


class World:
    """The network, the client's core and its control.

    With `behind_nat` only nodes to which the client has sent something can reach the client.
    """

    def __init__(
        self,
        seed: int = 1,
        faults: Faults | None = None,
        behind_nat: bool = False,
        session_options: SessionOptions | None = None,
        caches: ResolverCaches | None = None,
    ) -> None:
        self.now = 1
        self.random = Random(seed)
        self.faults = faults or Faults()
        self.behind_nat = behind_nat
        self.nodes: dict[Address, Node] = {}
        self.results: list[Result] = []
        self.sent: list[tuple[Address, bytes, int]] = []
        self.zones: dict[str, tuple[Address, list[tuple[str, Address]]]] = {}
        self.waiting: set[str] = set()
        self.rejected: dict[str, int] = {}
        self.listening: dict[int, str] = {}
        self.leaving: list[tuple[bool, int]] = []
        """For each call of `set_leaving`: its argument, and the number of listeners at that time."""
        self.links: dict[Address, int] = {}
        self._written_to: set[Address] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._link_ids = count(1)
        self._last_in_session: dict[Address, int] = defaultdict(int)
        self.root = self.node("root", "")
        session_options = session_options or SessionOptions("tester")
        self.control = ClientControl(self, Random(seed), self.root.address, session_options, caches=caches)

    def node(self, name: str, subtree: str, parent: Node | None = None) -> Node:
        made = Node(self, name, subtree, ("10.0.0.1", 7000 + len(self.nodes)))
        self.nodes[made.address] = made
        if parent is not None:
            parent.children.append(made)
        return made

    def subscribe(self, filter: str, qos: int = 0, timeout: int = 10 * SECOND) -> int:
        return self.control.subscribe(self.now, filter, Options(qos), timeout=timeout)

    def resolve(self, topic: str, *, trace: bool = False) -> int:
        return self.control.resolve(self.now, topic, trace=trace)

    def publish_waits_for(self, topic: str) -> None:
        """Does what the core does with a message for `topic`."""
        known = self.zone(topic)
        if known is None or not known[1]:
            self.waiting.add(topic)
            self.event(UnresolvedEvent(topic, known[0] if known else None))

    # Time

    def run(self, until: Callable[[], object] = lambda: False, seconds: float = 60.0) -> bool:
        """Runs until `until` is true. Returns False if the time was over, or if no event was left."""
        end = self.now + round(seconds * SECOND)
        self._collect()
        while not until():
            due = self.control.poll_timeout()
            first = self._queue[0][0] if self._queue else None
            moments = [at for at in (due, first) if at is not None]
            if not moments or min(moments) > end:
                self.now = end
                return bool(until())
            self.now = max(self.now, min(moments))
            if first is not None and first <= self.now:
                heapq.heappop(self._queue)[2]()
            else:
                self.control.handle_timeout(self.now)
            self._collect()
        return True

    def later(self, action: Callable[[], None], delay: int | None = None) -> None:
        at = self.now + (self.random.randint(200, 2_000) if delay is None else delay)
        heapq.heappush(self._queue, (at, next(self._order), action))

    def result(self, kind: type[Result], seconds: float = 60.0) -> Result:
        """Removes and returns the next result of this kind."""
        assert self.run(lambda: any(isinstance(o, kind) for o in self.results), seconds), self.results
        found = next(o for o in self.results if isinstance(o, kind))
        self.results.remove(found)
        return found

    def event(self, event: Event) -> None:
        self.control.handle_event(self.now, event)
        self._collect()

    def _collect(self) -> None:
        while (result := self.control.poll_result()) is not None:
            self.results.append(result)

    # The network

    def _unreliably(self, action: Callable[[], None]) -> None:
        for _ in range(2 if self.random.random() < self.faults.duplication else 1):
            if self.random.random() >= self.faults.loss:
                late = self.random.random() < self.faults.late
                self.later(action, self.random.randint(1, SECOND) if late else None)

    def to_client(self, node: Node, packet: bytes) -> None:
        if not self.behind_nat or node.address in self._written_to:
            self._unreliably(lambda: self.event(ControlEvent(None, node.address, packet, False)))

    def deliver(self, node: Node, body: pb.SubAck | pb.WillAck) -> None:
        """Sends within the session, in order. The node opens the link if there is none (§3.1)."""
        link = self.connect(node.address)
        self._in_order(node.address, lambda: self.event(ControlEvent(link, node.address, pack(body), False)))

    def _in_order(self, address: Address, action: Callable[[], None]) -> None:
        at = max(self._last_in_session[address] + 1, self.now + self.random.randint(200, 2_000))
        self._last_in_session[address] = at
        self.later(action, at - self.now)

    def cut_off(self, node: Node, reason: str = "timeout") -> None:
        """Ends the link to a node, and discards what the node stored for the client. `reason`: as in
        `LinkDownEvent`."""
        node.subscriptions.clear()
        link = self.links.pop(node.address)
        self.event(LinkDownEvent(link, node.address, 1, False, reason))

    # The core's verbs

    def counters(self) -> dict[str, int]:
        return {}

    def connect(self, address: Address, token: bytes = b"") -> int:
        if address not in self.links:
            link = self.links[address] = next(self._link_ids)
            node = self.nodes.get(address)
            if node is not None and node.alive:
                self._in_order(address, lambda: self.event(LinkUpEvent(link, address, 1, False)))
            else:
                self.later(lambda: self._time_out(address, link), 2 * SECOND)
        return self.links[address]

    def _time_out(self, address: Address, link: int) -> None:
        if self.links.get(address) == link and not (address in self.nodes and self.nodes[address].alive):
            del self.links[address]
            self.event(LinkDownEvent(link, address, 1, False, "timeout"))

    def will_publisher(self, link: int) -> int:
        return 7

    def close(self, link: int) -> None:
        self.links = {address: known for address, known in self.links.items() if known != link}

    def send(self, link: int, packet: bytes) -> bool:
        address = next((address for address, known in self.links.items() if known == link), None)
        if address is None:
            return False
        if address in self.nodes:
            self._in_order(address, lambda: self.nodes[address].receive_in_session(packet))
        return True

    def send_to(
        self, address: Address, packet: bytes, token: bytes = b"", pad_to: int = 0, rights: int = 0
    ) -> None:
        self._written_to.add(address)
        self.sent.append((address, packet, pad_to))
        node = self.nodes.get(address)
        if node is not None and node.alive:
            self._unreliably(lambda: node.receive(packet, token) if node.alive else None)

    def install_zone(self, scope: str, cuts: object, owner: Address, token: bytes, ttl_us: int) -> None:
        self.zones[scope] = (owner, [(cut[0], cut[2]) for cut in cuts])  # type: ignore[attr-defined]
        self.waiting = {topic for topic in self.waiting if not (self.zone(topic) or ("", False))[1]}

    def forget_zones(self, owner: Address | None = None) -> None:
        self.zones = {scope: zone for scope, zone in self.zones.items() if zone[0] != owner}

    def zone(self, topic: str) -> tuple[Address, bool] | None:
        scopes = [scope for scope in self.zones if is_within(topic, scope)]
        if not scopes:
            return None
        owner, cuts = self.zones[max(scopes, key=len)]
        below = [address for subtree, address in cuts if is_within(topic, subtree)]
        return (below[0], False) if below else (owner, True)

    def reject(self, topic: str, reason: int) -> None:
        self.waiting.discard(topic)
        self.rejected[topic] = reason

    def listen(
        self, subscription: int, filter: str, qos: int, retain_as_published: bool = False, group: str = ""
    ) -> None:
        self.listening[subscription] = filter

    def unlisten(self, subscription: int, gives_back: bool = False) -> None:
        self.listening.pop(subscription, None)

    def set_leaving(self, is_leaving: bool) -> None:
        self.leaving.append((is_leaving, len(self.listening)))


def home(world: World) -> dict[str, Node]:
    """Figure 1 of the paper: three levels."""
    nodes = {"root": world.root}
    for room in ("kitchen", "livingroom", "bedroom", "outside"):
        nodes[room] = world.node(room, f"home/{room}", world.root)
    nodes["cams"] = world.node("cams", "home/outside/securitycams", nodes["outside"])
    return nodes


def subscribed(filter: str, qos: int = 0, seed: int = 1) -> tuple[World, dict[str, Node], int]:
    """The same nodes, all of which have answered a subscription; and its id."""
    world = World(seed)
    nodes = home(world)
    id = world.subscribe(filter, qos)
    world.result(Subscribed)
    return world, nodes, id


def subscribed_nodes(world: World, filter: str) -> set[str]:
    """The names of the nodes that have this subscription."""
    return {node.name for node in world.nodes.values() if filter in node.subscriptions}
