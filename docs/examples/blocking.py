"""The same without an event loop."""

import sys

import hbroker.sync

with (
    hbroker.sync.connect(sys.argv[1]) as client,
    client.subscribe("home/+/oven/#", qos=1) as messages,
):
    client.publish("home/kitchen/oven/temperature", b"180", qos=1)
    message = messages.next(timeout=5)
    assert message is not None
    print(message.topic, message.payload.decode())
