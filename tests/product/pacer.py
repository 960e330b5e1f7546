"""A publisher at a steady rate, as a process: `python -m tests.product.pacer`.

Each message contains the time at which it was due, and the phase of the test. So a publisher that is held up
does not hide the time that a message waited, and no latency counts for the wrong phase. A message for which
the endpoint has no room stays due. The program prints `ready`, and then publishes. Each byte on its standard
input begins the next phase. At the end of the input the program waits for the missing acknowledgements, and
prints its counters.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Final

import click

from hbroker.runtime.address import parse_place, resolve
from tests.product.client import PolledClient

__all__ = ["STAMP"]

STAMP: Final = struct.Struct(">QI")
"""When the message was due, in nanoseconds of the machine's monotonic clock, and the phase."""

_FILLER: Final = bytes(64 - STAMP.size)
_SHORTEST_PAUSE_S: Final = 0.001
_PATIENCE_S: Final = 30.0


class Pacer:
    """One publisher on one topic."""

    def __init__(self, client: PolledClient, topic: str, qos: int, rate: int) -> None:
        self._client = client
        self._topic = topic
        self._qos = qos
        self._interval = 1_000_000_000 // rate
        self._due = time.monotonic_ns()
        self._phase = 0
        self._held_up_ns = 0
        self.sent = 0

    def run(self, commands: int) -> None:
        """Publishes until the commands end."""
        while True:
            self._publish_due()
            self._client.turn(at_once=True)
            pause = (self._due - time.monotonic_ns()) / 1e9
            if select.select([commands], [], [], max(pause, _SHORTEST_PAUSE_S))[0]:
                begun = os.read(commands, 16)
                if not begun:
                    return
                self._phase += len(begun)

    def drain(self) -> None:
        """Waits until every message is answered."""
        deadline = time.monotonic() + _PATIENCE_S
        while not self._client.endpoint.drain(0.01) and time.monotonic() < deadline:
            self._client.turn(at_once=True)
        self._client.turn(at_once=True)

    def measurements(self) -> dict[str, float]:
        """The counters of the messages. `held_up_s`: the longest time that a message waited for room, or
        for this process to run."""
        return {
            "sent": self.sent,
            "acknowledged": self._client.acknowledged,
            "failed": self._client.failed,
            "held_up_s": self._held_up_ns / 1e9,
        }

    def _publish_due(self) -> None:
        publish = self._client.endpoint.publish
        while (late := time.monotonic_ns() - self._due) >= 0:
            if publish(self._topic, STAMP.pack(self._due, self._phase) + _FILLER, self._qos) is None:
                return
            self._held_up_ns = max(self._held_up_ns, late)
            self._due += self._interval
            self.sent += 1


@click.command
@click.option("--root", required=True)
@click.option("--topic", required=True)
@click.option("--qos", type=int, required=True)
@click.option("--rate", type=int, required=True, help="Messages a second.")
def main(root: str, topic: str, qos: int, rate: int) -> None:
    """Runs until the end of the standard input."""
    client = PolledClient(resolve(*parse_place(root)), "pacer")
    client.resolve(topic)
    print("ready", flush=True)
    pacer = Pacer(client, topic, qos, rate)
    pacer.run(0)
    pacer.drain()
    print(json.dumps(pacer.measurements()), flush=True)
    client.close()


if __name__ == "__main__":
    main()
