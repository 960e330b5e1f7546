"""A running network becomes what a topology says, while programs publish and subscribe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.product.home import FILE, TOPIC, HomeNetwork, Traffic
from tests.product.network import network_up, tree

PLAN = {
    "in_us": 1000.0,
    "out_us": 1000.0,
    "predicted": {"root": 0.0, "home": 0.0, "kitchen": 0.0, "bedroom": 1.0},
}

ALSO = {"bedroom": ["home/kitchen/oven", "home/cellar"]}


def planned(path: Path, also: dict[str, list[str]], **sections: object) -> str:
    """Writes a topology file in which nodes have further subtrees."""
    document: dict[str, Any] = yaml.safe_load(FILE) | sections
    for node in document["nodes"]:
        if node["name"] in also:
            node["also"] = also[node["name"]]
    path.write_text(yaml.safe_dump(document))
    return str(path)


def claims(home: HomeNetwork) -> dict[str, list[str]]:
    return {name: sorted(status["subtrees"]) for name, status in tree(home.root).items()}


def test_a_plan_is_carried_out_under_traffic_and_undone(home: HomeNetwork, tmp_path: Path) -> None:
    file = planned(tmp_path / "plan.yaml", ALSO, plan=PLAN)
    back = planned(tmp_path / "back.yaml", {})
    traffic = Traffic(home.root)
    try:
        told = json.loads(home.done("apply", file, "--dry-run", "--json"))
        assert [move["subtree"] for move in told["moves"]] == ["home/kitchen/oven", "home/cellar"]
        assert home.owner(TOPIC) == "kitchen", "nothing has moved"

        told = json.loads(home.done("apply", file, "--measure", "1", "--json"))
        assert all(move["done"] for move in told["moves"])
        assert claims(home)["bedroom"] == ["home/bedroom", "home/cellar", "home/kitchen/oven"]
        measured = {node["name"]: node for node in told["measured"]["nodes"]}
        assert measured["bedroom"]["messages_in"] > 50
        assert told["measured"]["max_mean"] == pytest.approx(4, abs=0.5), "one of four carries all"
        assert home.done("apply", file, "--measure", "0").startswith("nothing to move")

        home.done("apply", back)
        assert claims(home)["bedroom"] == ["home/bedroom"]
        assert home.owner(TOPIC) == "kitchen"
        traffic.stop()
    finally:
        traffic.kill()
    assert traffic.sent > 100
    assert "is not that which was analysed" in home.done("apply", file, "--measure", "0.1"), (
        "there is none any more"
    )


def test_a_node_that_gives_up_its_subtree_keeps_parts_of_it(home: HomeNetwork, tmp_path: Path) -> None:
    """The remaining part goes to the root, although the root cannot claim a subtree."""
    document = yaml.safe_load(FILE)
    (kitchen,) = (node for node in document["nodes"] if node["name"] == "kitchen")
    kitchen["subtree"], kitchen["also"] = "home/kitchen/oven", ["home/kitchen/tap"]
    file = tmp_path / "opened.yaml"
    file.write_text(yaml.safe_dump(document))
    traffic = Traffic(home.root)
    try:
        home.done("apply", str(file))
        assert claims(home)["kitchen"] == ["home/kitchen/oven", "home/kitchen/tap"]
        owners = [home.owner(f"home/kitchen/{part}") for part in ("oven", "tap/x", "kettle")]
        assert owners == ["kitchen", "kitchen", "home"]
        traffic.stop()
    finally:
        traffic.kill()


def test_two_nodes_exchange_their_subtrees(home: HomeNetwork, tmp_path: Path) -> None:
    document = yaml.safe_load(FILE)
    nodes = {node["name"]: node for node in document["nodes"]}
    nodes["kitchen"]["subtree"], nodes["bedroom"]["subtree"] = "home/bedroom", "home/kitchen"
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump(document))
    home.done("apply", str(file))
    assert (home.owner(TOPIC), home.owner("home/bedroom/x")) == ("bedroom", "kitchen")


def test_a_node_that_is_down_is_reported_before_anything_moves(home: HomeNetwork, tmp_path: Path) -> None:
    document = yaml.safe_load(planned_text(tmp_path))
    document["nodes"].append({"name": "cellar", "subtree": "home/cellar", "listen": "127.0.0.1:7704"})
    file = tmp_path / "more.yaml"
    file.write_text(yaml.safe_dump(document))
    ended = home.run("apply", str(file))
    assert ended.returncode == 1
    assert "node 'cellar' does not run" in ended.stderr
    assert home.owner(TOPIC) == "kitchen"


def planned_text(tmp_path: Path) -> str:
    return Path(planned(tmp_path / "plan.yaml", {"bedroom": ["home/kitchen/oven"]})).read_text()


def test_further_subtrees_are_claimed_from_the_start(tmp_path: Path) -> None:
    file = Path(
        planned(tmp_path / "house.yaml", {"bedroom": ["home/kitchen/oven"], "kitchen": ["home/bedroom/bed"]})
    )
    with network_up(file, tmp_path / "state") as (network, root):
        home = HomeNetwork(network, root)
        assert (home.owner(TOPIC), home.owner("home/bedroom/bed/x")) == ("bedroom", "kitchen")
        assert (home.owner("home/kitchen/x"), home.owner("home/bedroom/x")) == ("kitchen", "bedroom")
        network.kill_node("bedroom")
        home.await_owner(TOPIC, "bedroom")
