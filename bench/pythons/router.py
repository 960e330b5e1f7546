"""Zenoh's router in its Python package: a session in router mode, which runs no Python for a message.

So its version is the client's, and nothing has to be built.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.contestants.brokers import wait_for_port
from bench.contestants.zenoh import ALONE
from hbroker.bench.brokers import Started
from hbroker.bench.launching import free_port, launch
from hbroker.bench.plan import Address

if TYPE_CHECKING:
    import zenoh


class ZenohRouter:
    """A router without plugins."""

    name = "zenoh router"
    transport = "tcp"

    def version(self) -> str | None:
        try:
            return version("eclipse-zenoh")
        except PackageNotFoundError:
            return None

    def start(self, directory: Path) -> Started:
        address = ("127.0.0.1", free_port())
        settings = {**ALONE, "mode": "router", "listen": {"endpoints": [_endpoint(address)]}}
        with launch(directory, [sys.executable, "-c", _PROGRAM, json.dumps(settings)]) as process:
            wait_for_port(process, address)
            return process, address


def client_config(address: Address) -> zenoh.Config:
    """The configuration of a client of this router."""
    import zenoh

    settings = {**ALONE, "mode": "client", "connect": {"endpoints": [_endpoint(address)]}}
    return zenoh.Config.from_json5(json.dumps(settings))


def _endpoint(address: Address) -> str:
    return f"tcp/{address[0]}:{address[1]}"


_PROGRAM: Final = """
import signal, sys, zenoh
with zenoh.open(zenoh.Config.from_json5(sys.argv[1])):
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
"""
