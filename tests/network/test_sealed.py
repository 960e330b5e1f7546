"""A network whose datagrams are sealed: nothing can be read, strangers get nothing, and a node that starts
again gets new keys."""

from __future__ import annotations

from functools import partial

import pytest

from hbroker.config import NodeSettings
from hbroker.protocol.results import Published
from hbroker.sim.network import CLEAR, ClientHost, Datagram, Faults, NodeHost
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.security import SimulatedSecurity
from hbroker.sim.network.trial import Trial
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/kitchen/lamp"


def grow(seed: int = 1, faults: Faults = CLEAR) -> Tree:
    return Tree.grow(seed, ["home", "home/kitchen"], faults, SimulatedSecurity())


def published(client: ClientHost) -> int:
    return sum(isinstance(result, Published) for result in client.results)


def exchange(tree: Tree, subscriber: ClientHost, publisher: ClientHost, count: int = 1) -> None:
    """Publishes, and waits until all has arrived and is acknowledged."""
    messages, answers = len(subscriber.messages) + count, published(publisher) + count
    for number in range(count):
        publisher.publish(TOPIC, f"{number}".encode(), 1)
    tree.world.run_until(lambda: len(subscriber.messages) >= messages and published(publisher) >= answers)


@pytest.mark.parametrize("faults", [CLEAR, Faults(loss=0.2, reordering=0.2, duplication=0.1)])
def test_all_that_is_sent_is_sealed(faults: Faults) -> None:
    tree = grow(2, faults)
    world, kinds = tree.world, set[str]()

    def watch(datagram: Datagram) -> None:
        assert b"kitchen" not in datagram.data
        kinds.update(datagram.kinds())

    world.on_datagram = watch
    subscriber, publisher = tree.client(), tree.client()
    subscriber.subscribe("home/#", 1)
    world.run_until(lambda: bool(subscriber.results))
    exchange(tree, subscriber, publisher, 50)
    assert {"handshake", "publish", "puback", "subscribe", "suback"} <= kinds


def test_a_node_joins_under_its_own_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = grow()
    world, security = tree.world, tree.world.security
    assert security is not None
    settings = NodeSettings("attic", "home/attic", world.new_address(), root=tree.root.address)
    of_another = security.credentials("cellar")
    with monkeypatch.context() as patched:
        patched.setattr(security, "credentials", lambda *_: of_another)
        impostor = NodeHost(world, settings)
    world.run(20 * SECOND)
    assert not impostor.control.is_serving
    impostor.kill()
    assert tree.join("home/attic").control.is_serving


def test_strangers_get_nothing() -> None:
    tree = grow()
    world = tree.world
    security, world.security = world.security, None
    stranger = ClientHost(world, tree.root.address, "stranger")
    world.security = security
    stranger.subscribe("#", 1)
    stranger.publish(TOPIC, b"forged", 1)
    world.run(30 * SECOND)
    to, back = (tree.root.address, stranger.address), (stranger.address, tree.root.address)
    assert world.sent_bytes[back] > 0
    assert world.sent_bytes[to] == 0


def test_a_node_that_starts_again_is_found_again() -> None:
    tree = grow()
    subscriber, publisher = tree.client(), tree.client()
    subscriber.subscribe(TOPIC, 1)
    tree.world.run_until(lambda: bool(subscriber.results))
    exchange(tree, subscriber, publisher)
    for _ in range(3):
        kitchen = tree.nodes["home/kitchen"]
        kitchen.kill()
        tree.world.run(SECOND)
        tree.nodes["home/kitchen"] = kitchen = kitchen.restart(remembers=True)
        tree.world.run_until(partial(kitchen.is_serving_subtree, "home/kitchen"))
        exchange(tree, subscriber, publisher)


def test_a_client_whose_address_changes_needs_no_other_handshake() -> None:
    tree = grow()
    subscriber, publisher = tree.client(), tree.client()
    subscriber.subscribe(TOPIC, 1)
    tree.world.run_until(lambda: bool(subscriber.results))
    exchange(tree, subscriber, publisher)
    handshakes: list[Datagram] = []
    tree.world.on_datagram = lambda datagram: (
        handshakes.append(datagram) if "handshake" in datagram.kinds() else None
    )
    tree.world.move(subscriber)
    exchange(tree, subscriber, publisher, 5)
    assert not handshakes


def test_a_sealed_run_depends_on_its_seed_alone() -> None:
    plan = next(plan for plan in map(draw, range(1, 100)) if plan.is_sealed and plan.bandwidth_bps)
    first, second = (Trial(plan).run() for _ in range(2))
    assert first == second
    assert first.violation is None
