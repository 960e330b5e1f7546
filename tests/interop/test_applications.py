"""What well-known applications do with a broker, and the behaviour that they depend on."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle

import pytest
from paho.mqtt.client import MQTTMessage

from tests import waiting
from tests.interop import clients
from tests.interop.clients import PATIENCE_S, Client, version_3
from tests.interop.home import GATEWAYS, PLACES, HomeNetwork
from tests.interop.lines import Message
from tests.interop.peer import connected, fields_of, properties_of

FLOOD = 2_000
CAMERA_BYTES = 3_000_000


@pytest.fixture(scope="module")
def flooded(home: HomeNetwork) -> Iterator[set[str]]:
    """Topics over all owners with a retained message each, as many as a large Home Assistant has."""
    places = cycle(PLACES)
    topics = {f"{next(places)}/discovery/sensor{number}/config" for number in range(FLOOD)}
    with connected(home.place("one", "discovery")) as devices:
        for payload in (b'{"name": "sensor"}', b""):
            sent = [devices.client.publish(topic, payload, 1, retain=True) for topic in sorted(topics)]
            for message in sent:
                message.wait_for_publish(PATIENCE_S)
            if payload:
                yield topics


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1])
def test_home_assistant_gets_every_retained_message_once(
    home: HomeNetwork, flooded: set[str], version: int, qos: int
) -> None:
    filters = [(f"{place}/discovery/#", qos) for place in PLACES]
    with connected(home.place("two", f"assistant-{version}-{qos}", version=version)) as assistant:
        assistant.subscribe(*filters)
        assistant.await_received(FLOOD)
    assert Counter(message.topic for message in assistant.received) == dict.fromkeys(flooded, 1)
    assert all(message.retain for message in assistant.received)
    assert set(assistant.subacks_before) == {1}


@pytest.mark.parametrize("version", [4, 5])
def test_a_retained_will_shows_the_availability_of_a_device(
    home: HomeNetwork, with_mosquitto: None, version: int
) -> None:
    topic = f"home/outside/gate{version}/LWT"
    with connected(home.place("two", f"bridge-{version}", version=version)) as watcher:
        watcher.subscribe((topic, 1))
        will = ["--will-topic", topic, "--will-payload", "Offline", "--will-retain", "--will-qos", "1"]
        device = clients.mosquitto(home.place("one", f"gate-{version}", version=version), *will)
        device.subscribe([f"home/outside/gate{version}/cmnd/+"], 1)
        device.publish(topic, b"Online", 1, retained=True)
        watcher.await_received(1)
        device.kill()
        watcher.await_received(2)
        device = clients.mosquitto(home.place("two", f"gate-{version}", version=version), *will)
        device.subscribe([f"home/outside/gate{version}/cmnd/+"], 1)
        with connected(home.place("one", f"late-{version}", version=version)) as late:
            late.subscribe((topic, 1))
            late.await_received(1)
        device.publish(topic, b"Online", 1, retained=True)
        watcher.await_received(3)
    device.close()
    assert [bytes(m.payload) for m in watcher.received] == [b"Online", b"Offline", b"Online"]
    assert [(bytes(m.payload), m.retain) for m in late.received] == [(b"Offline", True)]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mosquitto_rr_gets_its_response(home: HomeNetwork, with_mosquitto: None, qos: int) -> None:
    question, answer = f"home/kitchen/ask{qos}", f"weather/answer{qos}"
    with connected(home.place("two", f"answers-{qos}")) as responder:

        def respond(_client: object, _userdata: object, message: MQTTMessage) -> None:
            asked = fields_of(message)
            properties = properties_of("PUBLISH", CorrelationData=asked["CorrelationData"])
            text = b"to " + asked["CorrelationData"] + b": " + bytes(message.payload)
            for part in range(3):
                responder.client.publish(
                    asked["ResponseTopic"], text + b" %d" % part, qos, properties=properties
                )

        responder.client.on_message = respond
        responder.subscribe((question, qos))
        place = home.place("one", "")
        command = ["mosquitto_rr", "-h", place.host, "-p", str(place.port), "-V", "5", "-q", str(qos)]
        command += ["-D", "connect", "receive-maximum", "1", "-D", "publish", "correlation-data", "7"]
        command += ["-t", question, "-e", answer, "-m", "how late", "-i", f"asks-{qos}"]
        done = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    assert done.stdout == b"to 7: how late 0\n"


def test_a_large_retained_picture_reaches_clients_of_every_kind(
    home: HomeNetwork, with_mosquitto: None
) -> None:
    topic = "home/outside/securitycams/front/picture"
    picture = bytes(range(256)) * (CAMERA_BYTES // 256)
    publisher = clients.mosquitto(home.place("one", "camera"))
    publisher.publish(topic, picture, 1, retained=True)
    viewers: list[Client] = [
        clients.paho(home.place("two", "viewer-5")),
        clients.paho(version_3(home.place("one", "viewer-3"))),
        clients.paho(home.place("two", "viewer-ws", websocket=True)),
    ]
    for viewer in viewers:
        viewer.subscribe([topic], 1)
        assert viewer.receive(1) == [Message(topic, picture, 1, retained=True)]
        viewer.close()
    publisher.publish(topic, b"", 1, retained=True)


@pytest.mark.parametrize("version", [4, 5])
def test_overlapping_subscriptions_give_one_copy_in_mqtt_3_and_one_for_each_in_mqtt_5(
    home: HomeNetwork, version: int
) -> None:
    with (
        connected(home.place("one", f"overlaps-{version}", version=version)) as subscriber,
        connected(home.place("two", f"overlapped-{version}", version=version)) as publisher,
    ):
        wanted = [("home/kitchen/door/#", 0), ("home/+/door/bell", 2), ("+/kitchen/door/+", 1)]
        for number, (filter, qos) in enumerate(wanted, 1):
            subscriber.subscribe((filter, qos), identifier=number if version == 5 else 0)
        for text in (b"first", b"second"):
            publisher.client.publish("home/kitchen/door/bell", text, 2).wait_for_publish(PATIENCE_S)
        subscriber.await_received(2 if version == 4 else 6)
    copies = [(bytes(m.payload), m.qos) for m in subscriber.received]
    if version == 4:
        assert copies == [(b"first", 2), (b"second", 2)]
        return
    assert sorted(copies) == [(text, qos) for text in (b"first", b"second") for qos in range(3)]
    identifiers = [(m.qos, fields_of(m)["SubscriptionIdentifier"]) for m in subscriber.received]
    assert sorted(identifiers) == sorted([(0, [1]), (2, [2]), (1, [3])] * 2)


def test_a_shared_subscription_spans_two_gateways(home: HomeNetwork) -> None:
    filters = ["$share/ovens/home/kitchen/jobs/+"]
    names = [f"{gateway}-{number}" for gateway in GATEWAYS for number in range(2)]
    jobs = [f"job {number}".encode() for number in range(40)]
    with ExitStack() as stack:
        members = []
        for name in names:
            place = home.place(name.partition("-")[0], f"member-{name}")
            members.append(stack.enter_context(connected(place)))
            members[-1].subscribe((filters[0], 1))
        publisher = stack.enter_context(connected(home.place("one", "boss")))
        for number, job in enumerate(jobs):
            publisher.client.publish(f"home/kitchen/jobs/{number}", job, 1).wait_for_publish(PATIENCE_S)
        waiting.until(
            lambda: sum(len(member.received) for member in members) >= len(jobs), "every job", PATIENCE_S
        )
    done = [bytes(message.payload) for member in members for message in member.received]
    assert sorted(done) == sorted(jobs)
    assert all(member.received for member in members)
