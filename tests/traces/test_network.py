"""The spans of a message through a real network make one connected tree."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hbroker import sync
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, Network, network_of
from tests.traces.collector import Collected, Collector, collector
from tests.waiting import until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{PARENT}-01"
FILE = """
traces: {url}
nodes:
  - {{name: root, subtree: "", listen: "127.0.0.1:7700"}}
  - {{name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}}
gateways:
  - {{name: gateway, listeners: [{{address: "127.0.0.1:1883"}}]}}
"""
OVEN = "home/kitchen/oven"


class Traced:
    """A network, and the collector of its spans."""

    def __init__(self, network: Network, root: str, found: Collector) -> None:
        self.network, self.root, self.collector = network, root, found
        (url,) = network.state()["gateways"][0]["listeners"]
        self.mqtt_port = url.rpartition(":")[2]

    def mosquitto(self, program: str, *flags: str) -> list[str]:
        """The command line of a stock client."""
        return [program, "-p", self.mqtt_port, "-V", "5", *flags]

    def await_spans(self, count: int, trace: str = TRACE) -> list[Collected]:
        """The spans of a trace, once there are so many."""

        def found() -> list[Collected]:
            return [span for span in self.collector.spans if span.trace == trace]

        until(lambda: len(found()) >= count, f"{count} spans", PATIENCE, found=found)
        return found()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traced]:
    with (
        collector() as found,
        network_of(FILE.format(url=found.url), tmp_path_factory.mktemp("traced")) as (network, root),
    ):
        yield Traced(network, root, found)


def test_a_message_through_gateway_owner_and_two_subscribers_is_one_tree(traced: Traced) -> None:
    need_mosquitto()
    with ExitStack() as stack:
        client = stack.enter_context(sync.connect(traced.root))
        messages = stack.enter_context(client.subscribe("home/#", qos=1))
        command = traced.mosquitto("mosquitto_sub", "-t", "home/#", "-q", "1", "-C", "1", "-W", "60", "-d")
        unbuffered = ["stdbuf", "-oL", *command]
        mqtt = stack.enter_context(subprocess.Popen(unbuffered, stdout=subprocess.PIPE, text=True))
        assert mqtt.stdout is not None
        assert any("SUBACK" in line for line in mqtt.stdout)
        publish = traced.mosquitto("mosquitto_pub", "-t", OVEN, "-q", "1", "-m", "180")
        subprocess.run(
            [*publish, "-D", "publish", "user-property", "traceparent", CONTEXT], check=True, timeout=PATIENCE
        )
        received = messages.next(timeout=PATIENCE)
        assert received is not None
        assert dict(received.user_properties) == {"traceparent": CONTEXT}, "it goes on unaltered"
        assert mqtt.wait(PATIENCE) == 0
    spans = traced.await_spans(5)
    by_name = sorted((span.service, span.name) for span in spans)
    gateway, kitchen = ("hbroker-gateway", "gateway"), ("hbroker-node", "kitchen")
    assert by_name == sorted(
        [
            (gateway, f"publish {OVEN}"),
            (kitchen, f"process {OVEN}"),
            (kitchen, f"send {OVEN}"),
            (kitchen, f"send {OVEN}"),
            (gateway, f"send {OVEN}"),
        ]
    )
    assert _depths(spans) == {"publish": [1], "process": [2], "send": [3, 3, 3]}
    owner = next(span for span in spans if span.name.startswith("process"))
    assert all(span.started <= span.ended for span in spans)
    assert owner.attributes["messaging.destination.name"] == OVEN
    assert owner.attributes["messaging.hbroker.qos"] == 1
    assert len({span.attributes["messaging.message.id"] for span in spans}) == 1


def test_a_native_publisher_is_directly_above_the_owner(traced: Traced) -> None:
    trace = TRACE.replace("0af", "1af")
    properties = [("traceparent", CONTEXT.replace(TRACE, trace))]
    with sync.connect(traced.root) as client, client.subscribe("home/#", qos=1) as messages:
        client.publish(OVEN, b"180", qos=1, user_properties=properties)
        assert messages.next(timeout=PATIENCE) is not None
        client.publish("garden/tap", b"on", qos=0, user_properties=properties)
    spans = traced.await_spans(3, trace)
    assert sorted(span.name for span in spans) == ["process garden/tap", f"process {OVEN}", f"send {OVEN}"]
    assert _depths(spans) == {"process": [1, 1], "send": [2]}


def test_what_is_not_sampled_has_no_spans(traced: Traced) -> None:
    trace, later = TRACE.replace("0af", "2af"), TRACE.replace("0af", "3af")
    with sync.connect(traced.root) as client:
        not_sampled = CONTEXT.replace(TRACE, trace).replace("-01", "-00")
        client.publish(OVEN, b"180", qos=1, user_properties=[("traceparent", not_sampled)])
        client.publish(OVEN, b"180", qos=1, user_properties=[("traceparent", "rubbish")])
        client.publish(OVEN, b"180", qos=1, user_properties=[("traceparent", CONTEXT.replace(TRACE, later))])
    traced.await_spans(1, later)
    assert all(span.trace != trace for span in traced.collector.spans)


def test_a_topology_names_an_url(tmp_path: Path) -> None:
    from hbroker.cli import main
    from hbroker.cli.exits import USAGE

    file = tmp_path / "house.yaml"
    file.write_text(FILE.format(url="collector:4318"))
    assert main(["check", str(file)]) == USAGE


def _depths(spans: list[Collected]) -> dict[str, list[int]]:
    """How far below the publisher's span each span is, by its operation. Each one is below another, or below
    that one."""
    above = {span.id: span.parent for span in spans}
    depths: dict[str, list[int]] = {}
    for span in spans:
        depth, at = 1, span.parent
        while at != PARENT:
            depth, at = depth + 1, above[at]
        depths.setdefault(span.name.split()[0], []).append(depth)
    return {operation: sorted(found) for operation, found in depths.items()}
