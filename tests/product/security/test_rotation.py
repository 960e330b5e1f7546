"""A network under load gets another authority, and its nodes other keys: no message is lost, nobody is
disconnected, and who has only the old authority is not believed and believes nobody."""

from __future__ import annotations

import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from hbroker import Unreachable, sync
from hbroker.identity.authority import Authority
from hbroker.identity.node_identity import Identity
from tests.product.network import PATIENCE, Network, network_of, run_hbroker
from tests.product.security.test_sealed_network import FILE
from tests.waiting import until

TOPIC = "home/kitchen/oven"
TOGETHER, PAUSE_S = 250, 0.05
"""5,000 messages a second."""


class Load:
    """Publishes numbers at QoS 1, to a native client and to an MQTT client, while the block runs."""

    def __init__(self, network: Network, root: str) -> None:
        self.published = 0
        self.received: list[int] = []
        self.mqtt_received: list[int] = []
        self.disconnects: list[object] = []
        self.errors: list[BaseException] = []
        self._is_ending = threading.Event()
        self._publisher, self._subscriber = sync.connect(root), sync.connect(root)
        self._messages = self._subscriber.subscribe(TOPIC, qos=1)
        self._mqtt = self._connected(int(network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]))
        self._threads = [threading.Thread(target=run) for run in (self._publish, self._read)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self._mqtt.on_disconnect = None
        self._mqtt.disconnect()
        self._mqtt.loop_stop()
        self._subscriber.close()
        self._publisher.close()

    def await_more(self, count: int) -> None:
        """Waits until `count` more messages were published, so that traffic goes on after what was done."""
        wanted = self.published + count
        until(lambda: self.published >= wanted, f"{count} messages", PATIENCE, found=lambda: self.errors)

    def await_all(self) -> None:
        """Ends the load, and waits until all messages have arrived."""
        self._is_ending.set()
        self._threads[0].join(PATIENCE)
        until(lambda: self._least() >= self.published, "all messages", PATIENCE, found=self._least)

    def _least(self) -> int:
        return min(len(self.received), len(self.mqtt_received))

    def _connected(self, port: int) -> paho.Client:
        mqtt = paho.Client(CallbackAPIVersion.VERSION2, "watcher")
        subscribed = threading.Event()
        mqtt.on_connect = lambda client, *_: client.subscribe(TOPIC, 1)
        mqtt.on_subscribe = lambda *_: subscribed.set()
        mqtt.on_message = lambda _c, _u, message: self.mqtt_received.append(int(message.payload))
        mqtt.on_disconnect = lambda *reasons: self.disconnects.append(reasons)
        mqtt.connect("127.0.0.1", port)
        mqtt.loop_start()
        assert subscribed.wait(PATIENCE)
        return mqtt

    def _publish(self) -> None:
        try:
            while not self._is_ending.wait(PAUSE_S):
                numbers = range(self.published, self.published + TOGETHER)
                messages = [(TOPIC, b"%d" % number) for number in numbers]
                self._publisher.publish_many(messages, qos=1, timeout=PATIENCE)
                self.published += TOGETHER
        except BaseException as error:
            self.errors.append(error)

    def _read(self) -> None:
        try:
            while not self._is_ending.is_set() or len(self.received) < self.published:
                message = self._messages.next(timeout=PAUSE_S)
                if message is not None:
                    self.received.append(int(message.payload))
        except BaseException as error:
            self.errors.append(error)


class Operator:
    """Who replaces keys, on the host of `hbroker up`."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.folder = network.directory / "house"
        self.authority = self.folder / "authority"

    def rotate(self, step: int) -> None:
        """Does a step of the rotation. Returns when all processes have read their files again."""
        order = ("keys", "rotate", "house", str(step), "--state-dir", str(self.network.directory))
        self._reloading(lambda: run_hbroker(*order, check=True))

    def replace_key_of_kitchen(self) -> None:
        for suffix in ("key", "crt"):
            (self.folder / "identities" / f"kitchen.{suffix}").unlink()
        self._reloading(lambda: self.network.process.send_signal(signal.SIGHUP))

    def _reloading(self, act: Callable[[], object]) -> None:
        before = self._reloads()
        act()
        until(
            lambda: all(now > then for now, then in zip(self._reloads(), before, strict=True)),
            "all have read their files again",
            PATIENCE,
            found=self._reloads,
        )

    def _reloads(self) -> list[int]:
        logs = [self.folder / f"{name}.log" for name in ("root", "kitchen", "gateway")]
        return [log.read_text().count(" reloaded") for log in logs]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Operator, str]]:
    with network_of(FILE, tmp_path) as (network, root):
        yield Operator(network), root


def test_all_keys_are_replaced_under_load(running: tuple[Operator, str], tmp_path: Path) -> None:
    operator, root = running
    old = tmp_path / "old.crt"
    shutil.copy(operator.authority / "authority.crt", old)
    key = Identity.load(operator.folder / "identities", "kitchen").key
    with Load(operator.network, root) as load:
        load.await_more(1_000)
        for step in (1, 2, 3):
            operator.rotate(step)
            load.await_more(1_000)
        operator.replace_key_of_kitchen()
        load.await_more(1_000)
        load.await_all()
    assert load.errors == []
    assert load.received == load.mqtt_received == list(range(load.published))
    assert load.disconnects == []
    replaced = Identity.load(operator.folder / "identities", "kitchen")
    assert replaced.key != key
    assert Authority.load(operator.authority).verify(replaced.chain[0], 1.8e9).name == "kitchen"
    with pytest.raises(Unreachable):
        sync.connect(root, timeout=1.0, authority=old)


def test_clients_and_nodes_find_each_other_after_each_step(running: tuple[Operator, str]) -> None:
    operator, root = running
    with sync.connect(root) as client, client.subscribe(TOPIC, qos=1) as messages:
        for step in range(1, 5):
            if step < 4:
                operator.rotate(step)
            else:
                operator.replace_key_of_kitchen()
            operator.network.kill_node("kitchen")
            client.publish(TOPIC, str(step), qos=1, timeout=PATIENCE)
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert message.payload == str(step).encode()
