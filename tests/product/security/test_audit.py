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
        name = token.stem
        with self.connect(token, name) as client, client.subscribe(filter, qos=1) as messages:
            yield messages


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("audit")
    with network_of(FILE, folder) as (network, root):
        yield House(network, root, folder)


def await_record(messages: sync.Subscription, node: str, event: str, **known: object) -> Record:
    """The next record of this event of the node, with these fields. Others are skipped."""
    deadline = time.monotonic() + PATIENCE
    while (message := messages.next(timeout=deadline - time.monotonic())) is not None:
        record: Record = json.loads(message.payload)
        level = message.topic.removeprefix("$SYS/audit/")
        assert (message.qos, message.retain) == (1, False)
        assert level == f"{record['node']}/{record['event']}"
        assert record["v"] == 1
        if level == f"{node}/{event}" and known.items() <= record.items():
            return record
    raise AssertionError(f"no {event} of {node}")


def logged(house: House, node: str, event: str) -> str:
    """The last line of a process's log about the event."""
    lines = (house.state / f"{node}.log").read_text().splitlines()
    return next(line for line in reversed(lines) if f" {event} " in line)


def test_a_reader_of_sys_sees_a_refused_token_and_a_reader_of_all_topics_does_not(house: House) -> None:
    stranger = house.token("stranger", "#", key=Authority.create("house", time.time()))
    auditor, other = house.token("auditor", "$SYS/#"), house.token("other", "#")
    with house.reading(auditor, "$SYS/audit/#") as events, house.reading(other, "#") as messages:
        with pytest.raises(Refused), house.connect(stranger, "stranger"):
            pass
        record = await_record(events, "root", "token_refused")
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
    with house.reading(house.token("auditor", "$SYS/#"), "$SYS/audit/#") as events:
        flags = ("--root", house.root, "--state-dir", str(house.network.directory))
        run_hbroker("move", "home/kitchen", "root", *flags, check=True)
        ordered = await_record(events, "kitchen", "ordered", order="hand back", subtree="home/kitchen")
        assert ordered["address"].startswith("127.0.0.1:")
        await_record(events, "root", "child_left", peer="kitchen", subtree="home/kitchen")
        await_record(events, "root", "ordered", order="claim")
        run_hbroker("move", "home/kitchen", "kitchen", *flags, check=True)
        await_record(events, "root", "child_joined", peer="kitchen", subtree="home/kitchen")
        joined = await_record(events, "kitchen", "joined", subtree="home/kitchen", parent="root")
        assert f"epoch={joined['epoch']}" in logged(house, "kitchen", "joined")
        house.network.kill_node("kitchen")
        await_record(events, "kitchen", "joined", subtree="home/kitchen")


def test_an_order_without_the_right_to_give_it_is_told(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    with house.reading(house.token("auditor", "$SYS/#"), "$SYS/audit/+/order_refused") as events:
        monkeypatch.setenv("HBROKER_TOKEN", str(house.token("mover", "home/#")))
        flags = ("--root", house.root, "--state-dir", str(house.network.directory), "--timeout", "10")
        done = run_hbroker("leave", "kitchen", *flags, check=False)
        assert done.returncode != 0
        record = await_record(events, "kitchen", "order_refused", order="leave", client="mover")
        assert "does not let it write $SYS/#" in record["why"]


def test_mqtt_clients_that_come_and_are_refused_are_told_by_their_gateway(house: House) -> None:
    need_mosquitto()
    port = house.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    with house.reading(house.token("auditor", "$SYS/#"), "$SYS/audit/gateway/+") as events:
        base = ["mosquitto_pub", "-p", port, "-t", "a", "-m", "b", "-q", "1", "-i", "lamp"]
        subprocess.run(base, timeout=PATIENCE, check=True)
        await_record(events, "gateway", "client_connected", client="lamp")
        await_record(events, "gateway", "client_disconnected", client="lamp")


def test_the_command_prints_events_as_they_happen(house: House) -> None:
    command = [sys.executable, "-m", "hbroker", "audit", "--follow", "--root", house.root]
    with house.reading(house.token("auditor", "$SYS/#"), "$SYS/audit/#") as events:
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
            await_record(events, "root", "token_refused")
        finally:
            for process in (texts, jsons):
                process.kill()
                process.communicate()
    done = run_hbroker("audit", "--root", house.root, "--timeout", "1", check=True)
    assert done.returncode == 0
