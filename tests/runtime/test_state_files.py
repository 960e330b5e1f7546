"""A node's state files: what is restored in the next run, and how a loss is reported."""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
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
from hbroker.protocol.storage import EpochLimit, RestoredState, SavedSession, SavedWill
from hbroker.runtime.node.state_files import NodeStateFiles
from hbroker.sim.network.storage.disk import SimulatedDisk
from hbroker.storage.checkpoint import Instant

PATH = Path("/state/root.cuts")
LIMIT = EpochLimit(9, 5)
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


def state_files(
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
    loses_power=st.booleans(),
)
def test_the_last_note_of_each_thing_is_restored(
    cuts: list[tuple[Delegation, bool]], listeners: list[tuple[Subscription, bool]], loses_power: bool
) -> None:
    disk = SimulatedDisk(Random(1))
    cuts_left: dict[str, Delegation] = {}
    listeners_left: dict[object, Subscription] = {}
    for half in (0, 1):
        files = state_files(disk)
        files.load()
        for cut, ended in cuts[half::2]:
            files.save_delegation(cut, ended)
            cuts_left.pop(cut.subtree, None)
            cuts_left |= {} if ended else {cut.subtree: cut}
        for listener, ended in listeners[half::2]:
            files.save_subscription(listener, ended)
            listeners_left.pop((listener.session, listener.key), None)
            listeners_left |= {} if ended else {(listener.session, listener.key): listener}
        assert files.store.flush()
        if loses_power:
            disk.crash()
    restored = state_files(disk).load()
    assert sorted(restored.delegations, key=repr) == sorted(cuts_left.values(), key=repr)
    assert sorted(restored.subscriptions, key=repr) == sorted(listeners_left.values(), key=repr)
    assert not restored.damage


def test_noted_claims_count_only_with_the_settings_of_that_run() -> None:
    disk = SimulatedDisk(Random(1))
    files = state_files(disk)
    assert files.load().claims is None
    files.save_claims(["home/bedroom"])
    files.store.flush()
    assert state_files(disk).load().claims == ["home/bedroom"]
    assert state_files(disk, ("cellar",)).load().claims is None, (
        "the settings have changed: they are the truth"
    )
    files.save_claims([])
    files.store.flush()
    assert state_files(disk).load().claims == []


@pytest.mark.parametrize(
    ("silent", "boot", "is_restored"),
    [
        (timers.IDLE_TIMEOUT - 1, BOOT, True),
        (timers.IDLE_TIMEOUT, BOOT, False),
        (timers.IDLE_TIMEOUT, b"another boot id!", True),
        (-1, BOOT, True),
    ],
)
def test_subscriptions_of_sessions_that_have_expired_are_not_restored(
    silent: int, boot: bytes, is_restored: bool
) -> None:
    """The boot clock decides, which nobody can set. If it cannot tell, the node waits for the session."""
    disk = SimulatedDisk(Random(1))
    began = 10 * timers.IDLE_TIMEOUT
    files = state_files(disk, at=began)
    files.load()
    files.save_subscription(LISTENER, False)
    files.store.flush()
    expected = [LISTENER] if is_restored else []
    assert state_files(disk, at=began + silent, boot=boot).load().subscriptions == expected
    assert state_files(disk, at=began + silent, boot=boot).load().subscriptions == expected, "and again"


def test_persistent_sessions_and_wills_are_restored_however_long_the_node_was_down() -> None:
    disk = SimulatedDisk(Random(1))
    files = state_files(disk, at=0)
    files.load()
    connected = SavedSession(1, "c", 600, 0, 1 << 20, None, 7, 8)
    offline = SavedSession(2, "d", 600, 100, 0, 5)
    for session in (connected, offline, SavedSession(3, "e", 1, 0, 0, None)):
        files.save_session(session)
    files.end_session(3)
    files.save_subscription(LISTENER, False)
    files.save_subscription(replace(LISTENER, session=3), False)
    wills = [SavedWill(1, b"\x00\xff", 30, None), SavedWill(2, b"", 0, 9)]
    for will in (*wills, SavedWill(2, b"old", 0, 9), wills[1], SavedWill(3, b"", 1, None)):
        files.save_will(will)
    files.end_will(3)
    files.store.flush()
    assert state_files(disk, at=1).read().sessions == {1: connected, 2: offline}
    for _ in range(2):
        restored = state_files(disk, at=timers.IDLE_TIMEOUT).load()
        assert restored.subscriptions == [LISTENER]
        assert restored.wills == wills
        assert restored.sessions[2] == offline
        assert restored.sessions[1].offline_since is not None, "it is offline since the node is down"


def test_a_new_network_recalls_the_limit_of_epochs_and_delegations_to_nodes_outside_of_it() -> None:
    disk = SimulatedDisk(Random(1))
    files = state_files(disk)
    files.load()
    other = Delegation("garden", "g", ("10.0.0.2", 1), 1, 8, LeasePolicy.SERVE, None, 0)
    for cut in (KITCHEN, other):
        files.save_delegation(cut, False)
    files.save_claims(["home/bedroom"])
    files.save_epoch_limit(LIMIT)
    files.store.flush()
    assert state_files(disk).read() == RestoredState([KITCHEN, other], ["home/bedroom"], epoch_limit=LIMIT)
    state_files(disk).discard_obsolete(lambda cut: cut.node == "k")
    restored = state_files(disk).load()
    assert (restored.delegations, restored.claims, restored.epoch_limit) == ([other], None, LIMIT)
    raised = state_files(disk).load().epoch_limit
    assert raised is not None
    assert raised.limit > LIMIT.limit, "each run raises it"


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


DAMAGES = (_truncate, _flip, _zero, _empty, _garbage, _lengthen)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["", ".claims", ".subscriptions", ".checkpoint"])
def test_a_node_starts_with_any_damaged_file_and_reports_the_loss(
    name: str, damage: Callable[[bytes, Random], bytes], is_long: bool
) -> None:
    path = PATH.with_name(f"{PATH.name}{name}")
    for seed in range(200 if is_long else 8):
        random = Random(seed)
        disk = SimulatedDisk(random)
        files = state_files(disk)
        files.load()
        cuts = [
            Delegation(f"home/{n}", f"n{n}", ("10.0.0.1", n + 1), 1, n, LeasePolicy.FENCE, None, 0)
            for n in range(5)
        ]
        for cut in cuts:
            files.save_delegation(cut, False)
            files.save_subscription(Subscription(cut.epoch + 1, cut.address, cut.subtree, 1), False)
            files.store.flush()
        files.save_claims(["home/bedroom"])
        files.store.flush()
        disk.damage(path, damage(disk.read(path), random))
        restored = state_files(disk).load()
        assert len(restored.delegations) == 5 or restored.has_lost_delegations
        assert len(restored.subscriptions) == 5 or restored.has_lost_subscriptions
        assert restored.claims is not None or restored.damage
        assert {cut.subtree for cut in restored.delegations} <= {cut.subtree for cut in cuts}
        again = state_files(disk).load()
        assert again.has_lost_delegations == restored.has_lost_delegations
        assert sorted(map(repr, again.delegations)) == sorted(map(repr, restored.delegations))


def test_only_the_owner_can_read_the_state_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    folder = tmp_path / "state"
    files = NodeStateFiles(folder / "root.cuts", ["home"])
    files.load()
    files.save_delegation(KITCHEN, False)
    files.save_subscription(LISTENER, False)
    files.save_claims([])
    assert files.store.flush()
    files.store.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    paths = list(folder.iterdir())
    assert len(paths) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600}


def test_nodes_that_are_not_alive_keep_their_subtrees_at_other_addresses() -> None:
    disk = SimulatedDisk(Random(1))
    files = state_files(disk)
    files.load()
    files.save_delegation(KITCHEN, False)
    files.save_epoch_limit(LIMIT)
    files.save_claims(["home/bedroom"])
    files.store.flush()
    elsewhere = "10.0.0.9", 9
    for _ in range(2):
        state_files(disk).change_addresses({KITCHEN.node: elsewhere, "other": ("10.0.0.8", 8)})
        moved = replace(KITCHEN, address=elsewhere)
        assert state_files(disk).read() == RestoredState([moved], ["home/bedroom"], epoch_limit=LIMIT)
