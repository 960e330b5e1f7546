"""Common clients over TLS and secure WebSocket, as users configure them, at one gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.transports.certificates import Authority
from tests.gateway.transports.front import Front, front_up
from tests.interop import clients
from tests.interop.clients import Client
from tests.interop.lines import Message, Place

Make = Callable[[Place], Client]

OVER_TLS: dict[str, Make] = {
    "mosquitto": clients.mosquitto,
    "paho": clients.paho,
    "aiomqtt": clients.aiomqtt,
    "gmqtt": clients.gmqtt,
    "mqttjs": clients.mqttjs,
}
OVER_WEBSOCKET = ("paho", "aiomqtt", "mqttjs")
RULES = "pattern readwrite of/%u/#"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "ours")


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Front]:
    directory = tmp_path_factory.mktemp("secure")
    tls = authority.asking(authority.server(), "required")
    listeners: dict[str, dict[str, Any]] = {"mqtts": {"tls": tls}, "wss": {"tls": tls, "websocket": "/mqtt"}}
    with front_up(directory, listeners, rules=RULES) as front:
        yield front


@pytest.fixture
def client(request: pytest.FixtureRequest) -> str:
    """The name of an installed client."""
    name = str(request.param)
    if name in ("mosquitto", "mqttjs"):
        request.getfixturevalue(f"with_{name}")
    return name


@pytest.mark.parametrize(
    ("client", "listener", "version"),
    [*((name, "mqtts", 5) for name in OVER_TLS), *((name, "wss", 4) for name in OVER_WEBSOCKET)],
    indirect=["client"],
)
def test_a_client_with_a_certificate_publishes_and_receives_its_own_messages(
    front: Front, authority: Authority, client: str, listener: str, version: int
) -> None:
    """Small and large payloads at every QoS, with the user name of the client's certificate."""
    own = authority.client(client)
    place = Place(
        "localhost",
        front.addresses[listener][1],
        f"{client}-{listener}",
        version,
        websocket=listener == "wss",
        authority=authority.file,
        certificate=own.certificate,
        key=own.key,
    )
    topic = f"of/{client}/{listener}"
    with (
        closing(OVER_TLS[client](place)) as subscriber,
        closing(OVER_TLS[client](replace(place, client_id=f"{place.client_id}-p"))) as publisher,
    ):
        subscriber.subscribe([topic], 2)
        expected = []
        for qos, size in ((0, 1), (1, 100_000), (2, 20_000)):
            payload = bytes(range(256)) * (size // 256) + b"end"
            publisher.publish(topic, payload, qos)
            expected.append(Message(topic, payload, qos))
        assert subscriber.receive(len(expected)) == expected


@pytest.mark.parametrize("own", ["none", "of another authority"])
def test_mosquitto_without_a_trusted_certificate_is_refused(
    front: Front, authority: Authority, with_mosquitto: None, tmp_path: Path, own: str
) -> None:
    pair = Authority(tmp_path, "others").client("paho")
    place = Place("localhost", front.addresses["mqtts"][1], "stranger", authority=authority.file)
    if own != "none":
        place = replace(place, certificate=pair.certificate, key=pair.key)
    with closing(clients.mosquitto(place)) as stranger, pytest.raises(Exception, match="exit status"):
        stranger.publish("of/paho/x", b"x", 1)
