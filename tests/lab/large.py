"""One large message, published or read by a program: it prints `ready`, and at the end the hash."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
from random import Random

import hbroker

PATIENCE_S = 600.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--publish", type=int, metavar="BYTES", help="without it: subscribe")
    options = parser.parse_args()
    size: int | None = options.publish
    asyncio.run(_subscribe(options) if size is None else _publish(options, size))


async def _publish(options: argparse.Namespace, size: int) -> None:
    payload = Random(size).randbytes(size)
    async with hbroker.connect(options.root, timeout=PATIENCE_S) as client:
        print("ready", flush=True)
        await client.publish(options.topic, payload, qos=1)
    print(hashlib.sha256(payload).hexdigest(), flush=True)


async def _subscribe(options: argparse.Namespace) -> None:
    async with (
        hbroker.connect(options.root, timeout=PATIENCE_S) as client,
        client.subscribe(options.topic, qos=1) as messages,
    ):
        print("ready", flush=True)
        message = await messages.next(PATIENCE_S)
        assert message is not None
        print(hashlib.sha256(message.payload).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
