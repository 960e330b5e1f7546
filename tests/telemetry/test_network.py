"""A network in processes of its own, and its telemetry files: what devices sent is what nodes counted."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

import hbroker.errors
import hbroker.sync
from tests.product.network import PATIENCE, PROJECT, Network, environment, run_hbroker
from tests.product.network import hbroker as command
from tests.telemetry.reading import files, order, rows, sums
from tests.waiting import until

TOPOLOGY = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:0", workers: 2}
gateways:
  - {name: gateway, workers: 2, listeners: [{address: "127.0.0.1:0"}]}
telemetry: {file: 1}
"""
NATIVE, OVER_MQTT, BYTES = 120, 80, 50


class HomeNetwork(Network):
    """A root, a kitchen and a gateway."""

    def __init__(self, directory: Path, *flags: str, topology: str = TOPOLOGY) -> None:
        file = directory / "house.yaml"
        file.write_text(topology)
        super().__init__(file, directory / "state", flags)
        self.ready = self.event("ready")
        self.telemetry = Path(self.ready["telemetry"] or directory / "state" / "house" / "telemetry")

    @property
    def root(self) -> str:
        return str(self.ready["root"])

    @contextmanager
    def mqtt_client(self, name: str) -> Iterator[mqtt.Client]:
        """A connected client. `user_data_get()` has the topics of its messages."""
        (url,) = self.ready["gateways"][0]["listeners"]
        host, _, port = url.removeprefix("mqtt://").rpartition(":")
        client = mqtt.Client(CallbackAPIVersion.VERSION2, name, userdata=[])
        connected, subscribed = threading.Event(), threading.Event()
        client.on_connect = lambda *_: connected.set()
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_message = lambda _, received, message: received.append(message.topic)
        client.subscribed = subscribed  # type: ignore[attr-defined]
        client.connect(host, int(port))
        client.loop_start()
        try:
            assert connected.wait(PATIENCE)
            yield client
        finally:
            client.disconnect()
            client.loop_stop()


@contextmanager
def home_network(directory: Path, *flags: str, topology: str = TOPOLOGY) -> Iterator[HomeNetwork]:
    network = HomeNetwork(directory, *flags, topology=topology)
    try:
        yield network
    finally:
        network.close()


def topic(number: int) -> str:
    return f"home/kitchen/{number % 7}/temperature"


def test_the_files_contain_what_the_devices_sent(tmp_path: Path) -> None:
    everything = NATIVE + OVER_MQTT
    with (
        home_network(tmp_path) as network,
        hbroker.sync.connect(network.root) as device,
        hbroker.sync.connect(network.root) as reader,
        reader.subscribe("home/kitchen/#", qos=1) as messages,
        network.mqtt_client("display") as display,
        network.mqtt_client("sensor") as sensor,
    ):
        display.subscribe("home/kitchen/#", 1)
        assert display.subscribed.wait(PATIENCE)  # type: ignore[attr-defined]
        for number in range(NATIVE):
            device.publish(topic(number), bytes(BYTES), qos=1 + number % 2)
        published = [sensor.publish(topic(number), bytes(BYTES), 1) for number in range(OVER_MQTT)]
        for message in published:
            message.wait_for_publish(PATIENCE)
        for _, _ in zip(range(everything), messages, strict=False):
            pass
        until(lambda: len(display.user_data_get()) == everything, "MQTT has all", PATIENCE)
        until(lambda: bool(files(network.telemetry, "nodes", "kitchen")), "a first file", PATIENCE)
    assert network.process.returncode == 0
    told = rows(network.telemetry, "topics", "kitchen")
    kitchen = [row for row in told if row["topic"].startswith("home/kitchen/")]
    assert {row["topic"] for row in kitchen} == {topic(number) for number in range(7)}
    # one copy to the reader, and one to the gateway, which passes it on
    assert sums(kitchen) == {
        "messages_in": everything,
        "bytes_in": everything * BYTES,
        "messages_out": 2 * everything,
        "bytes_out": 2 * everything * BYTES,
        "whole_in": everything,
        "whole_out": 2 * everything,
    }
    at_gateway = [row for row in rows(network.telemetry, "topics", "gateway") if row["topic"][0] != "$"]
    assert sums(at_gateway) == {
        "messages_in": OVER_MQTT,
        "bytes_in": OVER_MQTT * BYTES,
        "messages_out": everything,
        "bytes_out": everything * BYTES,
        "whole_in": OVER_MQTT,
        "whole_out": everything,
    }
    check_agreement(network.telemetry)
    timed = [sum(row["latency"]) for row in rows(network.telemetry, "nodes", "kitchen")]
    assert sum(timed) == everything + sums(told)["messages_in"] - sums(kitchen)["messages_in"]


def check_agreement(directory: Path) -> None:
    """Checks that each process's row for an interval is the sum of its topics' rows."""
    for whole in rows(directory, "nodes"):
        key = ("node", "run", "at")
        of_topics = [
            row
            for row in rows(directory, "topics", whole["node"])
            if all(row[name] == whole[name] for name in key)
        ]
        assert sums([whole]) == sums(of_topics)
        assert whole["seconds"] > 0
        assert whole["cpu_s"] >= 0
        assert whole["rss_bytes"] > 1 << 20
    (root,) = {row["parent"] for row in rows(directory, "nodes", "root")}
    assert root is None
    first = rows(directory, "nodes", "kitchen")[0]
    assert (first["parent"], first["workers"], first["role"]) == ("root", 2, "node")
    assert first["subtrees"] == ["home/kitchen"]
    assert {row["role"] for row in rows(directory, "nodes", "gateway")} == {"gateway"}


def test_kill_leaves_complete_files_and_the_next_run_adds_its_own(tmp_path: Path) -> None:
    with home_network(tmp_path) as network, hbroker.sync.connect(network.root, timeout=1.0) as device:
        for _ in range(2):
            known = len(files(network.telemetry, "nodes", "kitchen"))
            ends = time.monotonic() + 1.2
            while time.monotonic() < ends:
                with contextlib.suppress(hbroker.errors.HBrokerError):
                    device.publish("home/kitchen/oven", b"x" * BYTES, qos=1)
            network.processes()["kitchen"].kill()
            assert network.event("back")["node"] == "kitchen"
            until(
                lambda known=known: len(files(network.telemetry, "nodes", "kitchen")) > known,  # type: ignore[misc]
                "it writes again",
                PATIENCE,
            )
    all_files = files(network.telemetry, "nodes", "kitchen")
    runs = {order(path)[0] for path in all_files}
    assert len(runs) == 3, "the files of those that were killed are there, and of the one that was not"
    assert not list(network.telemetry.rglob(".*")), "nothing is left half-written"
    for run in runs:
        numbers = sorted(order(path)[1] for path in all_files if order(path)[0] == run)
        assert numbers == list(range(len(numbers)))
    check_agreement(network.telemetry)


def test_no_telemetry_is_written_with_no_telemetry(tmp_path: Path) -> None:
    with home_network(tmp_path, "--no-telemetry") as network:
        assert network.ready["telemetry"] is None
        assert status(network)["telemetry"] is None
        with hbroker.sync.connect(network.root) as device:
            device.publish("home/kitchen/oven", b"180", qos=1)
    assert not network.telemetry.exists()


def test_status_and_the_ready_event_name_the_telemetry_directory(tmp_path: Path) -> None:
    elsewhere = TOPOLOGY.replace("file: 1", "file: 1, directory: load")
    with home_network(tmp_path, topology=elsewhere) as network:
        assert network.telemetry == tmp_path / "load"
        assert status(network)["telemetry"] == str(tmp_path / "load")
        until(lambda: bool(files(network.telemetry, "nodes", "gateway")), "a first file", PATIENCE)


def status(network: HomeNetwork) -> dict[str, Any]:
    told = run_hbroker("status", "--json", "--state-dir", network.directory, check=True)
    answer: dict[str, Any] = json.loads(told.stdout)
    return answer


@pytest.mark.parametrize("config", [False, True], ids=["flags", "file"])
def test_a_single_node_writes_telemetry(tmp_path: Path, config: bool) -> None:
    file = tmp_path / "house.yaml"
    file.write_text(f"security: off\n{TOPOLOGY}")
    flags = ["--config", str(file)] if config else ["--subtree", "", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command("node"), "--name", "root", *flags, "--telemetry", str(tmp_path / "load")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        cwd=PROJECT,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("ready")
    os.kill(process.pid, signal.SIGTERM)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, log
    (row,) = rows(tmp_path / "load", "nodes", "root")
    assert (row["node"], row["role"], row["workers"]) == ("root", "node", 1)
