"""Look-ups cost the nodes little, and work over bad paths and NAT (§§5.2, 5.3)."""

from __future__ import annotations

from collections import Counter

import pytest

from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published, Resolved
from hbroker.protocol.timers import SECOND
from hbroker.sim.network import CLEAR, ClientHost, Datagram, Faults
from tests.network.networks import HOME, Tree


def count_pubconnects(tree: Tree) -> Counter[tuple[str, int]]:
    """Counts the PUBCONNECTs that clients send to each node from now on, including those that fetch a
    token."""
    counts: Counter[tuple[str, int]] = Counter()
    brokers = tree.brokers()

    def watch(datagram: Datagram) -> None:
        if datagram.source not in brokers:
            counts[datagram.destination] += datagram.kinds().count("pubconnect")

    tree.world.on_datagram = watch
    return counts


def publish_everywhere(publisher: ClientHost, topics: list[str]) -> None:
    """Publishes one message of QoS 1 to each topic, and waits for the acknowledgements."""
    for topic in topics:
        publisher.publish(topic, b"x", qos=1)
    publisher.world.run_until(lambda: len(publisher.results) == len(topics))


def test_a_thousand_topics_of_known_zones_cost_no_request() -> None:
    tree = Tree.grow(1, HOME)
    publisher = tree.client()
    publish_everywhere(publisher, [f"{subtree}/first" for subtree in HOME])
    counts = count_pubconnects(tree)
    publisher.results.clear()
    publish_everywhere(publisher, [f"{subtree}/{n}/value" for subtree in HOME for n in range(200)])
    assert counts.total() == 0


def test_a_thousand_topics_of_five_unknown_zones_cost_the_root_at_most_five_pubconnects() -> None:
    tree = Tree.grow(2, HOME)
    publisher = tree.client()
    # The client's address is proved, and the root's own zone is known, before the count begins.
    publish_everywhere(publisher, ["elsewhere/first"])
    counts = count_pubconnects(tree)
    publisher.results.clear()
    publish_everywhere(publisher, [f"{subtree}/{n}/value" for n in range(200) for subtree in HOME])
    assert counts[tree.root.address] <= 5
    assert counts.total() <= 2 * len(HOME)


def test_a_look_up_below_a_known_cut_begins_at_the_node_of_the_cut() -> None:
    tree = Tree.grow(3, HOME)
    client = tree.client()
    resolve(client, "home/hall")
    resolve(client, "home/outside/pond")
    counts = count_pubconnects(tree)
    found = resolve(client, "home/outside/securitycams/front")
    assert found.resolution.owner == "securitycams"
    assert counts[tree.root.address] == 0
    assert counts[tree.nodes["home/outside"].address] == 0
    assert counts[tree.nodes["home/outside/securitycams"].address] > 0


def test_clients_resolve_by_referral_if_a_nat_blocks_direct_answers() -> None:
    tree = Tree.grow(4, HOME)
    client = tree.client()
    spoken: set[tuple[str, int]] = set()
    dropped = Counter[str]()

    def nat(datagram: Datagram) -> Faults | None:
        """Lets in only answers of nodes to which the client has sent something."""
        if datagram.source == client.address:
            spoken.add(datagram.destination)
        if datagram.destination == client.address and datagram.source not in spoken:
            dropped.update(datagram.kinds())
            return None
        return CLEAR

    tree.world.path = nat
    found = resolve(client, "home/outside/securitycams/front")
    assert found.resolution.owner == "securitycams"
    assert dropped["pubaccept"] > 0, "the direct answer was sent, and did not get through"
    client.publish("home/outside/securitycams/front", b"frame", qos=1)
    tree.world.run_until(lambda: bool(client.results))
    client.results.clear()
    client.subscribe("home/#", qos=1)
    tree.world.run_until(lambda: bool(client.results))


ROUGH = Faults(loss=0.2, delay_us=30_000, jitter_us=40_000, reordering=0.05, late_us=50_000, duplication=0.05)


@pytest.mark.parametrize("seed", [4, 20, 35, 101, 103])
def test_no_message_fails_while_its_owner_and_then_the_root_are_down_for_two_seconds(seed: int) -> None:
    """The root is killed once the owner serves again, on paths that lose a fifth. A client that looks for
    the owner then knows it already, even if both were never up at the same time for it."""
    tree = Tree.grow(seed, ["home/kitchen"])
    world = tree.world
    publishers = [tree.client() for _ in range(4)]

    def publish_for(microseconds: int) -> None:
        end = world.now + microseconds
        while world.now < end:
            for publisher in publishers:
                assert publisher.publish("home/kitchen/oven", b"x", qos=1)
            world.run(SECOND // 2)

    world.faults = ROUGH
    publish_for(SECOND)
    tree.nodes["home/kitchen"].kill()
    publish_for(2 * SECOND)
    owner = tree.nodes["home/kitchen"].restart(remembers=True)
    while not tree.serves(owner):
        publish_for(SECOND // 2)
    tree.root.kill()
    publish_for(2 * SECOND)
    tree.root.restart(remembers=True)
    publish_for(12 * SECOND)
    world.run(3 * SECOND)
    for publisher in publishers:
        reasons = Counter(result.reason for result in publisher.results if isinstance(result, Published))
        assert set(reasons) == {Reason.REASON_NO_MATCHING_SUBSCRIBERS}


def resolve(client: ClientHost, topic: str) -> Resolved:
    """Resolves a topic, and waits for the answer."""
    client.resolve(topic)
    client.world.run_until(lambda: bool(client.results))
    result = client.results.pop()
    assert isinstance(result, Resolved), result
    return result
