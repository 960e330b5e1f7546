"""The audit of a real network: who reads it, and what it tells."""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hbroker import Refused, sync
from hbroker.identity.authority import Authority
from hbroker.protocol.packets import Reason
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, Network, environment, network_of, run_hbroker

FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:1883"}]}
"""
Record = dict[str, Any]


class Events:
    """The records that a subscription brought and that no test has awaited yet. Those of two processes may
    come in any order."""

    def __init__(self, messages: sync.Subscription) -> None:
        self._messages = messages
        self._records: list[Record] = []

    def await_record(self, node: str, event: str, **known: object) -> Record:
        """Takes the next record of this event of the node, with these fields."""
        wanted = {"node": node, "event": event, **known}
        deadline = time.monotonic() + PATIENCE
        while True:
            for record in self._records:
                if wanted.items() <= record.items():
                    self._records.remove(record)
                    return record
            message = self._messages.next(timeout=max(deadline - time.monotonic(), 0))
            assert message is not None, f"no {event} of {node}: {self._records}"
            record = json.loads(message.payload)
            assert (message.qos, message.retain, record["v"]) == (1, False, 1)
            assert message.topic == f"$SYS/audit/{record['node']}/{record['event']}"
            self._records.append(record)


class House:
    """A running network, with tokens for its readers."""

    def __init__(self, network: Network, root: str, folder: Path) -> None:
        self.network, self.root, self.folder = network, root, folder
        self.state = network.directory / "house"
        self.authority = Authority.load(self.state / "authority")

    def token(self, name: str, *filters: str, key: Authority | None = None) -> Path:
        rights = BlockRights(read=filters, write=filters)
        file = self.folder / f"{name}.token"
        file.write_text(create((key or self.authority).key, Block(rights, name, int(time.time()) + 3_600)))
        return file

    def connect(self, token: Path, name: str) -> sync.Client:
        certificate = self.state / "authority" / "authority.crt"
        return sync.connect(self.root, authority=certificate, token=token, client_id=name)

    @contextmanager
    def reading(self, token: Path, filter: str) -> Iterator[sync.Subscription]:
        with self.connect(token, token.stem) as client, client.subscribe(filter, qos=1) as messages:
            yield messages

    @contextmanager
    def auditing(self, filter: str = "$SYS/audit/#") -> Iterator[Events]:
        with self.reading(self.token("auditor", "$SYS/#"), filter) as messages:
            yield Events(messages)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("audit")
    with network_of(FILE, folder) as (network, root):
        yield House(network, root, folder)


def logged(house: House, node: str, event: str) -> str:
    """The last line of a process's log about the event."""
    lines = (house.state / f"{node}.log").read_text().splitlines()
    return next(line for line in reversed(lines) if f" {event} " in line)


def test_a_reader_of_sys_sees_a_refused_token_and_a_reader_of_all_topics_does_not(house: House) -> None:
    stranger = house.token("stranger", "#", key=Authority.create("house", time.time()))
    other = house.token("other", "#")
    with house.auditing() as events, house.reading(other, "#") as messages:
        with pytest.raises(Refused), house.connect(stranger, "stranger"):
            pass
        record = events.await_record("root", "token_refused")
        assert "no authority that is believed has signed the token" in record["why"]
        assert record["address"].startswith("127.0.0.1:")
        assert stranger.read_text() not in json.dumps(record)
        assert record["address"] in logged(house, "root", "token_refused")
        # `other` may not ask for them, and `#` does not bring them.
        with house.connect(other, "other") as client, pytest.raises(Refused) as refused:
            client.subscribe("$SYS/audit/#", qos=1)
        assert refused.value.reason == Reason.REASON_NOT_AUTHORIZED
        with house.connect(house.token("writer", "#"), "writer") as client:
            client.publish("last", b"last", qos=1)
        message = messages.next(timeout=PATIENCE)
        assert message is not None
        assert message.topic == "last", "nothing before it"


def test_an_order_a_move_and_a_node_that_joins_are_told(house: House) -> None:
    with house.auditing() as events:
        flags = ("--root", house.root, "--state-dir", str(house.network.directory))
        run_hbroker("move", "home/kitchen", "root", *flags, check=True)
        ordered = events.await_record("kitchen", "ordered", order="hand back", subtree="home/kitchen")
        assert ordered["address"].startswith("127.0.0.1:")
        events.await_record("root", "child_left", peer="kitchen", subtree="home/kitchen")
        events.await_record("root", "ordered", order="claim")
        run_hbroker("move", "home/kitchen", "kitchen", *flags, check=True)
        events.await_record("root", "child_joined", peer="kitchen", subtree="home/kitchen")
        joined = events.await_record("kitchen", "joined", subtree="home/kitchen", parent="root")
        assert f"epoch={joined['epoch']}" in logged(house, "kitchen", "joined")
        house.network.kill_node("kitchen")
        events.await_record("kitchen", "joined", subtree="home/kitchen")


def test_an_order_without_the_right_to_give_it_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with house.auditing("$SYS/audit/+/order_refused") as events:
        monkeypatch.setenv("HBROKER_TOKEN", str(house.token("mover", "home/#")))
        flags = ("--root", house.root, "--state-dir", str(house.network.directory), "--timeout", "10")
        done = run_hbroker("leave", "kitchen", *flags, check=False)
        assert done.returncode != 0
        record = events.await_record("kitchen", "order_refused", order="leave", client="mover")
        assert "does not let it write $SYS/#" in record["why"]


def test_mqtt_clients_that_come_and_are_refused_are_told_by_their_gateway(house: House) -> None:
    need_mosquitto()
    port = house.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    with house.auditing("$SYS/audit/gateway/+") as events:
        base = ["mosquitto_pub", "-p", port, "-t", "a", "-m", "b", "-q", "1", "-i", "lamp"]
        subprocess.run(base, timeout=PATIENCE, check=True)
        events.await_record("gateway", "client_connected", client="lamp")
        events.await_record("gateway", "client_disconnected", client="lamp")


def test_the_command_prints_events_as_they_happen(house: House) -> None:
    command = [sys.executable, "-m", "hbroker", "audit", "--follow", "--root", house.root]
    with house.auditing() as events:
        texts = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
        jsons = subprocess.Popen([*command, "--json"], stdout=subprocess.PIPE, text=True, env=environment())
        try:
            stranger = house.token("stranger", "#", key=Authority.create("house", time.time()))
            assert texts.stdout is not None
            assert jsons.stdout is not None
            found: list[str] = []

            def refuse_until_told(stream: Any) -> str:
                deadline = time.monotonic() + PATIENCE
                with selectors.DefaultSelector() as selector:
                    selector.register(stream, selectors.EVENT_READ)
                    while time.monotonic() < deadline:
                        with pytest.raises(Refused), house.connect(stranger, "stranger"):
                            pass
                        if selector.select(0.5):
                            return str(stream.readline())
                raise AssertionError("nothing was printed")

            for stream in (texts.stdout, jsons.stdout):
                found.append(refuse_until_told(stream))
            assert " root token_refused address=127.0.0.1:" in found[0]
            assert json.loads(found[1])["event"] == "token_refused"
            events.await_record("root", "token_refused")
        finally:
            for process in (texts, jsons):
                process.kill()
                process.communicate()
    done = run_hbroker("audit", "--root", house.root, "--timeout", "1", check=True)
    assert done.returncode == 0
