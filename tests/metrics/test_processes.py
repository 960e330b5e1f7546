"""A node and a gateway of a real network serve their own metrics."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import httpx
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hbroker import sync
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, Network, network_of
from tests.waiting import until

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", metrics: "127.0.0.1:9100"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:1883"}], metrics: "127.0.0.1:9101"}
"""


def samples(network: Network, process: str) -> dict[str, float]:
    """The samples of a process, by name and labels."""
    log = (network.directory / "house" / f"{process}.log").read_text()
    (address,) = re.findall(r"metrics +address=(\S+)", log)
    headers = {"Accept": "application/openmetrics-text"}
    answer = httpx.get(f"http://{address}/metrics", headers=headers, timeout=PATIENCE)
    found = text_string_to_metric_families(answer.raise_for_status().text)  # type: ignore[no-untyped-call]
    return {
        " ".join((sample.name, *sample.labels.values())): sample.value
        for family in found
        for sample in family.samples
    }


def test_a_node_and_a_gateway_serve_their_metrics(tmp_path: Path) -> None:
    need_mosquitto()
    with network_of(FILE, tmp_path) as (network, root):
        (url,) = network.state()["gateways"][0]["listeners"]
        before = samples(network, "gateway")
        assert before["hbroker_gateway_connects_total gateway"] == 0
        port = url.rpartition(":")[2]
        command = ["mosquitto_pub", "-p", port, "-t", "home/oven", "-q", "1", "-m", "x"]
        subprocess.run(command, check=True, timeout=PATIENCE)
        after = samples(network, "gateway")
        assert after["hbroker_gateway_connects_total gateway"] == 1
        assert after["hbroker_gateway_messages_received_total gateway"] == 1
        assert after["hbroker_gateway_refused_total gateway password"] == 0
        with sync.connect(root) as client:
            client.publish("home/lamp", b"on", qos=1)
        node = samples(network, "root")
        assert node["hbroker_node_up root"] == 1
        assert node["hbroker_messages_received_total root"] >= 2
        # A topic is counted when its interval of telemetry ends.
        hot = "hbroker_topic_received_messages_per_second home/lamp"
        until(lambda: samples(network, "root").get(hot, 0.0) > 0, "the topic is hot", PATIENCE)
