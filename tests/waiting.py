"""Waiting for what other processes, threads and tasks do: until it is so, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

GLANCE_S = 0.01
"""Between two looks at something that costs nothing to look at."""


def until(
    condition: Callable[[], bool],
    what: str,
    within_s: float,
    *,
    found: Callable[[], object] | None = None,
    glance_s: float = GLANCE_S,
) -> None:
    """Returns once it is so. Fails after `within_s` seconds, and says what was awaited and what was `found`
    instead."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            instead = "" if found is None else f"; instead: {found()}"
            raise AssertionError(f"not within {within_s:g} s: {what}{instead}")
        time.sleep(glance_s)


async def eventually(condition: Callable[[], bool], what: str, within_s: float) -> None:
    """As `until`, and the event loop goes on meanwhile."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(GLANCE_S)
