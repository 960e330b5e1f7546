"""A subscriber as a program. It writes each message to its journal before it reads the next one.

It prints `ready` when its subscription is complete. At SIGTERM it reads the messages that have arrived, and
ends.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path

import click

import hbroker
from tests.lab.journal import Journal, Received, now

PATIENCE_S = 60.0
QUIET_S = 0.2


@click.command
@click.option("--name", required=True)
@click.option("--root", required=True)
@click.option("--filter", "filters", multiple=True, required=True)
@click.option("--qos", type=int, required=True)
@click.option("--journal", type=click.Path(path_type=Path), required=True)
def main(name: str, root: str, filters: Sequence[str], qos: int, journal: Path) -> None:
    asyncio.run(_subscribe(name, root, filters, qos, Journal(journal)))


async def _subscribe(name: str, root: str, filters: Sequence[str], qos: int, journal: Journal) -> None:
    async with (
        hbroker.connect(root, client_id=name, timeout=PATIENCE_S) as client,
        client.subscribe(*filters, qos=qos) as messages,
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
