"""Subtrees move, and nodes leave, while programs publish and subscribe (docs/commands.md)."""

from __future__ import annotations

import json

from tests.product.home import TOPIC, HomeNetwork, Traffic

LONGEST_GAP = 1.0
"""Seconds, on a busy machine. On a quiet one it is about 20 ms. In the simulated network, which is never
busy, the bound is a quarter second (tests/network/moving/test_moving.py)."""


def test_moves_and_leaves_lose_no_message_and_cause_no_long_gap(home: HomeNetwork) -> None:
    traffic = Traffic(home.root)
    try:
        assert home.done("move", "home/kitchen", "bedroom").startswith("home/kitchen went from kitchen")
        assert home.owner(TOPIC) == "bedroom"
        assert json.loads(home.done("leave", "home", "--json"))["left"]
        assert home.owner(TOPIC) == "bedroom"
        assert home.owner("home/x") == "root"
        answer = json.loads(home.done("move", "home/kitchen", "kitchen", "--json"))
        assert (answer["moved"], answer["from"], answer["owner"]) == (True, "bedroom", "kitchen")
        traffic.stop()
    finally:
        traffic.kill()
    assert traffic.sent > 100
    assert traffic.longest_gap < LONGEST_GAP
    home.await_state("home", "left")


def test_a_moved_subtree_stays_with_its_owner_after_a_restart(home: HomeNetwork) -> None:
    home.done("move", "home/kitchen", "bedroom")
    for name in ("kitchen", "bedroom"):
        home.network.kill_node(name)
    home.await_owner(TOPIC, "bedroom")
    assert home.owner("home/bedroom/x") == "bedroom"


def test_a_node_that_left_by_order_is_not_started_again(home: HomeNetwork) -> None:
    home.done("leave", "kitchen")
    assert home.network.event("left")["node"] == "kitchen"
    home.await_state("kitchen", "left")
    assert home.owner(TOPIC) == "home"
    assert home.states()["bedroom"] == "up"


def test_invalid_orders_are_refused_with_a_remedy(home: HomeNetwork) -> None:
    for arguments, text in (
        (("leave", "root"), "the root owns what nobody else holds"),
        (("leave", "cellar"), "no node is called 'cellar' now: `hbroker tree` lists"),
        (("leave", "a/b"), "'a/b' is not the name of a node"),
        (("move", "home/+", "kitchen"), "without wildcards"),
        (("move", "home/kitchen", "cellar"), "no node is called 'cellar'"),
        (("move", "$SYS/nodes/kitchen", "bedroom"), "every node owns its own part of $SYS"),
    ):
        ended = home.run(*arguments)
        assert ended.returncode == 1, arguments
        assert text in ended.stderr, ended.stderr
    assert home.owner(TOPIC) == "kitchen"
