"""A request of the asynchronous client, until its outcome is known."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from hbroker.protocol.results import Outcome

__all__ = ["Waiting"]


class Waiting:
    """One outcome, awaited."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def set(self, outcome: Outcome | Exception) -> None:
        """The outcome; an exception: there will be none. Only the first counts."""
        if self._future.done():
            return
        if isinstance(outcome, Exception):
            self._future.set_exception(outcome)
        else:
            self._future.set_result(outcome)

    def __await__(self) -> Generator[object, None, Outcome]:
        return self._future.__await__()
