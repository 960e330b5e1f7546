"""The drawing of the hierarchy, and the parsing of a node's status."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.operations import node_statuses

HOUSE: list[node_statuses.Status] = [
    {"name": "securitycams", "subtree": "home/outside/securitycams", "parent": "outside"},
    {"name": "outside", "subtree": "home/outside", "parent": "root"},
    {"name": "kitchen", "subtree": "home/kitchen", "parent": "root"},
    {"name": "root", "subtree": "", "parent": None},
]


def test_the_hierarchy_is_drawn_as_a_tree() -> None:
    assert node_statuses.drawing(HOUSE) == [
        "root",
        "├─ kitchen",
        "└─ outside",
        "   └─ securitycams",
    ]


def test_a_node_whose_parent_is_missing_is_drawn_by_itself() -> None:
    without = [status for status in HOUSE if status["name"] != "outside"]
    assert node_statuses.drawing(without) == ["root", "└─ kitchen", "securitycams"]


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), st.one_of(st.none(), st.sampled_from("abcdefx"))))
def test_every_node_is_drawn_once_whatever_its_parent(parents: dict[str, str | None]) -> None:
    statuses = [{"name": name, "subtree": name, "parent": parent} for name, parent in parents.items()]
    drawn = node_statuses.in_order(statuses)
    assert sorted(status["name"] for status in drawn) == sorted(parents)
    assert len(node_statuses.drawing(statuses)) == len(parents)


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b"null", b"7", b'{"name": "other"}', b"\xff", b"[" * 100_000]
)
def test_an_invalid_status_is_ignored(payload: bytes) -> None:
    assert node_statuses.parse_status("$SYS/nodes/kitchen/status", payload) is None


def test_a_status_is_parsed() -> None:
    status = {"name": "kitchen", "epoch": 3}
    assert node_statuses.parse_status("$SYS/nodes/kitchen/status", json.dumps(status).encode()) == status
