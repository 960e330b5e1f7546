"""A network that requires tokens: real nodes, clients with tokens of their own, stock MQTT clients."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hbroker import Refused, sync
from hbroker.identity.authority import Authority
from hbroker.protocol.packets import Reason
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import attenuate, create
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, Network, network_of, run_hbroker
from tests.waiting import until

FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7701"}
  - {name: attic, subtree: home/attic, listen: "127.0.0.1:7702"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:1883"}]}
"""
HOUR_S = 3_600


class TokenNetwork:
    """A running network, and tokens for it. Each client has a file with its own."""

    def __init__(self, network: Network, root: str, folder: Path) -> None:
        self.network, self.root, self._folder = network, root, folder
        self.state = network.directory / "house"
        self.authority = self.state / "authority" / "authority.crt"
        self._key = Authority.load(self.state / "authority")

    def token(self, *, valid_s: float = HOUR_S, client: str | None = None, **rights: object) -> Path:
        expires_at = int(time.time() + valid_s)
        return self.save(create(self._key.key, Block(BlockRights(**rights), client, expires_at)))  # type: ignore[arg-type]

    def narrowed(self, token: Path, **rights: object) -> Path:
        block = Block(BlockRights(**rights))  # type: ignore[arg-type]
        return self.save(attenuate(token.read_text().strip(), block, [self._key.public_key], time.time()))

    def save(self, token: str) -> Path:
        file = self._folder / f"{len(list(self._folder.iterdir()))}.token"
        file.write_text(token)
        return file

    def connect(self, token: Path | None) -> sync.Client:
        return sync.connect(self.root, authority=self.authority, token=token)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenNetwork]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "held").mkdir()
    with network_of(FILE, folder) as (network, root):
        yield TokenNetwork(network, root, folder / "held")


@contextmanager
def not_authorized() -> Iterator[None]:
    with pytest.raises(Refused) as refused:
        yield
    assert refused.value.reason == Reason.REASON_NOT_AUTHORIZED


def next_payload(messages: sync.Subscription) -> bytes:
    message = messages.next(timeout=PATIENCE)
    assert message is not None
    return message.payload


def test_a_client_may_do_what_its_token_allows_at_every_owner(house: TokenNetwork) -> None:
    reader = house.token(read=("home/#",), share=True)
    writer = house.token(write=("home/kitchen/+", "home/attic/lamp"))
    with (
        house.connect(reader) as reads,
        reads.subscribe("home/#", qos=1) as messages,
        house.connect(writer) as writes,
    ):
        for topic in ("home/kitchen/oven", "home/attic/lamp"):
            writes.publish(topic, topic, qos=1)
            assert next_payload(messages) == topic.encode()
        for topic in ("home/attic/oven", "home/kitchen/oven/door", "home", "elsewhere"):
            with not_authorized():
                writes.publish(topic, "no", qos=1)
        with not_authorized():
            writes.publish("home/kitchen/oven", "no", qos=1, retain=True)
        with not_authorized():
            writes.subscribe("home/kitchen/oven", qos=1)
        with not_authorized():
            reads.subscribe("#", qos=1)
        with not_authorized():
            reads.publish("home/kitchen/oven", "no", qos=1)
        writes.publish("home/attic/lamp", "last", qos=1)
        assert next_payload(messages) == b"last"


def test_a_token_that_was_narrowed_is_narrower_at_every_owner(house: TokenNetwork) -> None:
    wide = house.token(read=("home/#",), write=("home/#",), retain=True)
    kitchen = house.narrowed(wide, read=("home/kitchen/#",))
    with house.connect(wide) as client, house.connect(kitchen) as narrow:
        with narrow.subscribe("home/kitchen/#", qos=1) as messages:
            client.publish("home/attic/lamp", "not theirs", qos=1)
            client.publish("home/kitchen/oven", "180", qos=1)
            assert next_payload(messages) == b"180"
        for filter in ("home/#", "home/attic/#", "home/+/oven"):
            with not_authorized():
                narrow.subscribe(filter, qos=1)
        with not_authorized():
            narrow.publish("home/kitchen/oven", "no", qos=1)


def test_who_has_no_token_or_a_forged_one_gets_a_refusal(
    house: TokenNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Authority.create("house", time.time())
    forged = create(stranger.key, Block(BlockRights(read=("#",), write=("#",))))
    expired = house.token(valid_s=-10, read=("#",), write=("#",))
    for token in (house.save(forged), expired):
        with not_authorized(), house.connect(token):
            pass
    monkeypatch.setattr("hbroker.runtime.credentials.known_token", lambda root: "")
    with not_authorized(), house.connect(None):
        pass
    assert "token_refused" in (house.state / "root.log").read_text()


def test_a_token_that_expires_takes_the_subscription_with_it(house: TokenNetwork) -> None:
    reader = house.token(valid_s=4, read=("home/kitchen/#",))
    writer = house.token(write=("home/kitchen/#",))
    with (
        house.connect(reader) as reads,
        reads.subscribe("home/kitchen/#", qos=1) as messages,
        house.connect(writer) as writes,
    ):
        writes.publish("home/kitchen/oven", "first", qos=1)
        assert next_payload(messages) == b"first"

        def has_ended() -> bool:
            try:
                while messages.next(timeout=0.1) is not None:
                    pass
            except Refused as refused:
                return refused.reason == Reason.REASON_NOT_AUTHORIZED
            return False

        until(has_ended, "the subscription to end", PATIENCE)
        writes.publish("home/kitchen/oven", "nobody's", qos=1)


def test_rights_hold_while_the_root_is_down(house: TokenNetwork) -> None:
    allowed = house.token(read=("home/kitchen/#",), write=("home/kitchen/#",))
    with house.connect(allowed) as client, client.subscribe("home/kitchen/#", qos=1) as messages:
        client.publish("home/kitchen/oven", "1", qos=1)
        assert next_payload(messages) == b"1"
        root = house.network.processes()["root"]
        root.suspend()
        try:
            client.publish("home/kitchen/oven", "2", qos=1)
            assert next_payload(messages) == b"2"
            with not_authorized():
                client.publish("home/kitchen/oven", "3", qos=1, retain=True)
        finally:
            root.resume()


def test_commands_of_this_host_and_mqtt_clients_need_no_word_more(house: TokenNetwork) -> None:
    need_mosquitto()
    tree = run_hbroker("tree", "--json", "--root", house.root, check=True)
    assert len(json.loads(tree.stdout)["nodes"]) == 3
    port = house.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    reader = house.token(read=("mqtt/#",))
    with house.connect(reader) as client, client.subscribe("mqtt/#", qos=1) as messages:
        command = ["mosquitto_pub", "-p", port, "-t", "mqtt/topic", "-m", "stock", "-q", "1"]
        subprocess.run(command, timeout=PATIENCE, check=True)
        assert next_payload(messages) == b"stock"
