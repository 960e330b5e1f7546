"""Plans by HTTP, on a real network: what would move, what moves, and the load beside the prediction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http_api.api import FILE, Api, api_of
from tests.product.network import PATIENCE
from tests.waiting import until

BEFORE = "{name: kitchen, subtree: home/kitchen,"
AFTER = "{name: kitchen, subtree: home/kitchen, also: [home/attic/lamp, garden],"
PLAN = """
plan:
  in_us: 10
  out_us: 5
  predicted: {root: 0.1, kitchen: 0.3}
"""
WANTED = FILE.replace(BEFORE, AFTER) + PLAN


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A network of its own, whose subtrees may move."""
    with api_of(tmp_path) as running:
        yield running


def ended(api: Api, id: str) -> dict[str, Any]:
    """The plan, once it has ended."""
    until(lambda: api.get(f"/v1/plans/{id}")["state"] != "running", "the plan has ended", PATIENCE)
    found: dict[str, Any] = api.get(f"/v1/plans/{id}")
    return found


def owner(api: Api, topic: str) -> str:
    """The node that owns a topic."""
    node: str = api.get("/v1/owner", topic=topic)["node"]
    return node


def test_a_plan_is_tried_and_carried_out(api: Api) -> None:
    tried = api.post("/v1/plans", {"topology": WANTED, "dry_run": True}, status=202)
    assert (tried["id"], tried["state"]) == (None, "dry_run")
    assert [(each["subtree"], each["target"], each["state"]) for each in tried["moves"]] == [
        ("home/attic/lamp", "kitchen", "waiting"),
        ("garden", "kitchen", "waiting"),
    ]
    assert owner(api, "garden/tap") == "root"
    with api.events("/v1/events") as events:
        begun = api.post("/v1/plans", {"topology": WANTED}, status=202)
        told = next(content for name, content in events if name == "plan" and content["state"] != "running")
    assert (told["id"], told["done"]) == (begun["id"], 2)
    plan = ended(api, begun["id"])
    assert (plan["state"], plan["error"], plan["predicted_max_mean"]) == ("done", None, pytest.approx(2.25))
    assert [each["state"] for each in plan["moves"]] == ["done", "done"]
    assert {each["node"]: each["predicted"] for each in plan["loads"]} == {
        "attic": None,
        "kitchen": 0.3,
        "root": 0.1,
    }
    assert (owner(api, "home/attic/lamp"), owner(api, "garden/tap")) == ("kitchen", "kitchen")
    assert [each["id"] for each in api.get("/v1/plans")["items"]] == [begun["id"]]
    # Its own part of the hierarchy is kitchen's in the statuses, too, some seconds later.
    until(
        lambda: _moves(api, WANTED) == [],
        "nothing is to be moved",
        PATIENCE,
        found=lambda: _moves(api, WANTED),
    )
    assert ended(api, api.post("/v1/plans", {"topology": WANTED}, status=202)["id"])["state"] == "done"


def _moves(api: Api, topology: str) -> list[Any]:
    tried: list[Any] = api.post("/v1/plans", {"topology": topology, "dry_run": True}, status=202)["moves"]
    return tried


def test_a_plan_that_cannot_be_carried_out_says_why(api: Api) -> None:
    wrong = api.post("/v1/plans", {"topology": "nodes: [{name: root}]"}, status=422)["detail"]
    assert "topology:1: node 'root' has no `subtree`" in wrong
    absent = WANTED.replace("name: attic", "name: cellar")
    assert "node 'cellar' does not run" in api.post("/v1/plans", {"topology": absent}, status=422)["detail"]
    secret = "nodes: [{name: root, subtree: '', listen: '127.0.0.1:1'}]\nauth: {join_key_file: /etc/passwd}"
    tried = api.post("/v1/plans", {"topology": secret, "dry_run": True}, status=202)
    assert tried["moves"] == [], "no file is read for a caller"
    api.get("/v1/plans/none", status=404)
