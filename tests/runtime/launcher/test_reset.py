"""A network that begins again forgets what its dead nodes held, and nothing that others may hold."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from hbroker.config import LeasePolicy
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.runtime.launcher.reset import forget_the_dead
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage.checkpoint import Instant
from tests.network.networks import Tree

SECOND = 1_000_000
TOPIC = "home/kitchen/oven"
SUBTREES = {"root": "", "home": "home", "attic": "home/attic", "garden": "garden"}
"""The nodes of the topology; all others were started elsewhere."""


class Remembered:
    """What the nodes of a topology have on one disk: the subtrees that each delegated, and to whom."""

    def __init__(self, cuts: dict[str, dict[str, str]]) -> None:
        self.disk = SimulatedDisk(Random(1))
        for node, subtrees in cuts.items():
            memory = self.memory(node)
            memory.recall()
            for subtree, holder in subtrees.items():
                memory.note_delegation(_cut(subtree, holder), False)
            assert memory.flush()
            memory.close()

    def memory(self, node: str) -> NodeStateFiles:
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

    def left(self) -> dict[str, set[str]]:
        """What each goes on knowing, once all have forgotten."""
        forget_the_dead({node: self.memory(node) for node in SUBTREES})
        recalled = {node: self.memory(node).recall() for node in SUBTREES}
        return {
            node: {cut.subtree for cut in known.delegations}
            for node, known in recalled.items()
            if known.delegations
        }


def _cut(subtree: str, holder: str) -> Delegation:
    return Delegation(subtree, holder, ("10.0.0.1", 1), 1, 7, LeasePolicy.FENCE, None, 0)


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbroker.runtime.node.state_files.make_folder_of", lambda path: None)


@pytest.mark.parametrize(
    ("cuts", "left"),
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
        (  # It has gone to another parent, who has not said so yet.
            {"root": {"home": "home", "home/kitchen": "elsewhere", "home/attic": "attic"}},
            {"root": {"home", "home/kitchen"}},
        ),
    ],
)
def test_what_holds_a_part_that_is_anothers_is_kept(
    cuts: dict[str, dict[str, str]], left: dict[str, set[str]]
) -> None:
    assert Remembered(cuts).left() == left


def test_what_a_node_may_have_delegated_is_kept_if_its_file_is_damaged() -> None:
    remembered = Remembered(
        {
            "root": {"home": "home", "garden": "garden"},
            "home": {"home/attic": "attic"},
            "attic": {"home/attic/box": "elsewhere"},
        }
    )
    path = remembered.path("attic")
    remembered.disk.damage(path, remembered.disk.read(path)[:-1] + b"\0")
    assert remembered.left() == {"root": {"home"}, "home": {"home/attic"}}


@pytest.mark.parametrize("remembers_all", [False, True])
def test_what_a_node_elsewhere_holds_below_a_dead_one_has_one_owner(remembers_all: bool) -> None:
    """`home/kitchen` was started on another host, by `hbroker node`; root and `home` by `hbroker up`, which
    was killed with all that it had started, and begins again."""
    tree = Tree.grow(3, ["home", "home/kitchen"])
    world, root, home, kitchen = tree.world, tree.root, tree.nodes["home"], tree.nodes["home/kitchen"]
    world.run(5 * SECOND)
    root.kill()
    home.kill()
    world.run(SECOND)
    if not remembers_all:
        forget_the_dead({node.settings.name: node.files.open() for node in (root, home)})
    root = root.restart(remembers=True)
    home = home.restart(remembers=True)
    for _ in range(3_000):
        world.run(SECOND // 100)
        owners = [node.settings.name for node in (root, home, kitchen) if node.owns(TOPIC)]
        assert len(owners) <= 1, (world.now, owners)
    assert owners == ["kitchen"]
