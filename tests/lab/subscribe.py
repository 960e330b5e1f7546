"""A subscriber as a program: each message that it reads is in its journal before it reads the next.

It prints `ready` once its subscription is complete. At SIGTERM it reads what has come, and ends.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import hbroker
from tests.lab.journal import Journal, Received, now

PATIENCE_S = 60.0
QUIET_S = 0.2


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--filter", action="append", required=True)
    parser.add_argument("--qos", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    asyncio.run(_subscribe(parser.parse_args()))


async def _subscribe(options: argparse.Namespace) -> None:
    journal = Journal(options.journal)
    async with (
        hbroker.connect(options.root, client_id=options.name, timeout=PATIENCE_S) as client,
        client.subscribe(*options.filter, qos=options.qos) as messages,
    ):
        reading = asyncio.create_task(_read(messages, journal))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, reading.cancel)
        print("ready", flush=True)
        try:
            await reading
        except asyncio.CancelledError:
            while (message := await messages.next(QUIET_S)) is not None:
                journal.write(_received(message))


async def _read(messages: hbroker.Subscription, journal: Journal) -> None:
    async for message in messages:
        journal.write(_received(message))


def _received(message: hbroker.Message) -> Received:
    source, number, begun_at = message.payload.decode().split(" ")
    return Received(
        now(), message.topic, int(number), source, message.publisher, message.sequence, int(begun_at)
    )


if __name__ == "__main__":
    main()
