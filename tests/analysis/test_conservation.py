"""One count of each message: what devices said and had, what nodes counted, what telemetry holds and what the
analysis makes of it agree by topic, to the message and the byte; where something was dropped, to the drop.

A house of real processes, with a gateway, is played in for some seconds, while a client with a session is
away for which the kitchen's owner may keep 10 messages.
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
from hbroker.cli.sim import node_statuses
from hbroker.config import parse_address
from hbroker.sim.rooms.accounts import Summary, summarised
from hbroker.sim.rooms.plan import plan
from hbroker.sim.rooms.play import Play, PlayOptions, Result
from hbroker.sim.rooms.scenario import load
from tests.product.network import PATIENCE, Network
from tests.telemetry.reading import rows, sums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Key = tuple[str, str, str]
"""Role, name, topic."""

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
"""Nothing came for so long: it has had all."""


@dataclass(frozen=True)
class Played:
    """What came of it. `missed`: by topic, what came to the client that was away, when it was back."""

    result: Result
    summary: Summary
    drops: dict[str, Counter[str]]
    missed: Counter[str]
    missed_bytes: Counter[str]
    telemetry: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The network has ended, and written its last file."""
    directory = tmp_path_factory.mktemp("conservation")
    (directory / "house.yaml").write_text(TOPOLOGY)
    (directory / "scenario.yaml").write_text(SCENARIO)
    network = Network(directory / "house.yaml", directory / "state")
    with closing(network):
        ready = network.event("ready")
        root, (url,) = ready["root"], ready["gateways"][0]["listeners"]
        with _absent(root) as client:
            client.subscribe("home/kitchen/#", qos=2, queue_messages=KEPT)
        before = node_statuses(root, PATIENCE)
        play_options = PlayOptions(root, (parse_address(url.removeprefix("mqtt://")),), SECONDS, SPEED)
        result = asyncio.run(Play(plan(load(str(directory / "scenario.yaml"))), play_options).run())
        after = node_statuses(root, PATIENCE)
        missed, missed_bytes = Counter[str](), Counter[str]()
        with (
            _absent(root) as client,
            client.subscribe("home/kitchen/#", qos=2, retain_handling=2) as messages,
        ):
            while (message := messages.next(timeout=QUIET_S)) is not None:
                missed[message.topic] += 1
                missed_bytes[message.topic] += len(message.payload)
    assert network.process.returncode == 0
    drops = {status["name"]: Counter[str](status["drops"]) for status in after}
    return Played(
        result, summarised(result, before, after), drops, missed, missed_bytes, Path(ready["telemetry"])
    )


def _absent(root: str) -> hbroker.sync.Client:
    return hbroker.sync.connect(root, client_id="absent", session_expiry=600, timeout=PATIENCE)


def expected(played: Played) -> dict[Key, dict[str, int]]:
    """What each process has to have counted, by what the devices themselves counted. An owner hands a copy to
    each native receiver, and one to the gateway however many clients of it are to have it."""
    result, counters = played.result, played.result.counters
    clients = result.plan.clients
    speaker = {stream.number: client for client in clients for stream in client.streams}
    counts: dict[Key, Counter[str]] = defaultdict(Counter)
    for stream in result.plan.streams:
        account, receivers = counters.accounts[stream.number], result.plan.receivers[stream.number]
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
    """No device here says anything in parts."""
    counted = {name: count[name] for name in ("messages_in", "bytes_in", "messages_out", "bytes_out")}
    return counted | {"whole_in": count["messages_in"], "whole_out": count["messages_out"]}


def summed(found: Iterable[dict[str, Any]]) -> dict[Key, dict[str, int]]:
    """The rows of topics, without those of the system itself."""
    grouped: dict[Key, list[dict[str, Any]]] = defaultdict(list)
    for row in found:
        if not row["topic"].startswith("$"):
            grouped[row["role"], row["node"], row["topic"]].append(row)
    return {key: sums(of_topic) for key, of_topic in grouped.items()}


def kitchen_total(played: Played) -> int:
    """All that the client that was away was to have."""
    topics = [stream for stream in played.result.plan.streams if stream.topic.startswith("home/kitchen/")]
    return played.result.counters.sums(topics).published


def test_devices_and_nodes_counted_the_same(played: Played) -> None:
    total = played.summary.total
    assert total.published > 200
    assert total.expected == total.received
    assert (total.unsent, total.lost, total.duplicates, total.rejected, total.unanswered) == (0,) * 5
    promised = sum(
        played.result.counters.accounts[stream.number].published
        for stream in played.result.plan.streams
        if stream.qos
    )
    assert total.acknowledged == promised
    for node in played.summary.nodes:
        if node.name != "root":  # to which gateways write their records
            assert node.messages_in == node.sums.published > 0
            assert node.others == 0


def test_telemetry_holds_what_devices_said_and_had(played: Played) -> None:
    assert summed(rows(played.telemetry, "topics")) == expected(played)


def test_each_process_says_of_itself_what_its_topics_add_up_to(played: Played) -> None:
    for name in ("root", "kitchen", "bedroom", "gateway"):
        whole, parts = (sums(rows(played.telemetry, kind, name)) for kind in ("nodes", "topics"))
        assert whole == parts


def test_what_was_dropped_is_what_is_missing(played: Played) -> None:
    """Who was away has 10 messages, and of each of the others a drop with its reason."""
    dropped = _drops(rows(played.telemetry, "nodes", "kitchen"))
    lost = Counter({reason: dropped[reason] for reason in ("away", "queue_full")})
    assert played.missed.total() == KEPT
    assert kitchen_total(played) == KEPT + lost.total()
    of_qos_0 = sum(
        played.result.counters.accounts[stream.number].published
        for stream in played.result.plan.streams
        if stream.qos == 0 and stream.topic.startswith("home/kitchen/")
    )
    assert lost == Counter(away=of_qos_0, queue_full=kitchen_total(played) - of_qos_0 - KEPT)
    assert min(lost.values()) > 0
    assert {reason: played.drops["kitchen"][reason] for reason in lost} == lost


def _drops(found: Iterable[dict[str, Any]]) -> Counter[str]:
    dropped: Counter[str] = Counter()
    for row in found:
        dropped.update(dict(row["drops"]))
    return dropped


@pytest.mark.usefixtures("in_long_form")
def test_the_analysis_makes_the_same_of_it(played: Played, request: pytest.FixtureRequest) -> None:
    from hbroker.spark_analysis.data import reading
    from hbroker.spark_analysis.measures import accounts, hierarchy, loads, losses
    from hbroker.spark_analysis.tables import collected

    spark: SparkSession = request.getfixturevalue("spark")  # Not before it is known to be wanted.
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
    books = collected(accounts.accounts(loads.node_load(nodes), totals))
    assert {row["node"] for row in books} == {"root", "kitchen", "bedroom", "gateway"}
    assert all(row["agrees"] for row in books)
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    for row in collected(losses.drops(nodes)):
        dropped[row["node"]][row["reason"]] += row["dropped"]
    for name in {row["node"] for row in books}:
        assert dropped[name] == _drops(rows(played.telemetry, "nodes", name))
