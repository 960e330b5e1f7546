"""A model of MQTT 5 §4.8.2: each matching subscription gets one copy, and each shared subscription gets
one copy in total."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from contextlib import ExitStack
from random import Random

import pytest

from hbroker import sync
from hbroker._native import topic_matches
from tests.interop.clients import PATIENCE_S
from tests.interop.home import HomeNetwork
from tests.interop.peer import Peer, connected, fields_of
from tests.waiting import until

GROUPS = ("", "", "g1", "g2")
MESSAGES = 12


def random_filters(random: Random, stem: str) -> list[tuple[str, str]]:
    """The (group, filter) pairs of one client, each once."""
    filters = [f"home/kitchen/{stem}/a", f"home/kitchen/{stem}/+", f"weather/{stem}/#", f"+/+/{stem}/a"]
    pairs = [(group, filter) for group in sorted(set(GROUPS)) for filter in filters]
    return random.sample(pairs, random.randint(1, 6))


def joined(group: str, filter: str) -> str:
    return f"$share/{group}/{filter}" if group else filter


def copies_of(peer: Peer) -> Counter[tuple[int, bytes]]:
    """The number of received messages by subscription identifier and payload."""
    copies: Counter[tuple[int, bytes]] = Counter()
    for message in list(peer.received):
        copies.update((id, bytes(message.payload)) for id in fields_of(message)["SubscriptionIdentifier"])
    return copies


@pytest.mark.parametrize("seed", range(4))
def test_each_subscription_and_each_shared_subscription_get_one_copy(home: HomeNetwork, seed: int) -> None:
    random, stem = Random(seed), f"model{seed}"
    owned: dict[tuple[str, int], tuple[str, str]] = {}
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for n in range(4):
            place = home.place(random.choice(("one", "two")), f"{stem}-{n}", kept=n % 2 == 1)
            peer = peers[place.client_id] = stack.enter_context(connected(place))
            for id, (group, filter) in enumerate(random_filters(random, stem), 1):
                owned[place.client_id, id] = group, filter
                peer.subscribe((joined(group, filter), random.randint(0, 2)), identifier=id)
            # When a later subscription is complete, the messages of a kept session have moved to the
            # session's own member.
            peer.subscribe((f"$share/{place.client_id}/#", 1), identifier=1_000)
            peer.client.unsubscribe(f"$share/{place.client_id}/#")
        native = stack.enter_context(sync.connect(home.root, client_id=f"{stem}-native"))
        own = {}
        for id, (group, filter) in enumerate(random_filters(random, stem), 1):
            owned["native", id] = group, filter
            own[id] = stack.enter_context(native.subscribe(joined(group, filter), qos=2))
        publisher = stack.enter_context(connected(home.place("one", f"{stem}-publisher")))
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
                for (id, payload), many in copies_of(peer).items():
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
    """A client with a kept session, and its received messages by subscription and payload.
    `subscriptions`: group, filter and QoS, by number."""

    def __init__(self, name: str, random: Random, stem: str) -> None:
        self.name = name
        self.subscriptions = {
            id: (group, filter, random.choice((1, 2)))
            for id, (group, filter) in enumerate(random_filters(random, stem), 1)
        }

    @abstractmethod
    def connect(self) -> None:
        """Connects and resumes the session."""

    @abstractmethod
    def disconnect(self) -> None:
        """Disconnects. The session is kept."""

    @abstractmethod
    def copies(self) -> Counter[tuple[int, bytes]]:
        """The number of received copies of each payload, by number of the subscription."""


class MqttMember(Member):
    """A member over MQTT. It connects to either gateway each time."""

    def __init__(self, home: HomeNetwork, name: str, random: Random, stem: str) -> None:
        super().__init__(name, random, stem)
        self._house, self._random = home, random
        self._before: Counter[tuple[int, bytes]] = Counter()
        self._peer = self._connect()
        for id, (group, filter, qos) in self.subscriptions.items():
            self._peer.subscribe((joined(group, filter), qos), identifier=id)

    def connect(self) -> None:
        self._peer = self._connect()
        assert self._peer.is_session_present == [True]

    def disconnect(self) -> None:
        self._peer.close()
        self._before += copies_of(self._peer)

    def copies(self) -> Counter[tuple[int, bytes]]:
        return self._before + copies_of(self._peer)

    def _connect(self) -> Peer:
        gateway = self._random.choice(("one", "two"))
        peer = Peer(self._house.place(gateway, self.name, kept=True))
        peer.connect()
        return peer


class NativeMember(Member):
    """A member with the native protocol. Each connection is a new run. It has at most one subscription
    that is not shared: of overlapping subscriptions, only the first one of a run gets the queued messages."""

    def __init__(self, home: HomeNetwork, name: str, random: Random, stem: str) -> None:
        super().__init__(name, random, stem)
        plain = [id for id, (group, _, _) in self.subscriptions.items() if not group]
        for id in plain[1:]:
            del self.subscriptions[id]
        self._root = home.root
        self._copies: Counter[tuple[int, bytes]] = Counter()
        self.connect()

    def connect(self) -> None:
        self._client = sync.connect(self._root, client_id=self.name, session_expiry=3_600, session_key="kept")
        self._own = {
            id: self._client.subscribe(joined(group, filter), qos=qos)
            for id, (group, filter, qos) in self.subscriptions.items()
        }

    def disconnect(self) -> None:
        self.copies()
        self._client.close()

    def copies(self) -> Counter[tuple[int, bytes]]:
        for id, subscription in self._own.items():
            while (message := subscription.next(timeout=0)) is not None:
                self._copies[id, message.payload] += 1
        return self._copies


@pytest.mark.parametrize("seed", range(4))
def test_each_subscription_gets_one_copy_while_clients_disconnect_and_resume(
    home: HomeNetwork, seed: int
) -> None:
    random, stem = Random(seed), f"kept{seed}"
    members: list[Member] = [
        *(MqttMember(home, f"{stem}-{n}", random, stem) for n in range(3)),
        NativeMember(home, f"{stem}-native", random, stem),
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

    with connected(home.place("one", f"{stem}-publisher")) as publisher:
        for phase in range(4):
            offline = random.sample(members, random.randint(1, len(members))) if phase % 2 else []
            for member in offline:
                member.disconnect()
            for n in range(MESSAGES // 2):
                topic, payload = random.choice(topics), b"%d-%d" % (phase, n)
                publisher.client.publish(topic, payload, random.choice((1, 2))).wait_for_publish(PATIENCE_S)
                for member in members:
                    for id, (group, filter, _) in member.subscriptions.items():
                        if topic_matches(filter, topic) and group:
                            shared[group, filter, payload] = 1
                        elif topic_matches(filter, topic):
                            plain[member.name, id, payload] = 1
            for member in offline:
                member.connect()
            until(
                lambda: not (plain - found()[0]) and not (shared - found()[1]),
                f"the copies of phase {phase}",
                PATIENCE_S,
                found=lambda: (plain - found()[0], shared - found()[1]),
            )
    own, groups = found()
    for member in members:
        member.disconnect()
    assert own == plain
    assert groups == shared
