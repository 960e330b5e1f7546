"""The MQTT clients of a simulation, at a real gateway, and at servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hbroker.sim.rooms.files import TooFewFiles, allow
from hbroker.sim.rooms.mqtt.client import ConnectionFailed, MqttClient
from hbroker.sim.rooms.mqtt.packets import Received, Will
from tests.product.network import Network
from tests.waiting import eventually

NETWORK = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:0"}
gateways:
  - {name: gateway, listeners: [{address: "127.0.0.1:0"}]}
"""
PATIENCE = 60.0


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Where a gateway listens."""
    home = tmp_path_factory.mktemp("gateway")
    (home / "small.yaml").write_text(NETWORK)
    network = Network(home / "small.yaml", home / "state")
    try:
        (url,) = network.event("ready")["gateways"][0]["listeners"]
        host, port = url.removeprefix("mqtt://").split(":")
        yield host, int(port)
    finally:
        network.close()


class OnResult:
    """A client, and what it heard."""

    def __init__(self) -> None:
        self.messages: list[Received] = []
        self.lost: list[str] = []
        self.results: list[int | None] = []
        self.client = MqttClient(self.messages.append, self.lost.append)


async def test_all_qualities_of_service_both_ways(gateway: tuple[str, int]) -> None:
    one, other = OnResult(), OnResult()
    for number, on_result in enumerate((one, other)):
        await on_result.client.connect(*gateway, f"qos-{number}")
    await other.client.subscribe("qos/#", 2)
    for number in range(60):
        assert one.client.publish(
            f"qos/{number % 3}", b"%d" % number, number % 3, on_result=one.results.append
        )
    await one.client.drain()
    assert one.results == [0] * 40
    await eventually(lambda: len(other.messages) == 60, "all have come", PATIENCE)
    for qos in range(3):
        mine = [message for message in other.messages if message.topic == f"qos/{qos}"]
        assert {message.qos for message in mine} == {qos}
        assert [message.payload for message in mine] == [b"%d" % number for number in range(qos, 60, 3)]
    for on_result in (one, other):
        on_result.client.close()
        on_result.client.close()
    assert one.lost == other.lost == []


async def test_own_messages_and_what_was_retained_are_left_out(gateway: tuple[str, int]) -> None:
    on_result = OnResult()
    await on_result.client.connect(*gateway, "own")
    assert on_result.client.publish("own/kept", b"1", 1, retain=True, on_result=on_result.results.append)
    await on_result.client.drain()
    await on_result.client.subscribe("own/#", 2, no_local=True)
    assert on_result.client.publish("own/x", b"2", 1, on_result=on_result.results.append)
    other = OnResult()
    await other.client.connect(*gateway, "its")
    assert other.client.publish("own/y", b"3", 1, on_result=other.results.append)
    await eventually(lambda: bool(on_result.messages), "a message comes", PATIENCE)
    assert [message.payload for message in on_result.messages] == [b"3"]
    on_result.client.close()
    other.client.close()


async def test_a_will_is_for_those_who_break_off(gateway: tuple[str, int]) -> None:
    watcher, leaving, breaking = OnResult(), OnResult(), OnResult()
    await watcher.client.connect(*gateway, "watcher")
    await watcher.client.subscribe("wills/+", 1)
    await leaving.client.connect(*gateway, "leaving", will=Will("wills/leaving", b"no"))
    await breaking.client.connect(*gateway, "breaking", will=Will("wills/breaking", b"yes"))
    leaving.client.close()
    breaking.client.abort()
    assert not breaking.client.publish("x", b"", 0, on_result=breaking.results.append)
    await eventually(lambda: bool(watcher.messages), "a will comes", PATIENCE)
    assert [message.topic for message in watcher.messages] == ["wills/breaking"]
    watcher.client.close()


async def test_a_large_image_comes_whole(gateway: tuple[str, int]) -> None:
    on_result, image = OnResult(), bytes(range(256)) * 12_000
    await on_result.client.connect(*gateway, "image")
    await on_result.client.subscribe("image", 1)
    assert on_result.client.publish("image", image, 1, on_result=on_result.results.append)
    await eventually(lambda: bool(on_result.messages), "a message comes", PATIENCE)
    assert on_result.messages[0].payload == image
    on_result.client.close()


async def test_who_is_taken_over_is_told(gateway: tuple[str, int]) -> None:
    first, second = OnResult(), OnResult()
    await first.client.connect(*gateway, "same")
    await second.client.connect(*gateway, "same")
    await eventually(lambda: bool(first.lost), "the first is told", PATIENCE)
    assert first.lost == ["DISCONNECT 0x8e"]
    second.client.close()


class Stub(asyncio.Protocol):
    """A server's end of a connection: what comes is answered by the next of its bytes; at last it closes."""

    def __init__(self, answers: tuple[bytes, ...], closes: bool) -> None:
        self._answers = iter(answers)
        self._closes = closes
        self.transport: asyncio.Transport | None = None
        self.gone = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        answer = next(self._answers, None)
        if answer:
            self.transport.write(answer)
        elif self._closes:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()


@asynccontextmanager
async def _server(*answers: bytes, closes: bool = False) -> AsyncIterator[tuple[str, int]]:
    stubs: list[Stub] = []

    def made() -> Stub:
        stubs.append(Stub(answers, closes))
        return stubs[-1]

    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield host, port
    finally:
        for stub in stubs:
            if stub.transport is not None:
                stub.transport.abort()
                await asyncio.wait_for(stub.gone.wait(), PATIENCE)
        server.close()


CONNACK = bytes.fromhex("20 06 00 00 03 21 0002")
"""With a receive maximum of two."""


async def test_no_more_is_in_flight_than_the_server_grants() -> None:
    on_result = OnResult()
    async with _server(CONNACK) as address:
        await on_result.client.connect(*address, "grants")
        taken = [on_result.client.publish("t", b"", 1, on_result=on_result.results.append) for _ in range(4)]
        assert taken == [True, True, False, False]
        assert on_result.client.publish("t", b"", 0, on_result=on_result.results.append)
        on_result.client.abort()
    assert on_result.results == [None, None]


@pytest.mark.parametrize(
    ("answers", "closes", "text"),
    [
        ((bytes.fromhex("20 03 00 87 00"),), False, "0x87"),
        ((bytes.fromhex("30 ff ff ff ff 01"),), False, "malformed"),
        ((), True, "closed"),
    ],
)
async def test_a_connection_that_fails_says_why(answers: tuple[bytes, ...], closes: bool, text: str) -> None:
    on_result = OnResult()
    async with _server(*answers, closes=closes) as address:
        with pytest.raises(ConnectionFailed, match=text):
            await on_result.client.connect(*address, "fails")
        on_result.client.abort()


async def test_a_refused_subscription_says_so() -> None:
    on_result = OnResult()
    async with _server(CONNACK, bytes.fromhex("90 04 0001 00 87")) as address:
        await on_result.client.connect(*address, "refused")
        with pytest.raises(ConnectionFailed, match="0x87"):
            await on_result.client.subscribe("secret/#", 1)
        on_result.client.close()


async def test_a_server_that_falls_silent_is_gone() -> None:
    on_result = OnResult()
    async with _server(CONNACK) as address:
        await on_result.client.connect(*address, "silent", keep_alive_s=1)
        assert on_result.client.publish("t", b"", 1, on_result=on_result.results.append)
        await eventually(lambda: bool(on_result.lost), "the connection is lost", PATIENCE)
    assert on_result.lost == ["the server is silent"]
    assert on_result.results == [None]


async def test_what_is_malformed_ends_the_connection_and_tells_who_waits() -> None:
    on_result = OnResult()
    async with _server(CONNACK, bytes.fromhex("30 02 ff ff")) as address:
        await on_result.client.connect(*address, "malformed")
        assert on_result.client.publish("t", b"", 2, on_result=on_result.results.append)
        await eventually(lambda: bool(on_result.lost), "the connection is lost", PATIENCE)
    assert "malformed" in on_result.lost[0]
    assert on_result.results == [None]


def test_the_limit_of_open_files_is_raised_or_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import resource

    limits = [256, 4_096]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda which, to: limits.__setitem__(slice(None), to))
    allow(10)
    assert limits == [256, 4_096], "enough"
    allow(1_000)
    assert limits == [1_200, 4_096]
    with pytest.raises(TooFewFiles, match="4096 are allowed"):
        allow(5_000)
