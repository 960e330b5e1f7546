"""A pending request of the asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from hbroker.protocol.results import Result

__all__ = ["Waiting"]


class Waiting:
    """Awaits one outcome."""

    def __init__(self) -> None:
        self._future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    def set(self, result: Result | Exception) -> None:
        """Sets the outcome, or an exception in its place. Only the first call counts."""
        if self._future.done():
            return
        if isinstance(result, Exception):
            self._future.set_exception(result)
        else:
            self._future.set_result(result)

    def __await__(self) -> Generator[object, None, Result]:
        return self._future.__await__()
