"""A model of MQTT 5 §4.8.2: a plain subscription that matches gets one copy, a group's one in all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from random import Random

import pytest

from hbroker import sync
from hbroker._native import topic_matches
from tests.interop.clients import PATIENCE_S
from tests.interop.house import House
from tests.interop.peer import Peer, connected, fields_of
from tests.waiting import until

GROUPS = ("", "", "g1", "g2")
MESSAGES = 12


def random_filters(random: Random, stem: str) -> list[tuple[str, str]]:
    """(group, filter) pairs of one client, each once."""
    filters = [f"home/kitchen/{stem}/a", f"home/kitchen/{stem}/+", f"weather/{stem}/#", f"+/+/{stem}/a"]
    pairs = [(group, filter) for group in sorted(set(GROUPS)) for filter in filters]
    return random.sample(pairs, random.randint(1, 6))


def joined(group: str, filter: str) -> str:
    return f"$share/{group}/{filter}" if group else filter


def taken(peer: Peer) -> Counter[tuple[int, bytes]]:
    """By subscription identifier and payload."""
    copies: Counter[tuple[int, bytes]] = Counter()
    for message in list(peer.received):
        copies.update((id, bytes(message.payload)) for id in fields_of(message)["SubscriptionIdentifier"])
    return copies


@pytest.mark.parametrize("seed", range(4))
def test_every_copy_is_counted(house: House, seed: int) -> None:
    random, stem = Random(seed), f"model{seed}"
    owned: dict[tuple[str, int], tuple[str, str]] = {}
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for n in range(4):
            place = house.place(random.choice(("one", "two")), f"{stem}-{n}", kept=n % 2 == 1)
            peer = peers[place.client_id] = stack.enter_context(connected(place))
            for id, (group, filter) in enumerate(random_filters(random, stem), 1):
                owned[place.client_id, id] = group, filter
                peer.subscribe((joined(group, filter), random.randint(0, 2)), identifier=id)
            # What of a kept session moves to its own member has moved when a later one is there.
            peer.subscribe((f"$share/{place.client_id}/#", 1), identifier=1_000)
            peer.client.unsubscribe(f"$share/{place.client_id}/#")
        native = stack.enter_context(sync.connect(house.root, client_id=f"{stem}-native"))
        own = {}
        for id, (group, filter) in enumerate(random_filters(random, stem), 1):
            owned["native", id] = group, filter
            own[id] = stack.enter_context(native.subscribe(joined(group, filter), qos=2))
        publisher = stack.enter_context(connected(house.place("one", f"{stem}-publisher")))
        copies: Counter[tuple[str, int, bytes]] = Counter()
        plain: Counter[tuple[str, int, bytes]] = Counter()
        shared: Counter[tuple[str, str, bytes]] = Counter()
        for n in range(MESSAGES):
            topic = random.choice([f"home/kitchen/{stem}/a", f"home/kitchen/{stem}/b", f"weather/{stem}/a"])
            payload = b"%d" % n
            publisher.client.publish(topic, payload, random.choice((1, 2))).wait_for_publish(PATIENCE_S)
            for (client, id), (group, filter) in owned.items():
                if not topic_matches(filter, topic):
                    continue
                if group:
                    shared[group, filter, payload] = 1
                else:
                    plain[client, id, payload] = 1

        def count() -> int:
            for id, subscription in own.items():
                while (message := subscription.next(timeout=0)) is not None:
                    copies["native", id, message.payload] += 1
            for name, peer in peers.items():
                for key in [key for key in copies if key[0] == name]:
                    del copies[key]
                for (id, payload), many in taken(peer).items():
                    if id < 1_000:
                        copies[name, id, payload] = many
            return copies.total()

        wanted = plain.total() + shared.total()
        until(lambda: count() >= wanted, f"{wanted} copies", PATIENCE_S, found=count)
        count()
    groups: Counter[tuple[str, str, bytes]] = Counter()
    for (client, id, payload), many in copies.items():
        group, filter = owned[client, id]
        if group:
            groups[group, filter, payload] += many
    assert groups == shared
    assert {key: many for key, many in copies.items() if not owned[key[0], key[1]][0]} == dict(plain)


class Member(ABC):
    """A client whose session is kept, and what has come to it: by subscription and payload. `subscriptions`:
    group, filter and QoS, by number."""

    def __init__(self, name: str, random: Random, stem: str) -> None:
        self.name = name
        self.subscriptions = {
            id: (group, filter, random.choice((1, 2)))
            for id, (group, filter) in enumerate(random_filters(random, stem), 1)
        }

    @abstractmethod
    def come(self) -> None:
        """Connects, and resumes its session."""

    @abstractmethod
    def go(self) -> None:
        """Disconnects. Its session is kept."""

    @abstractmethod
    def copies(self) -> Counter[tuple[int, bytes]]:
        """How often each payload has come, by number of the subscription."""


class MqttMember(Member):
    """Over MQTT, at one gateway or the other each time."""

    def __init__(self, house: House, name: str, random: Random, stem: str) -> None:
        super().__init__(name, random, stem)
        self._house, self._random = house, random
        self._before: Counter[tuple[int, bytes]] = Counter()
        self._peer = self._connect()
        for id, (group, filter, qos) in self.subscriptions.items():
            self._peer.subscribe((joined(group, filter), qos), identifier=id)

    def come(self) -> None:
        self._peer = self._connect()
        assert self._peer.is_session_present == [True]

    def go(self) -> None:
        self._peer.close()
        self._before += taken(self._peer)

    def copies(self) -> Counter[tuple[int, bytes]]:
        return self._before + taken(self._peer)

    def _connect(self) -> Peer:
        gateway = self._random.choice(("one", "two"))
        peer = Peer(self._house.place(gateway, self.name, kept=True))
        peer.connect()
        return peer


class NativeMember(Member):
    """Over the network's own protocol, in a run of its own each time. It has one subscription that is not
    shared: of those that overlap, the ones that a run makes later do not get what waited."""

    def __init__(self, house: House, name: str, random: Random, stem: str) -> None:
        super().__init__(name, random, stem)
        plain = [id for id, (group, _, _) in self.subscriptions.items() if not group]
        for id in plain[1:]:
            del self.subscriptions[id]
        self._root = house.root
        self._copies: Counter[tuple[int, bytes]] = Counter()
        self.come()

    def come(self) -> None:
        self._client = sync.connect(self._root, client_id=self.name, session_expiry=3_600, session_key="kept")
        self._own = {
            id: self._client.subscribe(joined(group, filter), qos=qos)
            for id, (group, filter, qos) in self.subscriptions.items()
        }

    def go(self) -> None:
        self.copies()
        self._client.close()

    def copies(self) -> Counter[tuple[int, bytes]]:
        for id, subscription in self._own.items():
            while (message := subscription.next(timeout=0)) is not None:
                self._copies[id, message.payload] += 1
        return self._copies


@pytest.mark.parametrize("seed", range(4))
def test_every_copy_is_counted_while_kept_sessions_go_and_come(house: House, seed: int) -> None:
    random, stem = Random(seed), f"kept{seed}"
    members: list[Member] = [
        *(MqttMember(house, f"{stem}-{n}", random, stem) for n in range(3)),
        NativeMember(house, f"{stem}-native", random, stem),
    ]
    topics = [f"home/kitchen/{stem}/a", f"home/kitchen/{stem}/b", f"weather/{stem}/a"]
    plain: Counter[tuple[str, int, bytes]] = Counter()
    shared: Counter[tuple[str, str, bytes]] = Counter()

    def found() -> tuple[Counter[tuple[str, int, bytes]], Counter[tuple[str, str, bytes]]]:
        own: Counter[tuple[str, int, bytes]] = Counter()
        groups: Counter[tuple[str, str, bytes]] = Counter()
        for member in members:
            for (id, payload), many in member.copies().items():
                group, filter, _ = member.subscriptions[id]
                if group:
                    groups[group, filter, payload] += many
                else:
                    own[member.name, id, payload] += many
        return own, groups

    with connected(house.place("one", f"{stem}-publisher")) as publisher:
        for phase in range(4):
            away = random.sample(members, random.randint(1, len(members))) if phase % 2 else []
            for member in away:
                member.go()
            for n in range(MESSAGES // 2):
                topic, payload = random.choice(topics), b"%d-%d" % (phase, n)
                publisher.client.publish(topic, payload, random.choice((1, 2))).wait_for_publish(PATIENCE_S)
                for member in members:
                    for id, (group, filter, _) in member.subscriptions.items():
                        if topic_matches(filter, topic) and group:
                            shared[group, filter, payload] = 1
                        elif topic_matches(filter, topic):
                            plain[member.name, id, payload] = 1
            for member in away:
                member.come()
            until(
                lambda: not (plain - found()[0]) and not (shared - found()[1]),
                f"the copies of phase {phase}",
                PATIENCE_S,
                found=lambda: (plain - found()[0], shared - found()[1]),
            )
    own, groups = found()
    for member in members:
        member.go()
    assert own == plain
    assert groups == shared
