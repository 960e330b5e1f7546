"""What a node delegated survives it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.config import LeasePolicy
from hbroker.protocol.jurisdiction import Delegation
from hbroker.runtime.memory import ClaimsFile, DelegationFile, UnreadableMemory

_HEAD = '{"holds": "delegations"}\n'
_SPOILT = [_HEAD.strip(), _HEAD + "{", _HEAD + "[]\n", _HEAD + '{"subtree": "a", "node": "n"}\n']

delegations = st.builds(
    Delegation,
    subtree=st.text(min_size=1),
    node=st.text(min_size=1),
    address=st.tuples(st.ip_addresses().map(str), st.integers(1, 65_535)),
    incarnation=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    policy=st.sampled_from(LeasePolicy),
    link=st.none(),
    until=st.just(0),
)


@given(stored=st.lists(delegations, max_size=5, unique_by=lambda cut: cut.subtree))
def test_what_is_recalled_is_what_was_stored(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Delegation]
) -> None:
    path = tmp_path_factory.mktemp("memory") / "root.json"
    DelegationFile(path).store(stored)
    assert DelegationFile(path).recall() == stored


@given(noted=st.lists(st.tuples(delegations, st.booleans()), max_size=12))
def test_of_each_subtree_the_last_that_was_noted_counts(
    tmp_path_factory: pytest.TempPathFactory, noted: list[tuple[Delegation, bool]]
) -> None:
    path = tmp_path_factory.mktemp("memory") / "root.json"
    live: dict[str, Delegation] = {}
    half = len(noted) // 2
    for some in (noted[:half], noted[half:]):
        file = DelegationFile(path)
        file.recall()
        for cut, ended in some:
            file.note(cut, ended)
            live.pop(cut.subtree, None)
            live |= {} if ended else {cut.subtree: cut}
            assert DelegationFile(path).recall() == list(live.values())


def test_a_file_stays_in_proportion_to_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "root.json"
    file = DelegationFile(path)
    cut = Delegation("a", "n", ("10.0.0.1", 1), 1, 1, LeasePolicy.FENCE, None, 0)
    for epoch in range(2_000):
        file.note(replace(cut, epoch=epoch), False)
    assert len(path.read_text().splitlines()) < 300
    assert [found.epoch for found in DelegationFile(path).recall()] == [1_999]
    file.note(cut, True)
    assert DelegationFile(path).recall() == []


def test_a_first_run_remembers_nothing(tmp_path: Path) -> None:
    assert DelegationFile(tmp_path / "root.json").recall() == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"subtree": "a"}]', "3", '[{"address": 1}]', *_SPOILT])
def test_a_file_that_holds_something_else_is_not_ignored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "root.json"
    path.write_text(text)
    with pytest.raises(UnreadableMemory):
        DelegationFile(path).recall()


def test_claims_count_for_the_settings_that_they_were_made_under(tmp_path: Path) -> None:
    path = tmp_path / "kitchen.cuts"
    claims = ClaimsFile(path, ["home/kitchen"])
    assert claims.recall() is None
    claims.store(["home/bedroom"])
    assert ClaimsFile(path, ["home/kitchen"]).recall() == ["home/bedroom"]
    assert ClaimsFile(path, ["home/cellar"]).recall() is None, "the settings have changed: they are the truth"
    claims.store([])
    assert claims.recall() == []
    claims.forget()
    assert claims.recall() is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"claims": []}', "3"])
def test_a_file_of_claims_that_holds_something_else_is_not_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "kitchen.cuts.claims").write_text(text)
    with pytest.raises(UnreadableMemory):
        ClaimsFile(tmp_path / "kitchen.cuts", ["home/kitchen"]).recall()
