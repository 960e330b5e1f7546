"""What a node delegated survives it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbroker.config import LeasePolicy
from hbroker.protocol.jurisdiction import Delegation
from hbroker.runtime.memory import DelegationFile, UnreadableMemory

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


@given(stored=st.lists(delegations, max_size=5))
def test_what_is_recalled_is_what_was_stored(
    tmp_path_factory: pytest.TempPathFactory, stored: list[Delegation]
) -> None:
    path = tmp_path_factory.mktemp("memory") / "root.json"
    DelegationFile(path).store(stored)
    assert DelegationFile(path).recall() == stored


def test_a_first_run_remembers_nothing(tmp_path: Path) -> None:
    assert DelegationFile(tmp_path / "root.json").recall() == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"subtree": "a"}]', "3", '[{"address": 1}]'])
def test_a_file_that_holds_something_else_is_not_ignored(tmp_path: Path, text: str) -> None:
    path = tmp_path / "root.json"
    path.write_text(text)
    with pytest.raises(UnreadableMemory):
        DelegationFile(path).recall()
