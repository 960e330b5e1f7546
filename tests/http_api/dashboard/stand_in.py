"""The API without a network: a test tells it what nodes say of themselves."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import uvicorn
from litestar import Litestar

from hbroker._native import Message
from hbroker.http_api.application import application
from hbroker.http_api.context import NetworkAccess
from tests.product.network import PATIENCE
from tests.waiting import until


@dataclass
class Said:
    """A message, as far as the API reads it."""

    topic: str
    payload: bytes


class StandIn:
    """An API that requires no tokens. `url`, `port`: where it is."""

    def __init__(self, app: Litestar, server: uvicorn.Server) -> None:
        self._app = app
        (listener,) = server.servers[0].sockets
        self.port: int = listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._loop: asyncio.AbstractEventLoop = app.state.loop

    def say(self, statuses: Iterable[dict[str, Any]]) -> None:
        """Nodes publish these statuses."""
        self.publish((f"$SYS/nodes/{each['name']}/status", each) for each in statuses)

    def publish(self, messages: Iterable[tuple[str, dict[str, Any]]]) -> None:
        """Somebody publishes these contents to these topics."""
        live = self._app.state.context.live
        done = threading.Event()

        def take() -> None:
            for topic, content in messages:
                live._take(cast(Message, Said(topic, json.dumps(content).encode())), time.monotonic())
            done.set()

        self._loop.call_soon_threadsafe(take)
        assert done.wait(PATIENCE)


@contextmanager
def stand_in(port: int = 0) -> Iterator[StandIn]:
    """A running API at this port; 0: any."""
    with warnings.catch_warnings():
        # The routes declare parameters in a way that Litestar 3 will not take. pyproject.toml excludes it.
        warnings.simplefilter("ignore", DeprecationWarning)
        app = application(NetworkAccess(("127.0.0.1", 9), timeout=0.1), "1.0")

    async def keep_loop(app: Litestar) -> None:
        app.state.loop = asyncio.get_running_loop()

    app.on_startup.append(keep_loop)
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_config=None, ws="none", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the API listens", PATIENCE)
        yield StandIn(app, server)
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


def status(name: str, parent: str | None, *, at_s: float = 100.0, messages: int = 0) -> dict[str, Any]:
    """The status of a node, `at_s` seconds after its start."""
    return {
        "name": name,
        "parent": parent,
        "subtree": f"home/{name}",
        "subtrees": [f"home/{name}"],
        "address": "127.0.0.1:7700",
        "at_us": round(at_s * 1e6),
        "messages_in": messages,
        "messages_out": messages,
        "bytes_in": 0,
        "bytes_out": 0,
        "cpu_s": 0.0,
        "sessions": 2,
        "queued_messages": 3,
    }
