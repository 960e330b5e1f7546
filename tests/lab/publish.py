"""A publisher as a program. It publishes numbered messages to some topics in turn, with many in flight, and
writes each step to a journal.

It prints `ready` when it is connected. It ends when all messages are acknowledged: `--count` messages, or
those begun before SIGTERM. With an existing journal it continues after the last message begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from pathlib import Path

import click

import hbroker
from tests.lab.journal import Acknowledged, Begun, Journal, Reader, now

PATIENCE_S = 600.0
"""Tests set their own limits of time."""


@click.command
@click.option("--name", required=True)
@click.option("--root", required=True)
@click.option("--topic", "topics", multiple=True, required=True)
@click.option("--qos", type=int, required=True)
@click.option("--count", type=int, help="Without it: until SIGTERM.")
@click.option("--rate", type=float, help="Messages a second; without it: as fast as it goes.")
@click.option("--window", default=1_000, help="Messages under way at most.")
@click.option("--journal", type=click.Path(path_type=Path), required=True)
def main(
    name: str,
    root: str,
    topics: Sequence[str],
    qos: int,
    count: int | None,
    rate: float | None,
    window: int,
    journal: Path,
) -> None:
    first = _begun_before(journal)
    publication = _Publication(name, topics, qos, window, Journal(journal))
    asyncio.run(_publish(publication, root, first, count, rate))


async def _publish(
    publication: _Publication, root: str, first: int, count: int | None, rate: float | None
) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with hbroker.connect(root, client_id=publication.name, timeout=PATIENCE_S) as client:
        print("ready", flush=True)
        async with asyncio.TaskGroup() as group:
            number = first
            while not stopping.is_set() and (count is None or number < count):
                await publication.room.acquire()
                await _until_due(stopping, rate, number - first, publication.began)
                group.create_task(publication.publish(client, number))
                number += 1


class _Publication:
    """The state shared by all messages of one program."""

    def __init__(self, name: str, topics: Sequence[str], qos: int, window: int, journal: Journal) -> None:
        self.name = name
        self.room = asyncio.Semaphore(window)
        self.began = now()
        self._topics = topics
        self._qos = qos
        self._journal = journal

    async def publish(self, client: hbroker.Client, number: int) -> None:
        topic = self._topics[number % len(self._topics)]
        begun = Begun(now(), topic, number)
        self._journal.write(begun)
        receipt = await client.publish(topic, f"{self.name} {number} {begun.at}", qos=self._qos)
        self._journal.write(Acknowledged(now(), topic, number, receipt.sequence))
        self.room.release()


async def _until_due(stopping: asyncio.Event, rate: float | None, place: int, began: int) -> None:
    pause = 0.0 if rate is None else (began - now()) / 1e6 + place / rate
    if pause > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), pause)
    else:
        await asyncio.sleep(0)  # The client and the other messages run meanwhile.


def _begun_before(journal: Path) -> int:
    begun = (entry.number for entry in Reader(journal).new_entries() if isinstance(entry, Begun))
    return max(begun, default=-1) + 1


if __name__ == "__main__":
    main()
