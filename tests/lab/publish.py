"""A publisher as a program: numbered messages to some topics in turn, many under way, each step in a journal.

It prints `ready` once it is connected. It ends when all are acknowledged: as many as `--count` asks for, or
as were begun when SIGTERM came. Started again with the same journal it goes on after the last that it had
begun.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

import hbroker
from tests.lab.journal import Acknowledged, Begun, Journal, Reader, now

PATIENCE_S = 600.0
"""It is for the test to say how long is too long."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--topic", action="append", required=True)
    parser.add_argument("--qos", type=int, required=True)
    parser.add_argument("--count", type=int, help="without it: until SIGTERM")
    parser.add_argument("--rate", type=float, help="messages a second; without it: as fast as it goes")
    parser.add_argument("--window", type=int, default=1_000, help="messages under way at most")
    parser.add_argument("--journal", type=Path, required=True)
    asyncio.run(_publish(parser.parse_args()))


async def _publish(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    first = _begun_before(options.journal)
    publication = _Publication(options, Journal(options.journal))
    async with hbroker.connect(options.root, client_id=options.name, timeout=PATIENCE_S) as client:
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            number = first
            while not stopping.is_set() and (options.count is None or number < options.count):
                await publication.room.acquire()
                await _until_due(stopping, options.rate, number - first, publication.began)
                group.create_task(publication.publish(client, number))
                number += 1


class _Publication:
    """What all messages of one program share."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self.room = asyncio.Semaphore(options.window)
        self.began = now()
        self._options = options
        self._journal = journal

    async def publish(self, client: hbroker.Client, number: int) -> None:
        topic = self._options.topic[number % len(self._options.topic)]
        begun = Begun(now(), topic, number)
        self._journal.write(begun)
        payload = f"{self._options.name} {number} {begun.at}"
        receipt = await client.publish(topic, payload, qos=self._options.qos)
        self._journal.write(Acknowledged(now(), topic, number, receipt.sequence))
        self.room.release()


async def _until_due(stopping: asyncio.Event, rate: float | None, place: int, began: int) -> None:
    pause = 0.0 if rate is None else (began - now()) / 1e6 + place / rate
    if pause > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), pause)
    else:
        await asyncio.sleep(0)  # the client and the other messages have their turn


def _begun_before(journal: Path) -> int:
    begun = (entry.number for entry in Reader(journal).news() if isinstance(entry, Begun))
    return max(begun, default=-1) + 1


if __name__ == "__main__":
    main()
