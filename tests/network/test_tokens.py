"""A network that requires tokens: the owners of topics hold each client to its own, also after a move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hbroker.protocol.packets import Reason
from hbroker.protocol.results import Published, Subscribed, SubscriptionFailed
from hbroker.rights.rights import BlockRights
from hbroker.sim.network import CLEAR, ClientHost, Faults, security
from hbroker.sim.network.drawing import draw
from hbroker.sim.network.security import SimulatedSecurity
from hbroker.sim.network.trial import Trial
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/kitchen/lamp"
BAD = Faults(loss=0.2, reordering=0.2, duplication=0.1)

Limit = Callable[..., ClientHost]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Makes a client with these rights."""

    def make(tree: Tree, read: tuple[str, ...] = (), write: tuple[str, ...] = ()) -> ClientHost:
        with monkeypatch.context() as patched:
            patched.setattr(security, "_rights", lambda session: BlockRights(read, write))
            return tree.client()

    return make


def grow(seed: int = 1, faults: Faults = CLEAR) -> Tree:
    return Tree.grow(seed, ["home", "home/kitchen"], faults, SimulatedSecurity(requires_tokens=True))


def reasons(host: ClientHost) -> list[int]:
    """What became of what a client has published, in order."""
    return [result.reason for result in host.results if isinstance(result, Published)]


@pytest.mark.parametrize("faults", [CLEAR, BAD])
def test_owners_hold_clients_to_their_tokens(client: Limit, faults: Faults) -> None:
    tree = grow(2, faults)
    reader, writer = client(tree, read=("home/#",)), client(tree, write=(TOPIC,))
    reader.subscribe("home/#", 1)
    tree.world.run_until(lambda: any(isinstance(result, Subscribed) for result in reader.results))
    for host, topic in ((writer, TOPIC), (writer, "home/attic"), (reader, TOPIC)):
        host.publish(topic, topic.encode(), 1)
    tree.world.run_until(lambda: len(reasons(writer)) == 2 and len(reasons(reader)) == 1)
    assert sorted(reasons(writer)) == [Reason.REASON_SUCCESS, Reason.REASON_NOT_AUTHORIZED]
    assert reasons(reader) == [Reason.REASON_NOT_AUTHORIZED]
    writer.subscribe(TOPIC, 1)
    tree.world.run_until(lambda: any(isinstance(result, SubscriptionFailed) for result in writer.results))
    tree.world.run(SECOND)
    assert [message.payload for message in reader.messages] == [TOPIC.encode()]


@pytest.mark.parametrize("faults", [CLEAR, BAD])
def test_the_next_owner_speaks_to_a_subscriber_first(client: Limit, faults: Faults) -> None:
    """It knows the client's rights from the records of the former owner, and no token."""
    tree = grow(5, faults)
    world, kitchen = tree.world, tree.nodes["home/kitchen"]
    reader, writer = client(tree, read=(TOPIC,)), client(tree, write=(TOPIC,))
    reader.subscribe(TOPIC, 1)
    world.run_until(lambda: any(isinstance(result, Subscribed) for result in reader.results))
    cook = tree.join("home/cook")
    tree.move("home/kitchen", kitchen, cook)
    world.run_until(lambda: cook.is_serving_subtree("home/kitchen"))
    for number in range(5):
        writer.publish(TOPIC, b"%d" % number, 1)
    world.run_until(lambda: len(reader.messages) >= 5 and len(reasons(writer)) == 5)
    assert set(reasons(writer)) == {Reason.REASON_SUCCESS}


def test_a_run_with_tokens_depends_on_its_seed_alone() -> None:
    plan = next(plan for plan in map(draw, range(1, 100)) if plan.requires_tokens and plan.bandwidth_bps)
    first, second = (Trial(plan).run() for _ in range(2))
    assert first == second
    assert first.violation is None
