"""Asks who owns a topic, and how that is found."""

import asyncio
import sys

import hbroker


async def main(root: str) -> None:
    async with hbroker.connect(root) as client:
        resolution = await client.resolve("home/outside/securitycams/front", trace=True)
        print(resolution.owner, "owns", resolution.subtree)
        for hop in resolution.trace:
            print(hop.packet, "from", hop.node)


asyncio.run(main(sys.argv[1]))
