"""A session that outlives its client."""

import asyncio
import sys

import hbroker

TOPICS = "home/hall/#"


def lamp(root: str) -> hbroker.Connecting:
    return hbroker.connect(root, client_id="lamp", session_expiry=3600, session_key="secret")


async def main(root: str) -> None:
    async with lamp(root) as client:
        await client.subscribe(TOPICS, qos=1)

    async with hbroker.connect(root) as client:
        await client.publish("home/hall/lamp", b"on", qos=1)  # its owner has it, for the lamp

    async with lamp(root) as client, client.subscribe(TOPICS, qos=1) as messages:
        message = await messages.next(timeout=5)
        assert message is not None
        print("resumed:", messages.resumed, message.payload.decode())
        await client.close(end_session=True)


asyncio.run(main(sys.argv[1]))
