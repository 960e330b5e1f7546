"""Conservation of messages: what devices sent and received, what nodes counted, what telemetry contains, and
what the analysis computes agree by topic, to the message and the byte. The drops agree, too.

Simulated devices use a network of real processes with a gateway for some seconds. Meanwhile a client with a
session is offline, for which the kitchen's owner may queue 10 messages.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import hbroker.sync
from hbroker.addresses import parse_address
from hbroker.cli.sim import node_statuses
from hbroker.sim.rooms.plan import plan
from hbroker.sim.rooms.play import Play, PlayOptions, Result
from hbroker.sim.rooms.scenario import load
from hbroker.sim.rooms.summary import Summary, summarise
from tests.product.network import PATIENCE, Network
from tests.telemetry.reading import rows, sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Key = tuple[str, str, str]
"""Role, name, topic"""

TOPOLOGY: Final = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:0", workers: 2}
  - {name: bedroom, subtree: home/bedroom, listen: "127.0.0.1:0"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:0"}]}
telemetry: {file: 1}
"""
SCENARIO: Final = """
top: home
mqtt: 0.5
rooms:
  - {path: kitchen, devices: {oven: 2, lamp: 2, lock: 1, meter: 1, thermometer: 2, motion: 2}}
  - {path: bedroom, devices: {thermometer: 2, door: 2, lamp: 2, machine: 1}}
  - {path: hall, devices: {light-sensor: 2, lock: 2, smoke-detector: 1}}
watchers:
  - {name: board, filters: ["home/+/+/temperature"], over: mqtt}
  - {name: panel, filters: ["home/kitchen/#"], over: mqtt}
  - {name: recorder, filters: ["home/+/+/energy", "home/hall/#"]}
"""
SECONDS: Final = 2.5
SPEED: Final = 20.0
KEPT: Final = 10
QUIET_S: Final = 1.0
"""If nothing has arrived for this long, every message has arrived."""


@dataclass(frozen=True)
class Played:
    """The results. `missed`: by topic, the messages that the offline client received when it was back."""

    result: Result
    summary: Summary
    drops: dict[str, Counter[str]]
    missed: Counter[str]
    missed_bytes: Counter[str]
    telemetry: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The results once the network has ended and written its last file."""
    directory = tmp_path_factory.mktemp("conservation")
    (directory / "house.yaml").write_text(TOPOLOGY)
    (directory / "scenario.yaml").write_text(SCENARIO)
    network = Network(directory / "house.yaml", directory / "state")
    with closing(network):
        ready = network.event("ready")
        root, (url,) = ready["root"], ready["gateways"][0]["listeners"]
        with _connect_offline_client(root) as client:
            client.subscribe("home/kitchen/#", qos=2, queue_messages=KEPT)
        before = node_statuses(root, PATIENCE)
        play_options = PlayOptions(root, (parse_address(url.removeprefix("mqtt://")),), SECONDS, SPEED)
        result = asyncio.run(Play(plan(load(str(directory / "scenario.yaml"))), play_options).run())
        after = node_statuses(root, PATIENCE)
        missed, missed_bytes = Counter[str](), Counter[str]()
        with (
            _connect_offline_client(root) as client,
            client.subscribe("home/kitchen/#", qos=2, retain_handling=2) as messages,
        ):
            while (message := messages.next(timeout=QUIET_S)) is not None:
                missed[message.topic] += 1
                missed_bytes[message.topic] += len(message.payload)
    assert network.process.returncode == 0
    drops = {status["name"]: Counter[str](status["drops"]) for status in after}
    return Played(
        result, summarise(result, before, after), drops, missed, missed_bytes, Path(ready["telemetry"])
    )


def _connect_offline_client(root: str) -> hbroker.sync.Client:
    return hbroker.sync.connect(root, client_id="absent", session_expiry=600, timeout=PATIENCE)


def expected(played: Played) -> dict[Key, dict[str, int]]:
    """The counts of each process that follow from the devices' own counts. An owner sends one copy to each
    native receiver, and one to the gateway, however many clients of the gateway receive it."""
    result, counters = played.result, played.result.counters
    clients = result.plan.clients
    speaker = {stream.number: client for client in clients for stream in client.streams}
    counts: dict[Key, Counter[str]] = defaultdict(Counter)
    for stream in result.plan.streams:
        account, receivers = counters.publish_counters[stream.number], result.plan.receivers[stream.number]
        over_mqtt = sum(not clients[number].is_native for number in receivers)
        copies = len(receivers) - over_mqtt + (over_mqtt > 0)
        publications = Counter(messages_in=account.published, bytes_in=account.bytes)
        heard = Counter(messages_out=account.published, bytes_out=account.bytes)
        owner = counts["node", result.owners[stream.number], stream.topic]
        owner += publications
        _add(owner, heard, copies)
        gateway = counts["gateway", "gateway", stream.topic]
        if not speaker[stream.number].is_native:
            gateway += publications
        _add(gateway, heard, over_mqtt)
    for topic, count in played.missed.items():
        counts["node", "kitchen", topic] += Counter(messages_out=count, bytes_out=played.missed_bytes[topic])
    return {key: _columns(count) for key, count in counts.items() if count.total()}


def _add(to: Counter[str], counts: Counter[str], times: int) -> None:
    to.update({name: times * count for name, count in counts.items()})


def _columns(count: Counter[str]) -> dict[str, int]:
    """The columns of the counts. No device here sends a message in fragments."""
    counted = {name: count[name] for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")}
    return counted | {"whole_in": count["messages_in"], "whole_out": count["messages_out"]}


def summed(found: Iterable[dict[str, Any]]) -> dict[Key, dict[str, int]]:
    """The sums of the topic rows, without system topics."""
    grouped: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        if not row["topic"].startswith("$"):
            grouped[row["role"], row["node"], row["topic"]].append(row)
    return {key: sums(of_topic) for key, of_topic in grouped.items()}


def kitchen_total(played: Played) -> int:
    """The number of all messages for the offline client."""
    topics = [stream for stream in played.result.plan.streams if stream.topic.startswith("home/kitchen/")]
    return played.result.counters.sums(topics).published


def test_devices_and_nodes_count_the_same_messages(played: Played) -> None:
    total = played.summary.total
    assert total.published > 200
    assert total.expected == total.received
    assert (total.unsent, total.lost, total.duplicates, total.rejected, total.unanswered) == (0,) * 5
    promised = sum(
        played.result.counters.publish_counters[stream.number].published
        for stream in played.result.plan.streams
        if stream.qos
    )
    assert total.acknowledged == promised
    for node in played.summary.nodes:
        if node.name != "root":  # gateways publish their records there
            assert node.messages_in == node.sums.published > 0
            assert node.others == 0


def test_telemetry_contains_what_devices_sent_and_received(played: Played) -> None:
    assert summed(rows(played.telemetry, "topics")) == expected(played)


def test_the_counters_of_each_process_are_the_sums_of_its_topics(played: Played) -> None:
    for name in ("root", "kitchen", "bedroom", "gateway"):
        whole, parts = (sums(rows(played.telemetry, kind, name)) for kind in ("nodes", "topics"))
        assert whole == parts


def test_the_counted_drops_are_the_missing_messages(played: Played) -> None:
    """The offline client received 10 messages. Each of the others was dropped and counted with its reason."""
    dropped = _drops(rows(played.telemetry, "nodes", "kitchen"))
    lost = Counter({reason: dropped[reason] for reason in ("offline", "queue_full")})
    assert played.missed.total() == KEPT
    assert kitchen_total(played) == KEPT + lost.total()
    of_qos_0 = sum(
        played.result.counters.publish_counters[stream.number].published
        for stream in played.result.plan.streams
        if stream.qos == 0 and stream.topic.startswith("home/kitchen/")
    )
    assert lost == Counter(offline=of_qos_0, queue_full=kitchen_total(played) - of_qos_0 - KEPT)
    assert min(lost.values()) > 0
    assert {reason: played.drops["kitchen"][reason] for reason in lost} == lost


def _drops(found: Iterable[dict[str, Any]]) -> Counter[str]:
    dropped: Counter[str] = Counter()
    for row in found:
        dropped.update(dict(row["drops"]))
    return dropped


@pytest.mark.usefixtures("in_long_form")
def test_the_analysis_computes_the_same_counts(played: Played, request: pytest.FixtureRequest) -> None:
    from hbroker.spark_analysis.data import reading
    from hbroker.spark_analysis.measures import accounts, hierarchy, loads, losses
    from hbroker.spark_analysis.tables import collected

    spark: SparkSession = request.getfixturevalue("spark")  # started only if the test is not skipped
    found = reading.find(spark, f"file://{played.telemetry}")
    assert not found.skipped
    nodes = loads.in_windows(reading.read(spark, found, "nodes"), 10)
    totals = hierarchy.topic_totals(reading.read(spark, found, "topics")).cache()
    by_topic = {
        (row["role"], row["node"], row["topic"]): _columns(Counter(row))
        for row in collected(totals)
        if not row["topic"].startswith("$")
    }
    assert by_topic == expected(played)
    account_rows = collected(accounts.accounts(loads.node_load(nodes), totals))
    assert {row["node"] for row in account_rows} == {"root", "kitchen", "bedroom", "gateway"}
    assert all(row["agrees"] for row in account_rows)
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    for row in collected(losses.drops(nodes)):
        dropped[row["node"]][row["reason"]] += row["dropped"]
    for name in {row["node"] for row in account_rows}:
        assert dropped[name] == _drops(rows(played.telemetry, "nodes", name))
