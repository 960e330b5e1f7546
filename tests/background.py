"""Work in a thread beside a test."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Final, Self

__all__ = ["Background"]

_PATIENCE_S: Final = 60.0


class Background(ABC):
    """A context manager: `_run` runs while its block does, and returns soon after `_is_over` is set."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the thread, and waits for its end."""
        self._is_over.set()
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "it goes on"

    @abstractmethod
    def _run(self) -> None:
        """The work. It returns once `_is_over` is set."""
