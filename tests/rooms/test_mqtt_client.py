"""The MQTT clients of a simulation, with a real gateway, and with servers that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hbroker.sim.rooms.files import TooFewFiles, allow
from hbroker.sim.rooms.mqtt.client import ConnectionFailed, MqttClient
from hbroker.sim.rooms.mqtt.packets import ReceivedPublish, Will
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
    """The address of a running gateway."""
    home = tmp_path_factory.mktemp("gateway")
    (home / "small.yaml").write_text(NETWORK)
    network = Network(home / "small.yaml", home / "state")
    try:
        (url,) = network.event("ready")["gateways"][0]["listeners"]
        host, port = url.removeprefix("mqtt://").split(":")
        yield host, int(port)
    finally:
        network.close()


class RecordingClient:
    """A client, and what it reported."""

    def __init__(self) -> None:
        self.messages: list[ReceivedPublish] = []
        self.lost: list[str] = []
        self.results: list[int | None] = []
        self.client = MqttClient(self.messages.append, self.lost.append)


async def test_messages_of_every_qos_are_exchanged(gateway: tuple[str, int]) -> None:
    one, other = RecordingClient(), RecordingClient()
    for number, recorder in enumerate((one, other)):
        await recorder.client.connect(*gateway, f"qos-{number}")
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
    for recorder in (one, other):
        recorder.client.close()
        recorder.client.close()
    assert one.lost == other.lost == []


async def test_own_and_retained_messages_are_not_delivered(gateway: tuple[str, int]) -> None:
    recorder = RecordingClient()
    await recorder.client.connect(*gateway, "own")
    assert recorder.client.publish("own/kept", b"1", 1, retain=True, on_result=recorder.results.append)
    await recorder.client.drain()
    await recorder.client.subscribe("own/#", 2, no_local=True)
    assert recorder.client.publish("own/x", b"2", 1, on_result=recorder.results.append)
    other = RecordingClient()
    await other.client.connect(*gateway, "its")
    assert other.client.publish("own/y", b"3", 1, on_result=other.results.append)
    await eventually(lambda: bool(recorder.messages), "a message comes", PATIENCE)
    assert [message.payload for message in recorder.messages] == [b"3"]
    recorder.client.close()
    other.client.close()


async def test_an_aborted_connection_publishes_the_will_and_a_closed_one_does_not(
    gateway: tuple[str, int],
) -> None:
    watcher, leaving, breaking = RecordingClient(), RecordingClient(), RecordingClient()
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


async def test_a_large_image_arrives_whole(gateway: tuple[str, int]) -> None:
    recorder, image = RecordingClient(), bytes(range(256)) * 12_000
    await recorder.client.connect(*gateway, "image")
    await recorder.client.subscribe("image", 1)
    assert recorder.client.publish("image", image, 1, on_result=recorder.results.append)
    await eventually(lambda: bool(recorder.messages), "a message comes", PATIENCE)
    assert recorder.messages[0].payload == image
    recorder.client.close()


async def test_a_client_that_is_taken_over_is_told(gateway: tuple[str, int]) -> None:
    first, second = RecordingClient(), RecordingClient()
    await first.client.connect(*gateway, "same")
    await second.client.connect(*gateway, "same")
    await eventually(lambda: bool(first.lost), "the first is told", PATIENCE)
    assert first.lost == ["DISCONNECT 0x8e"]
    second.client.close()


class Stub(asyncio.Protocol):
    """The server's end of a connection. It answers each received piece with the next of its answers, and
    may close at the end."""

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
"""A CONNACK with a receive maximum of two."""


async def test_no_more_messages_are_in_flight_than_the_receive_maximum() -> None:
    recorder = RecordingClient()
    async with _server(CONNACK) as address:
        await recorder.client.connect(*address, "grants")
        taken = [recorder.client.publish("t", b"", 1, on_result=recorder.results.append) for _ in range(4)]
        assert taken == [True, True, False, False]
        assert recorder.client.publish("t", b"", 0, on_result=recorder.results.append)
        recorder.client.abort()
    assert recorder.results == [None, None]


@pytest.mark.parametrize(
    ("answers", "closes", "text"),
    [
        ((bytes.fromhex("20 03 00 87 00"),), False, "0x87"),
        ((bytes.fromhex("30 ff ff ff ff 01"),), False, "malformed"),
        ((), True, "closed"),
    ],
)
async def test_a_failed_connect_reports_its_cause(
    answers: tuple[bytes, ...], closes: bool, text: str
) -> None:
    recorder = RecordingClient()
    async with _server(*answers, closes=closes) as address:
        with pytest.raises(ConnectionFailed, match=text):
            await recorder.client.connect(*address, "fails")
        recorder.client.abort()


async def test_a_refused_subscription_raises() -> None:
    recorder = RecordingClient()
    async with _server(CONNACK, bytes.fromhex("90 04 0001 00 87")) as address:
        await recorder.client.connect(*address, "refused")
        with pytest.raises(ConnectionFailed, match="0x87"):
            await recorder.client.subscribe("secret/#", 1)
        recorder.client.close()


async def test_a_silent_server_counts_as_lost() -> None:
    recorder = RecordingClient()
    async with _server(CONNACK) as address:
        await recorder.client.connect(*address, "silent", keep_alive_s=1)
        assert recorder.client.publish("t", b"", 1, on_result=recorder.results.append)
        await eventually(lambda: bool(recorder.lost), "the connection is lost", PATIENCE)
    assert recorder.lost == ["the server is silent"]
    assert recorder.results == [None]


async def test_a_malformed_packet_ends_the_connection_and_pending_publishes() -> None:
    recorder = RecordingClient()
    async with _server(CONNACK, bytes.fromhex("30 02 ff ff")) as address:
        await recorder.client.connect(*address, "malformed")
        assert recorder.client.publish("t", b"", 2, on_result=recorder.results.append)
        await eventually(lambda: bool(recorder.lost), "the connection is lost", PATIENCE)
    assert "malformed" in recorder.lost[0]
    assert recorder.results == [None]


def test_the_limit_of_open_files_is_raised_or_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
