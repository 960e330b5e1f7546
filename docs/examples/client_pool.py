"""Many clients behind one socket."""

import asyncio
import sys

import hbroker


async def main(root: str) -> None:
    async with hbroker.client_pool(root) as members:
        controller = await members.connect(client_id="controller")
        lamps = [await members.connect(client_id=f"lamp-{number}") for number in range(1, 101)]
        async with controller.subscribe("home/livingroom/+/state", qos=1) as states:
            topics = [f"home/livingroom/{lamp.client_id}/state" for lamp in lamps]
            await asyncio.gather(
                *(lamp.publish(topic, b"on", qos=1) for lamp, topic in zip(lamps, topics, strict=True))
            )
            heard = {(await states.next()).topic for _ in lamps}
        print(f"{len(heard)} of {len(lamps)} lamps")


asyncio.run(main(sys.argv[1]))
