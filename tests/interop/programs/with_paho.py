"""A client with paho-mqtt, whose network loop runs in a thread."""

from __future__ import annotations

import json
import sys
import threading

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.interop.lines import Message, Place, decode, report_done, report_message

PATIENCE_S = 60.0


def main() -> None:
    """Carries out the orders on standard input."""
    place = Place.read()
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        place.client_id,
        protocol=MQTTProtocolVersion(place.version),
        transport="websockets" if place.websocket else "tcp",
    )
    answered = threading.Semaphore(0)
    client.on_connect = client.on_subscribe = lambda *_: answered.release()
    client.on_message = _report
    if place.websocket:
        client.ws_set_options("/mqtt")
    if place.authority:
        client.tls_set(place.authority, place.certificate or None, place.key or None)
    client.connect(place.host, place.port)
    client.loop_start()
    assert answered.acquire(timeout=PATIENCE_S)
    report_done()
    for order in map(json.loads, sys.stdin):
        if order["verb"] == "subscribe":
            client.subscribe(order["filter"], order["qos"])
            assert answered.acquire(timeout=PATIENCE_S)
        else:
            sent = client.publish(order["topic"], decode(order["payload"]), order["qos"], order["retained"])
            sent.wait_for_publish(PATIENCE_S)
        report_done()
    client.disconnect()


def _report(_client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
    report_message(Message(message.topic, bytes(message.payload), message.qos, message.retain))


main()
