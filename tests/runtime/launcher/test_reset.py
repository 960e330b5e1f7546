"""A network that starts again forgets the delegations to its own dead nodes, and keeps those to other
nodes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.runtime.node.state_files import NodeStateFiles, forget_stopped_nodes
from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage.checkpoint import Instant
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/kitchen/oven"
SUBTREES = {"root": "", "home": "home", "attic": "home/attic", "garden": "garden"}
"""The nodes of the topology. All other nodes were started elsewhere."""


class StateFilesOfNodes:
    """The state files of the nodes of a topology on one disk: the subtrees that each node delegated, and
    the holders."""

    def __init__(self, cuts: dict[str, dict[str, str]]) -> None:
        self.disk = SimulatedDisk(Random(1))
        for node, subtrees in cuts.items():
            files = self.files_of(node)
            files.load()
            for subtree, holder in subtrees.items():
                files.save_delegation(_cut(subtree, holder), False)
            assert files.store.flush()
            files.store.close()

    def files_of(self, node: str) -> NodeStateFiles:
        new_id = iter(range(len(node) * 1_000, 1 << 30)).__next__
        return NodeStateFiles(
            self.path(node),
            [SUBTREES[node]],
            disk=self.disk,
            new_id=new_id,
            instant=lambda: Instant(bytes(16), 0),
        )

    def path(self, node: str) -> Path:
        return Path(f"/state/{node}.cuts")

    def delegations_after_reset(self) -> dict[str, set[str]]:
        """The delegations that each node still knows after the reset."""
        forget_stopped_nodes({node: self.files_of(node) for node in SUBTREES})
        restored = {node: self.files_of(node).load() for node in SUBTREES}
        return {
            node: {cut.subtree for cut in known.delegations}
            for node, known in restored.items()
            if known.delegations
        }


def _cut(subtree: str, holder: str) -> Delegation:
    return Delegation(subtree, holder, ("10.0.0.1", 1), 1, 7, LeasePolicy.FENCE, None, 0)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbroker.runtime.node.state_files.make_folder_of", lambda path: None)


@pytest.mark.parametrize(
    ("cuts", "delegations_after_reset"),
    [
        ({"root": {"home": "home", "garden": "garden"}, "home": {"home/attic": "attic"}}, {}),
        ({"root": {"home": "home", "cellar": "elsewhere"}}, {"root": {"cellar"}}),
        (
            {"root": {"home": "home", "garden": "garden"}, "home": {"home/kitchen": "elsewhere"}},
            {"root": {"home"}, "home": {"home/kitchen"}},
        ),
        (
            {
                "root": {"home": "home", "garden": "garden", "home2": "garden"},
                "home": {"home/attic": "attic", "home/attic2": "attic"},
                "attic": {"home/attic/box/small": "elsewhere"},
            },
            {"root": {"home"}, "home": {"home/attic"}, "attic": {"home/attic/box/small"}},
        ),
        (  # the subtree has moved to another parent that has not reported it yet
            {"root": {"home": "home", "home/kitchen": "elsewhere", "home/attic": "attic"}},
            {"root": {"home", "home/kitchen"}},
        ),
    ],
)
def test_a_delegation_around_a_subtree_of_a_node_elsewhere_is_kept(
    cuts: dict[str, dict[str, str]], delegations_after_reset: dict[str, set[str]]
) -> None:
    assert StateFilesOfNodes(cuts).delegations_after_reset() == delegations_after_reset


def test_delegations_around_a_node_with_a_damaged_file_are_kept() -> None:
    state = StateFilesOfNodes(
        {
            "root": {"home": "home", "garden": "garden"},
            "home": {"home/attic": "attic"},
            "attic": {"home/attic/box": "elsewhere"},
        }
    )
    path = state.path("attic")
    state.disk.damage(path, state.disk.read(path)[:-1] + b"\0")
    assert state.delegations_after_reset() == {"root": {"home"}, "home": {"home/attic"}}


@pytest.mark.parametrize("keeps_memory", [False, True])
def test_a_subtree_of_a_node_elsewhere_below_a_restarted_network_has_one_owner(keeps_memory: bool) -> None:
    """`hbroker node` started the node of `home/kitchen` on another host. `hbroker up` started root and
    `home`. It is killed with all its processes, and starts again."""
    tree = Tree.grow(3, ["home", "home/kitchen"])
    world, root, home, kitchen = tree.world, tree.root, tree.nodes["home"], tree.nodes["home/kitchen"]
    world.run(5 * SECOND)
    root.kill()
    home.kill()
    world.run(SECOND)
    if not keeps_memory:
        forget_stopped_nodes({node.settings.name: node.files.open() for node in (root, home)})
    root = root.restart(remembers=True)
    home = home.restart(remembers=True)
    for _ in range(3_000):
        world.run(SECOND // 100)
        owners = [node.settings.name for node in (root, home, kitchen) if node.owns(TOPIC)]
        assert len(owners) <= 1, (world.now, owners)
    assert owners == ["kitchen"]
