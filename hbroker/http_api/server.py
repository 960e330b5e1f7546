"""The process of the API: `uvicorn`, until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvicorn

from hbroker.addresses import Address, format_address
from hbroker.errors import ConfigError
from hbroker.http_api.application import application
from hbroker.http_api.context import NetworkAccess, context_of

__all__ = ["ServerSettings", "serve"]

logger = logging.getLogger(__name__)

_STOP_S: Final = 3
"""Seconds that requests may take to end, when the API ends."""
_KEEP_ALIVE_S: Final = 30
_MOST_CONNECTIONS: Final = 10_000
_LOOPBACK: Final = ("127.", "::1")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Where the API listens. `hosts`: the names under which it is called, beside those of this host.
    `certificate`, `key`: files in PEM, for HTTPS; None: HTTP."""

    listen: Address
    access: NetworkAccess
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this host can reach it."""
        return self.listen[0].startswith(_LOOPBACK)


def serve(
    settings: ServerSettings,
    version: str,
    on_ready: Callable[[str], None] = lambda url: None,
    listener: socket.socket | None = None,
) -> int:
    """Serves the API until the process is told to end. Returns the exit code.

    `on_ready(url)` is called once it accepts connections. `listener`: a socket that listens; None: one is
    made for `settings.listen`. Raises OSError if the address cannot be bound, and
    ConfigError if the API would be open to other hosts: without tokens, or with tokens that are not
    encrypted.
    """
    _require_closed(settings)
    gc.collect()
    gc.freeze()
    return asyncio.run(_run(settings, version, on_ready, listener))


async def _run(
    settings: ServerSettings, version: str, on_ready: Callable[[str], None], listener: socket.socket | None
) -> int:
    app = application(settings.access, version, settings.hosts)
    config = uvicorn.Config(
        app,
        host=settings.listen[0],
        port=settings.listen[1],
        access_log=False,
        limit_concurrency=_MOST_CONNECTIONS,
        log_config=None,
        server_header=False,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
        timeout_graceful_shutdown=_STOP_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
        ws="none",
    )
    listener = listener or config.bind_socket()
    server = _Server(
        config,
        on_ready=lambda: on_ready(_url(settings, listener.getsockname())),
        on_exit=lambda: context_of(app.state).end_streams(),
    )
    await server.serve(sockets=[listener])
    return 0 if server.started else 1


class _Server(uvicorn.Server):
    """Tells when it accepts connections, and when it is told to end."""

    def __init__(
        self, config: uvicorn.Config, on_ready: Callable[[], None], on_exit: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_exit = on_exit

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As of `uvicorn.Server`."""
        super().handle_exit(sig, frame)
        if self.started:
            self._on_exit()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As of `uvicorn.Server`, but for its end: that sends itself the signal again, and the exit code
        says so."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[Any] | None = None) -> None:
        """As of `uvicorn.Server`."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


def _url(settings: ServerSettings, name: tuple[Any, ...]) -> str:
    scheme = "https" if settings.certificate else "http"
    return f"{scheme}://{format_address((name[0], name[1]))}"


def _require_closed(settings: ServerSettings) -> None:
    if settings.is_local:
        return
    where = f"the API would listen on {format_address(settings.listen)}, for other hosts, too"
    if not settings.access.requires_tokens:
        remedy = "listen on 127.0.0.1, or have the network require tokens"
        raise ConfigError(f"{where}, and no token is required", file="command line", remedy=remedy)
    if settings.certificate is None:
        remedy = "give --tls-certificate and --tls-key, or listen on 127.0.0.1 behind a proxy that has TLS"
        raise ConfigError(f"{where}, and tokens would not be encrypted", file="command line", remedy=remedy)
