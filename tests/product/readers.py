"""Many subscribers of one filter in a process: `python -m tests.product.readers`.

Each subscriber is a client of the network, with a socket and a session of its own. It takes its messages in
batches. So ten times 5,000 messages per second, or a hundred subscribers, fit a small machine beside the
nodes. The program prints `ready` once all have subscribed. After a line `pause` on its standard input the
application takes no more messages, until a line `resume`. At the end of the input it takes the remaining
messages, and prints its measurements.
"""

from __future__ import annotations

import json
import os
import select
import time
from array import array
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import click

from hbroker._native import Message
from hbroker._proto import packet_pb2 as pb
from hbroker.protocol.subscriptions.client.options import Options
from hbroker.runtime.address import parse_place, resolve
from hbroker.sim.rooms.delivery_counters import ReceiveCounters
from tests.product.client import PolledClient
from tests.product.pacer import STAMP

_BATCH: Final = 1_024
_LONG_GAP_NS: Final = 100_000_000
_GLANCE_S: Final = 0.02
_QUIET_S: Final = 0.3
"""If nothing has arrived for this long after the end of the input, nothing more will arrive."""


class Reader:
    """One subscriber, and the messages that it received."""

    def __init__(self, client: PolledClient) -> None:
        self.client = client
        self.receipts = ReceiveCounters()
        self.longest_gap = 0
        """Nanoseconds from one batch to the next."""
        self.long_gaps: list[tuple[int, int]] = []
        """The beginnings and ends of the gaps, in nanoseconds of the monotonic clock."""
        self._came_at = 0

    def take(self) -> list[Message]:
        """The messages that have arrived since the last call."""
        messages = self.client.endpoint.poll_messages(_BATCH)
        if messages:
            for message in messages:
                self.receipts.count(message.sequence - 1)
            now = time.monotonic_ns()
            if self._came_at:
                self._take_gap(self._came_at, now)
            self._came_at = now
        self.client.turn(at_once=not messages)
        return messages

    def _take_gap(self, begin: int, end: int) -> None:
        self.longest_gap = max(self.longest_gap, end - begin)
        if end - begin >= _LONG_GAP_NS:
            self.long_gaps.append((begin, end))


class Readers:
    """All subscribers, and the latencies of their messages."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = {reader.client.endpoint.fileno(): reader for reader in readers}
        self._is_paused = False
        self._next_glance = 0
        self._latencies: defaultdict[int, array[int]] = defaultdict(lambda: array("Q"))
        """Nanoseconds from when a message was due until it arrived, by phase."""
        self._poll = select.poll()
        for descriptor in self._readers:
            self._poll.register(descriptor, select.POLLIN)

    def run(self, commands: int) -> None:
        """Takes messages until the commands end, and then the messages that are still on their way."""
        self._poll.register(commands, select.POLLIN)
        while True:
            ready = self._ready(commands)
            self._take(ready)
            if commands in ready:
                command = os.read(commands, 16).decode()
                if not command:
                    break
                self._is_paused = command == "pause\n"
        self._poll.unregister(commands)
        self._is_paused = False
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_S:
            if self._take(self._ready()):
                quiet_since = time.monotonic()

    def measurements(self) -> dict[str, object]:
        """The counters of the messages. `p99_s`: by phase, over all messages of all subscribers."""
        readers = self._readers.values()
        return {
            "received": [reader.receipts.received for reader in readers],
            "doubled": sum(reader.receipts.duplicates for reader in readers),
            "disordered": sum(reader.receipts.disordered for reader in readers),
            "longest_gap_s": max(reader.longest_gap for reader in readers) / 1e9,
            "long_gaps": [gap for reader in readers for gap in reader.long_gaps],
            "p99_s": [_quantile(self._latencies[phase], 0.99) for phase in sorted(self._latencies)],
        }

    def _ready(self, *others: int) -> set[int]:
        if not self._is_paused:
            return {descriptor for descriptor, _ in self._poll.poll(_GLANCE_S * 1_000)}
        return set(select.select(others, [], [], _GLANCE_S)[0])

    def _take(self, ready: set[int]) -> bool:
        """Takes messages. Returns whether there were any."""
        came = False
        for descriptor in ready & self._readers.keys():
            messages = self._readers[descriptor].take()
            came |= bool(messages)
            now = time.monotonic_ns()
            for message in messages:
                due, phase = STAMP.unpack_from(message.payload)
                self._latencies[phase].append(now - due)
        self._glance()
        return came

    def _glance(self) -> None:
        """Gives a turn to the subscribers that receive nothing."""
        now = time.monotonic_ns()
        if now < self._next_glance:
            return
        self._next_glance = now + round(_GLANCE_S * 1e9)
        for reader in self._readers.values():
            reader.client.turn()


def _quantile(values: array[int], share: float) -> float:
    return sorted(values)[int(len(values) * share)] / 1e9


@click.command
@click.option("--root", required=True)
@click.option("--filter", required=True)
@click.option("--qos", type=int, required=True)
@click.option("--name", required=True, help="Of the clients: NAME-0, NAME-1 and so on.")
@click.option("--readers", "count", type=int, required=True, help="How many.")
@click.option("--queue-messages", type=int, required=True, help="That may wait for each; 0: the node's own.")
@click.option("--receive-messages", type=int, required=True, help="That each takes unanswered.")
def main(
    root: str, filter: str, qos: int, name: str, count: int, queue_messages: int, receive_messages: int
) -> None:
    """Runs until the end of the standard input."""
    place = resolve(*parse_place(root))
    options = Options(qos, overflow=pb.OVERFLOW_DROP_NEWEST, queue_messages=queue_messages)
    clients = [
        PolledClient(place, f"{name}-{number}", receive_messages=receive_messages) for number in range(count)
    ]
    for client in clients:
        client.subscribe(filter, options)
    print("ready", flush=True)
    readers = Readers([Reader(client) for client in clients])
    readers.run(0)
    print(json.dumps(readers.measurements()), flush=True)
    for client in clients:
        client.close()


if __name__ == "__main__":
    main()
