"""A subscriber that is slower than its publishers."""

from __future__ import annotations

import asyncio
import time

import hbroker


class SlowReader:
    """Reads a subscription, with a pause after each batch of messages, until `is_hurried` is set."""

    def __init__(self, messages: hbroker.Subscription, pause_s: float, batch: int = 1) -> None:
        self.got: list[bytes] = []
        self.is_hurried = False
        self.longest_gap_s = 0.0
        self.last_at = time.monotonic()
        self._pause_s, self._batch = pause_s, batch
        self._task = asyncio.create_task(self._read(messages))

    def stop(self) -> None:
        self._task.cancel()

    async def _read(self, messages: hbroker.Subscription) -> None:
        async for message in messages:
            self.got.append(message.payload)
            now = time.monotonic()
            self.longest_gap_s, self.last_at = max(self.longest_gap_s, now - self.last_at), now
            if not self.is_hurried and len(self.got) % self._batch == 0:
                await asyncio.sleep(self._pause_s)  # the slow pace is the condition of the test
