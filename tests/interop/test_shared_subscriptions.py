"""A model of MQTT 5 §4.8.2: a plain subscription that matches gets one copy, a group's one in all."""

from __future__ import annotations

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
