"""Reads standard input in programs with an asyncio loop."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any

_LONGEST_LINE = 1 << 26


async def orders() -> AsyncIterator[dict[str, Any]]:
    """The orders on standard input."""
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)
