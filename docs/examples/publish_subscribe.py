"""Subscribes, publishes, and reads what comes."""

import asyncio
import sys

import hbroker


async def main(root: str) -> None:
    async with (
        hbroker.connect(root) as client,
        client.subscribe("home/+/oven/#", qos=1) as messages,  # complete: every owner has it
    ):
        await client.publish("home/kitchen/oven/temperature", b"180", qos=1)
        async for message in messages:
            print(message.topic, message.payload.decode())
            break


asyncio.run(main(sys.argv[1]))
