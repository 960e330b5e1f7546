"""What a node must know again survives it, and what was lost of it is told."""

from __future__ import annotations

import stat
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.config import LeasePolicy
from hbroker.protocol import timers
from hbroker.protocol.ownership.jurisdiction import Delegation
from hbroker.protocol.sessions.subscription_store import Subscription
from hbroker.runtime.node.state_files import NodeStateFiles, Recalled
from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage.checkpoint import Instant

PATH = Path("/state/root.cuts")
KITCHEN = Delegation("home/kitchen", "k", ("10.0.0.1", 1), 1, 7, LeasePolicy.FENCE, None, 0)
LISTENER = Subscription(1, ("10.0.0.1", 7700), "home/kitchen/#", 1)
BOOT = bytes(16)
_IDS = count(1)

delegations = st.builds(
    Delegation,
    subtree=st.sampled_from(["a", "a/b", "ü/c", "d"]),
    node=st.text(min_size=1),
    address=st.tuples(st.ip_addresses().map(str), st.integers(1, 65_535)),
    incarnation=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    policy=st.sampled_from(LeasePolicy),
    link=st.none(),
    until=st.just(0),
)
subscriptions = st.builds(
    Subscription,
    session=st.integers(1, 3),
    address=st.tuples(st.ip_addresses().map(str), st.integers(1, 65_535)),
    filter=st.sampled_from(["a", "a/#", "+/b"]),
    qos=st.integers(0, 2),
    no_local=st.booleans(),
    retain_as_published=st.booleans(),
    client=st.text(),
    group=st.sampled_from(["", "g"]),
)


def a_memory(
    disk: SimulatedDisk, configured: tuple[str, ...] = ("home",), at: int = 0, boot: bytes = BOOT
) -> NodeStateFiles:
    return NodeStateFiles(
        PATH, configured, disk=disk, new_id=_IDS.__next__, instant=lambda: Instant(boot, at)
    )


@pytest.fixture(autouse=True)
def _no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hbroker.runtime.node.state_files.make_folder_of", lambda path: None)


@settings(max_examples=60)
@given(
    cuts=st.lists(st.tuples(delegations, st.booleans()), max_size=12),
    listeners=st.lists(st.tuples(subscriptions, st.booleans()), max_size=12),
    is_lost=st.booleans(),
)
def test_of_each_thing_the_last_that_was_noted_counts(
    cuts: list[tuple[Delegation, bool]], listeners: list[tuple[Subscription, bool]], is_lost: bool
) -> None:
    disk = SimulatedDisk(Random(1))
    cuts_left: dict[str, Delegation] = {}
    listeners_left: dict[object, Subscription] = {}
    for half in (0, 1):
        memory = a_memory(disk)
        memory.recall()
        for cut, ended in cuts[half::2]:
            memory.note_delegation(cut, ended)
            cuts_left.pop(cut.subtree, None)
            cuts_left |= {} if ended else {cut.subtree: cut}
        for listener, ended in listeners[half::2]:
            memory.note_subscription(listener, ended)
            listeners_left.pop((listener.session, listener.key), None)
            listeners_left |= {} if ended else {(listener.session, listener.key): listener}
        assert memory.flush()
        if is_lost:
            disk.crash()
    recalled = a_memory(disk).recall()
    assert sorted(recalled.delegations, key=repr) == sorted(cuts_left.values(), key=repr)
    assert sorted(recalled.subscriptions, key=repr) == sorted(listeners_left.values(), key=repr)
    assert not recalled.damage


def test_claims_count_for_the_settings_that_they_were_made_under() -> None:
    disk = SimulatedDisk(Random(1))
    memory = a_memory(disk)
    assert memory.recall().requested_subtrees is None
    memory.note_requested_subtrees(["home/bedroom"])
    memory.flush()
    assert a_memory(disk).recall().requested_subtrees == ["home/bedroom"]
    assert a_memory(disk, ("cellar",)).recall().requested_subtrees is None, (
        "the settings have changed: they are the truth"
    )
    memory.note_requested_subtrees([])
    memory.flush()
    assert a_memory(disk).recall().requested_subtrees == []


@pytest.mark.parametrize(
    ("silent", "boot", "is_recalled"),
    [
        (timers.IDLE_TIMEOUT - 1, BOOT, True),
        (timers.IDLE_TIMEOUT, BOOT, False),
        (timers.IDLE_TIMEOUT, b"another boot id!", True),
        (-1, BOOT, True),
    ],
)
def test_sessions_that_have_ended_are_not_recalled(silent: int, boot: bytes, is_recalled: bool) -> None:
    """By a clock that nobody sets. Where nobody can tell, they are waited for."""
    disk = SimulatedDisk(Random(1))
    began = 10 * timers.IDLE_TIMEOUT
    memory = a_memory(disk, at=began)
    memory.recall()
    memory.note_subscription(LISTENER, False)
    memory.flush()
    expected = [LISTENER] if is_recalled else []
    assert a_memory(disk, at=began + silent, boot=boot).recall().subscriptions == expected
    assert a_memory(disk, at=began + silent, boot=boot).recall().subscriptions == expected, "and again"


def test_a_network_that_begins_knows_only_the_nodes_of_others() -> None:
    disk = SimulatedDisk(Random(1))
    memory = a_memory(disk)
    memory.recall()
    other = Delegation("garden", "g", ("10.0.0.2", 1), 1, 8, LeasePolicy.SERVE, None, 0)
    for cut in (KITCHEN, other):
        memory.note_delegation(cut, False)
    memory.note_requested_subtrees(["home/bedroom"])
    memory.flush()
    assert a_memory(disk).review() == Recalled([KITCHEN, other], ["home/bedroom"])
    a_memory(disk).begin_anew(lambda cut: cut.node == "k")
    recalled = a_memory(disk).recall()
    assert (recalled.delegations, recalled.requested_subtrees) == ([other], None)


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data))]


def _flip(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _zero(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data))
    return data[:at] + bytes(len(data) - at)


def _empty(data: bytes, random: Random) -> bytes:
    return b""


def _garbage(data: bytes, random: Random) -> bytes:
    return random.randbytes(len(data))


def _lengthen(data: bytes, random: Random) -> bytes:
    return data + random.randbytes(random.randrange(1, 60))


SPOILERS = (_truncate, _flip, _zero, _empty, _garbage, _lengthen)


@pytest.mark.parametrize("spoil", SPOILERS)
@pytest.mark.parametrize("name", ["", ".claims", ".subscriptions", ".checkpoint"])
def test_whatever_happens_to_a_file_the_node_starts_and_says_what_is_lost(
    name: str, spoil: Callable[[bytes, Random], bytes], is_long: bool
) -> None:
    path = PATH.with_name(f"{PATH.name}{name}")
    for seed in range(200 if is_long else 8):
        random = Random(seed)
        disk = SimulatedDisk(random)
        memory = a_memory(disk)
        memory.recall()
        cuts = [
            Delegation(f"home/{n}", f"n{n}", ("10.0.0.1", n + 1), 1, n, LeasePolicy.FENCE, None, 0)
            for n in range(5)
        ]
        for cut in cuts:
            memory.note_delegation(cut, False)
            memory.note_subscription(Subscription(cut.epoch + 1, cut.address, cut.subtree, 1), False)
            memory.flush()
        memory.note_requested_subtrees(["home/bedroom"])
        memory.flush()
        disk.damage(path, spoil(disk.read(path), random))
        recalled = a_memory(disk).recall()
        assert len(recalled.delegations) == 5 or recalled.forgets_delegations
        assert len(recalled.subscriptions) == 5 or recalled.forgets_subscriptions
        assert recalled.requested_subtrees is not None or recalled.damage
        assert {cut.subtree for cut in recalled.delegations} <= {cut.subtree for cut in cuts}
        again = a_memory(disk).recall()
        assert again.forgets_delegations == recalled.forgets_delegations
        assert sorted(map(repr, again.delegations)) == sorted(map(repr, recalled.delegations))


def test_only_the_owner_may_read_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder = tmp_path / "state"
    memory = NodeStateFiles(folder / "root.cuts", ["home"])
    memory.recall()
    memory.note_delegation(KITCHEN, False)
    memory.note_subscription(LISTENER, False)
    memory.note_requested_subtrees([])
    assert memory.flush()
    memory.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    files = list(folder.iterdir())
    assert len(files) == 4
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
