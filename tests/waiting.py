"""Waiting for other processes, threads and tasks: until a condition is true, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

GLANCE_S = 0.01
"""Seconds between two checks of a cheap condition."""


def until(
    condition: Callable[[], bool],
    what: str,
    within_s: float,
    *,
    found: Callable[[], object] | None = None,
    glance_s: float = GLANCE_S,
) -> None:
    """Returns once the condition is true. After `within_s` seconds it fails, with what was awaited and
    what was `found` instead."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            instead = "" if found is None else f"; instead: {found()}"
            raise AssertionError(f"not within {within_s:g} s: {what}{instead}")
        time.sleep(glance_s)


async def eventually(condition: Callable[[], bool], what: str, within_s: float) -> None:
    """Like `until`, while the event loop goes on."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within_s:g} s: {what}")
        await asyncio.sleep(GLANCE_S)
