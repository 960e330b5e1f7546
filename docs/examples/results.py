"""What a publisher learns of its messages, and the errors to expect."""

import asyncio
import sys

import hbroker


async def main(root: str) -> None:
    async with hbroker.connect(root) as client:
        receipt = await client.publish("home/bedroom/lamp", b"on", qos=1, retain=True)
        print("distributed:", receipt.topic, "at QoS", receipt.qos)
        try:
            await client.publish("home/+/lamp", b"on")
        except hbroker.InvalidTopic:
            print("a wildcard is no topic")
        try:
            client.try_publish("home/bedroom/lamp", b"off")
        except hbroker.Backpressure:
            print("no room now: later")


asyncio.run(main(sys.argv[1]))
