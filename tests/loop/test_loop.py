"""The loop with real processes: rooms, telemetry, Spark, a plan, and its moves while the rooms are
simulated."""

from __future__ import annotations

import importlib.util
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.loop.plant import PATIENCE, TOPOLOGY, Plant, Result
from tests.needs import need
from tests.product.network import network_of
from tests.telemetry.reading import rows
from tests.waiting import until

pytestmark = [pytest.mark.usefixtures("in_long_form"), pytest.mark.timeout(900)]

PLAYED_S = 30.0
MEASURED_S = 10.0
WITHIN = 0.15
"""The relative deviation from the prediction."""


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    need(shutil.which("java") is not None, "there is no Java")
    need(importlib.util.find_spec("pyspark") is not None, "pyspark is not installed")
    with network_of(TOPOLOGY, tmp_path) as (network, root):
        yield Plant(network, root, tmp_path)


def test_the_load_of_a_skewed_network_is_balanced_while_it_is_in_use(plant: Plant) -> None:
    played = plant.simulate(PLAYED_S)
    assert_nothing_is_lost(played)
    await_telemetry(plant, played)

    found, out = plant.analyse()
    assert found["imbalance"]["node"]["max_over_mean"] > 2.0
    assert found["lost"] == 0
    assert by_node(out / "topics.parquet") == by_device(played), "devices, nodes and analysis count alike"

    with plant.simulating() as meanwhile:
        applied = plant.apply(out / "plan.yaml", MEASURED_S)
    assert_nothing_is_lost(meanwhile)

    assert found["plan"]["max_over_mean"][0] > 2.0
    assert len(applied["moves"]) > 2
    measured = applied["measured"]
    print(found["plan"]["max_over_mean"], len(applied["moves"]), measured)
    assert measured["max_mean"] < 1.25
    assert measured["max_mean"] == pytest.approx(measured["predicted_max_mean"], rel=WITHIN)
    for node in measured["nodes"]:
        assert node["load"] == pytest.approx(node["predicted"], rel=WITHIN), node


def assert_nothing_is_lost(result: Result) -> None:
    """Every message that was due was published, acknowledged, and received once by every subscriber."""
    assert result["is_clean"], result
    total = result["total"]
    assert total["asked"] == total["published"] == total["acknowledged"] > 0
    assert total["expected"] == total["received"]
    assert {name: total[name] for name in ("lost", "duplicates", "broken")} == dict.fromkeys(
        ("lost", "duplicates", "broken"), 0
    )


def await_telemetry(plant: Plant, played: Result) -> None:
    """Waits until the telemetry files contain the end of a run."""
    published = by_device(played)

    def written() -> Counter[str]:
        return Counter(
            {
                node: sum(
                    row["messages_in"] for row in rows(plant.telemetry, "topics", node) if is_of_devices(row)
                )
                for node in published
            }
        )

    until(lambda: written() == published, "the telemetry has every message", PATIENCE, found=written)


def by_device(played: Result) -> Counter[str]:
    """The number of messages at each node, as its devices count them."""
    return Counter({node["node"]: node["published"] for node in played["nodes"]})


def by_node(topics: Path) -> Counter[str]:
    """The number of messages at each node, as the analysis counts them."""
    counts: Counter[str] = Counter()
    for row in pq.read_table(topics).to_pylist():
        if row["role"] == "node" and is_of_devices(row):
            counts[row["node"]] += row["messages_in"]
    return counts


def is_of_devices(row: Result) -> bool:
    """Whether a row is about a topic of devices, and not about topics of nodes or gateways."""
    return str(row["topic"]).startswith("plant/")
