"""paho-mqtt, its network loop in a thread of its own."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.interop.lines import Message, Place, decode, say_done, say_message

PATIENCE_S = 60.0


def main() -> None:
    """Does what standard input says."""
    place = Place.read()
    is_5 = place.version == mqtt.MQTTv5
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        place.client_id,
        clean_session=None if is_5 else not place.kept,
        protocol=mqtt.MQTTProtocolVersion(place.version),
        transport="websockets" if place.websocket else "tcp",
    )
    answered = threading.Semaphore(0)
    client.on_connect = client.on_subscribe = lambda *_: answered.release()
    client.on_message = _tell
    if place.websocket:
        client.ws_set_options("/mqtt")
    client.connect(place.host, place.port, **(_start(place) if is_5 else {}))
    client.loop_start()
    assert answered.acquire(timeout=PATIENCE_S)
    say_done()
    for order in map(json.loads, sys.stdin):
        if order["verb"] == "subscribe":
            client.subscribe(order["filter"], order["qos"])
            assert answered.acquire(timeout=PATIENCE_S)
        else:
            sent = client.publish(order["topic"], decode(order["payload"]), order["qos"], order["retained"])
            sent.wait_for_publish(PATIENCE_S)
        say_done()
    client.disconnect()


def _start(place: Place) -> dict[str, Any]:
    properties = Properties(PacketTypes.CONNECT)
    if place.kept:
        properties.SessionExpiryInterval = 3_600
    return {"clean_start": not place.kept, "properties": properties}


def _tell(_client: mqtt.Client, _userdata: object, message: mqtt.MQTTMessage) -> None:
    say_message(Message(message.topic, message.payload, message.qos, message.retain))


main()
