"""From rows to a plan: the loads of subtrees equal plain Python's, and hbroker reads the plan as a
topology."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hbroker import topology
from hbroker.spark_analysis.data.schema import NODES, TOPICS
from hbroker.spark_analysis.measures.hierarchy import DEEPEST, topic_totals
from hbroker.spark_analysis.plans.delegation import FINEST, Delegation, delegate, subtree_messages
from hbroker.spark_analysis.tables import collected
from tests.analysis.networks import BEGIN
from tests.analysis.networks import TOPICS as ODD_TOPICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark takes long on a busy machine

OWNERS = {"root": [""], "kitchen": ["home/kitchen"], "bedroom": ["home/bedroom"]}
SECONDS = 0.1


def totals_of(spark: SparkSession, loads: dict[str | None, int], role: str = "node") -> DataFrame:
    """The totals of topics with these numbers of messages, and one copy of each message."""
    rows = [
        ("root", role, 1, BEGIN, 1.0, topic, *(count, 10 * count) * 2, count, count)
        for topic, count in loads.items()
    ]
    return topic_totals(spark.createDataFrame(rows, TOPICS))


def nodes_of(spark: SparkSession, owners: dict[str, list[str]]) -> DataFrame:
    """The claims of each node at the end. Before that the root had everything."""
    rows = []
    for number, (name, subtrees) in enumerate(owners.items()):
        for second, held in ((0, [""] if name == "root" else ["before"]), (9, subtrees)):
            known: dict[str, Any] = dict.fromkeys(NODES.names, 0)
            known |= {"node": name, "role": "node", "at": BEGIN + timedelta(seconds=second), "seconds": 1.0}
            known |= {"address": f"127.0.0.1:{7700 + number}", "subtrees": held, "workers": 1}
            known |= {"parent": None if name == "root" else "root", "drops": {}, "latency": [], "cpu_s": 0.0}
            rows.append(tuple(known[column] for column in NODES.names))
    return spark.createDataFrame(rows, NODES)


def handled(**loads: int) -> list[dict[str, Any]]:
    """The messages that nodes handled within `SECONDS`."""
    common = {"role": "node", "window_start": BEGIN, "seconds": SECONDS}
    return [{**common, "node": node, "load": load} for node, load in loads.items()]


def prefixes(topic: str | None) -> list[str]:
    """The subtrees that can be named for a topic."""
    if topic is None or topic.startswith("$") or not topic.isprintable():
        return [""]
    levels = topic.split("/")
    whole = levels[: levels.index("")] if "" in levels else levels
    return ["/".join(whole[:depth]) for depth in range(min(len(whole), DEEPEST) + 1)]


def test_the_messages_of_a_subtree_are_the_sum_of_its_topics(spark: SparkSession) -> None:
    loads: dict[str | None, int] = {topic: 10 + number for number, topic in enumerate(ODD_TOPICS)}
    loads |= {"$gateway/claims": 7, "home//odd": 5, "home/attic/box": 1, "home/cellar": 10_000}
    claimed = ["home/attic", "nobody/speaks"]
    expected: Counter[str] = Counter()
    for topic, count in loads.items():
        expected.update(dict.fromkeys(prefixes(topic), count))
    heavy = {
        name: count
        for name, count in expected.items()
        if count >= FINEST * sum(loads.values()) or name in claimed
    }
    found = collected(subtree_messages(totals_of(spark, loads), claimed))
    assert {row["subtree"]: row["messages_in"] for row in found} == heavy
    assert all(row["messages_in"] == row["messages_out"] for row in found)
    assert len(found) == len(heavy)


def test_a_plan_is_a_topology_with_the_predicted_loads(spark: SparkSession) -> None:
    loads: dict[str | None, int] = {f"home/kitchen/{device}": 1_000 for device in range(8)}
    loads |= {"home/bedroom/lamp": 1_000, "home/hall/lamp": 1_000, "$gateway/claims": 10}
    costs: list[dict[str, Any]] = [
        {"node": "kitchen", "role": "node", "in_us": 20.0, "out_us": 10.0},
        {"node": "bedroom", "role": "node", "in_us": 900.0, "out_us": 900.0},
        {"node": "hall", "role": "node", "in_us": None, "out_us": None},
        {"node": "root", "role": "node", "in_us": 90.0, "out_us": -10.0},
        {"node": "kitchen", "role": "gateway", "in_us": 500.0, "out_us": 500.0},
    ]
    totals = totals_of(spark, loads).unionByName(totals_of(spark, {"home/kitchen/0": 10**9}, "gateway"))
    node_load = handled(root=2_020, kitchen=16_000, bedroom=2_000)
    found = delegate(totals, nodes_of(spark, OWNERS), costs, node_load)
    assert isinstance(found, Delegation)
    assert found.plan.before == pytest.approx({"root": 0.303, "kitchen": 2.4, "bedroom": 0.3})
    planned = topology.parse(found.topology())
    assert {node.name: node.address[1] for node in planned.nodes} == {
        "root": 7700,
        "kitchen": 7701,
        "bedroom": 7702,
    }
    assert planned.plan is not None
    assert dict(planned.plan.predicted) == pytest.approx(found.plan.after)
    assert max(found.plan.after.values()) < 1.3
    owned: Counter[str] = Counter()
    for topic, count in loads.items():
        owners = {subtree: node.name for node in planned.nodes for subtree in node.subtrees}
        owned[next(owners[name] for name in reversed(prefixes(topic)) if name in owners)] += count
    carried = {name: planned.plan.load(count, count) / SECONDS for name, count in owned.items()}
    assert carried == pytest.approx(found.plan.after), "it is what the topology leads to"


@pytest.mark.parametrize(
    ("owners", "load", "reason"),
    [
        ({"kitchen": ["home/kitchen"]}, 2, "0 nodes of the telemetry are roots"),
        ({**OWNERS, "cellar": []}, 2, "node cellar held nothing"),
        (OWNERS, 0, "no message was handled"),
    ],
)
def test_without_a_plan_the_reason_is_returned(
    spark: SparkSession, owners: dict[str, list[str]], load: int, reason: str
) -> None:
    found = delegate(totals_of(spark, {"home/x": 1}), nodes_of(spark, owners), [], handled(kitchen=load))
    assert isinstance(found, str)
    assert reason in found
