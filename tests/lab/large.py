"""A program that publishes or reads one large message. It prints `ready`, and the hash at the end."""

from __future__ import annotations

import asyncio
import hashlib
from random import Random

import click

import hbroker

PATIENCE_S = 600.0


@click.command
@click.option("--root", required=True)
@click.option("--topic", required=True)
@click.option("--publish", "size", type=int, metavar="BYTES", help="Without it: subscribe.")
def main(root: str, topic: str, size: int | None) -> None:
    asyncio.run(_subscribe(root, topic) if size is None else _publish(root, topic, size))


async def _publish(root: str, topic: str, size: int) -> None:
    payload = Random(size).randbytes(size)
    async with hbroker.connect(root, timeout=PATIENCE_S) as client:
        print("ready", flush=True)
        await client.publish(topic, payload, qos=1)
    print(hashlib.sha256(payload).hexdigest(), flush=True)


async def _subscribe(root: str, topic: str) -> None:
    async with (
        hbroker.connect(root, timeout=PATIENCE_S) as client,
        client.subscribe(topic, qos=1) as messages,
    ):
        print("ready", flush=True)
        message = await messages.next(PATIENCE_S)
        assert message is not None
        print(hashlib.sha256(message.payload).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
