"""The connection to brokers that refuse, are silent, or send too much: a server that answers with bytes."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from hbroker.config import BridgeSettings, BridgeTopic, Direction
from hbroker.runtime.bridge import remote as module
from hbroker.runtime.bridge.remote import Remote, RemoteFailed, Version, versions_of
from hbroker.runtime.bridge.topics import TopicMap
from tests.waiting import eventually

Answer = Callable[[bytes], bytes | None]
CONNACK_5: Final = bytes([0x20, 3, 0, 0, 0])
CONNACK_311: Final = bytes([0x20, 2, 0, 0])
PATIENCE_S: Final = 20.0


@asynccontextmanager
async def broker(answer: Answer) -> AsyncIterator[int]:
    """A server that answers each read with `answer(data)`; None: it closes the connection."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while data := await reader.read(65_536):
            answered = answer(data)
            if answered is None:
                break
            writer.write(answered)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def settings(*, in_flight: int = 10) -> BridgeSettings:
    topic = BridgeTopic("#", Direction.IN)
    return BridgeSettings("b", ("", 0), (), (topic,), in_flight=in_flight)


async def opened(port: int, version: Version = Version.V5) -> Remote:
    remote = Remote(settings(), ("127.0.0.1", port), version, "bridge")
    try:
        await remote.open(("$SYS/broker/connection/bridge/state", b"0"))
    except BaseException:
        await remote.close()
        raise
    return remote


@pytest.mark.parametrize(
    ("answer", "is_version"),
    [
        (bytes([0x20, 3, 0, 0x84, 0]), True),  # MQTT 5: unsupported protocol version
        (None, True),  # some brokers close the connection at a version that they do not know
        (bytes([0x20, 3, 0, 0x86, 0]), False),  # bad user name or password
        (b"\xff\xff\xff\xff\xff\xff", True),
    ],
)
async def test_a_refusal_says_whether_another_version_may_help(
    answer: bytes | None, is_version: bool
) -> None:
    async with broker(lambda _: answer) as port:
        with pytest.raises(RemoteFailed) as caught:
            await opened(port)
        assert caught.value.is_version == is_version


async def test_the_versions_are_tried_in_order() -> None:
    assert versions_of("") == (Version.V5, Version.V311_BRIDGE, Version.V311)
    assert versions_of("5") == (Version.V5,)
    assert versions_of("3.1.1") == (Version.V311_BRIDGE, Version.V311)
    levels: list[int] = []

    def answer(data: bytes) -> bytes:
        if data[0] == 0x10:
            levels.append(data[data.index(b"MQTT") + 4])
        return CONNACK_311 if levels[-1] == 4 else bytes([0x20, 2, 0, 1])

    async with broker(answer) as port:
        with pytest.raises(RemoteFailed) as caught:
            await opened(port, Version.V311_BRIDGE)
        assert caught.value.is_version
        await (await opened(port, Version.V311)).close()
    assert levels == [0x84, 4]


async def test_a_silent_broker_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_TIMEOUT_S", 0.1)
    async with broker(lambda _: b"") as port:
        with pytest.raises(RemoteFailed, match="no CONNACK"):
            await opened(port)


async def test_nobody_listens() -> None:
    async with broker(lambda _: b"") as port:
        pass
    with pytest.raises(RemoteFailed, match="cannot connect"):
        await opened(port)


def published(number: int, qos: int) -> bytes:
    """A packet with a topic that is its number."""
    topic = b"%d" % number
    body = bytes([0, len(topic)]) + topic
    body += bytes([number >> 8, number & 0xFF]) * (qos > 0) + bytes([0])
    return bytes([0x30 | qos << 1, len(body)]) + body


async def failure_at(port: int) -> str:
    """Why a connection fails, while it begins or later."""
    try:
        remote = await opened(port)
    except RemoteFailed as error:
        return str(error)
    failed = await asyncio.wait_for(asyncio.shield(remote.failed), PATIENCE_S)
    await remote.close()
    return str(failed)


MALFORMED: Final = {
    "a topic that is too long": bytes([0x32, 4, 0, 9, 65, 66]),
    "no topic": bytes([0x32, 0]),
    "an unknown property": bytes([0x32, 8, 0, 1, 65, 0, 1, 2, 0x7F, 0]),
    "a cut acknowledgement": bytes([0x40, 1, 0]),
    "a packet of a client": bytes([0x10, 2, 0, 0]),
    "an endless length": bytes([0x32, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]),
}


@pytest.mark.parametrize("packet", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_packets_end_the_connection(packet: bytes) -> None:
    async with broker(lambda data: CONNACK_5 + packet if data[0] == 0x10 else b"") as port:
        assert await failure_at(port)


async def test_a_topic_that_is_not_utf_8_matches_nothing() -> None:
    packet = bytes([0x30, 5, 0, 2, 0xFF, 0xFE, 0])
    async with broker(lambda data: CONNACK_5 + packet if data[0] == 0x10 else b"") as port:
        remote = await opened(port)
        (message,) = await asyncio.wait_for(remote.next_messages(10), PATIENCE_S)
        await remote.close()
    assert TopicMap(settings().topics).local_topic(message.topic) is None


@pytest.mark.parametrize("qos", [0, 1])
async def test_what_waits_has_a_bound(monkeypatch: pytest.MonkeyPatch, qos: int) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 5)
    flood = b"".join(published(number, qos) for number in range(1, 9))
    async with broker(lambda data: CONNACK_5 + flood if data[0] == 0x10 else b"") as port:
        if qos:
            assert "more than it may" in await failure_at(port)
            return
        remote = await opened(port)
        await eventually(lambda: remote.dropped == 3, "three are dropped", PATIENCE_S)
        assert [message.topic for message in await remote.next_messages(10)] == list("12345")
        await remote.close()


async def test_a_message_is_acknowledged_only_when_the_bridge_says_so() -> None:
    acknowledged: list[int] = []

    def answer(data: bytes) -> bytes:
        if data[0] == 0x10:
            return CONNACK_5 + published(1, 1) + published(2, 1)
        if data[0] == 0x40:
            acknowledged.append(data[3])
        return b""

    async with broker(answer) as port:
        remote = await opened(port)
        messages: list[module.Incoming] = []
        while len(messages) < 2:
            messages += await remote.next_messages(10)
        assert acknowledged == []
        remote.acknowledge(messages[1])
        await eventually(lambda: bool(acknowledged), "PUBACK", PATIENCE_S)
        assert acknowledged == [2]
        await remote.close()


async def test_a_connection_that_has_ended_leaves_nothing_open() -> None:
    gc.collect()
    gc.disable()
    try:
        async with broker(lambda data: CONNACK_5 if data[0] == 0x10 else None) as port:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(3):
                remote = await opened(port)
                await remote.close()
                del remote
            await eventually(
                lambda: len(os.listdir("/proc/self/fd")) <= before, "all descriptors are closed", PATIENCE_S
            )
    finally:
        gc.enable()


async def test_the_bounds_of_the_broker_are_kept() -> None:
    # Receive Maximum 3, Retain Available 0
    connack = bytes([0x20, 8, 0, 0, 5, 0x21, 0, 3, 0x25, 0])
    sent: list[bytes] = []

    def answer(data: bytes) -> bytes:
        sent.append(data)
        return connack if data[0] == 0x10 else b""

    async with broker(answer) as port:
        remote = await opened(port)
        assert remote.window == 3
        remote.publish_state("state", b"1")
        await eventually(lambda: len(sent) > 1, "PUBLISH", PATIENCE_S)
        assert sent[1][0] == 0x32  # QoS 1, and not retained
        await remote.close()
