"""Other brokers, as the system's packages install them.

None is handicapped: each has tcp_nodelay (which nats-server sets by itself), and unlimited queues or the
longest that it allows. Each stores on disk only what it cannot keep in memory.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from bench.contestants.brokers import wait_for_port
from bench.secure import issue
from hbroker.bench.brokers import Started
from hbroker.bench.launching import NoAnswer, free_port, launch
from hbroker.bench.plan import Transport

_HOST: Final = "127.0.0.1"


class _Peer(ABC):
    """A program with a settings file, which listens at a port that the file names."""

    name: str
    _program: str
    _asks_version: str

    def version(self) -> str | None:
        program = self._path()
        if program is None:
            return None
        asked = subprocess.run([program, self._asks_version], capture_output=True, text=True, check=False)
        found = re.search(r"v(?:ersion )?(\d\S*)", asked.stdout)
        return found[1] if found else "unknown"

    def start(self, directory: Path) -> Started:
        program = self._path()
        if program is None:
            raise NoAnswer(f"{self.name} is not installed")
        address = (_HOST, free_port())
        settings = directory / "broker.conf"
        settings.write_text(self._settings(address[1], directory))
        directory.chmod(0o755)  # started by root, it may switch to another user
        with launch(directory, [program, "-c", str(settings)]) as process:
            wait_for_port(process, address)
            return process, address

    @abstractmethod
    def _settings(self, port: int, directory: Path) -> str:
        """The text of its settings file."""

    def _path(self) -> str | None:
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
        return shutil.which(self._program, path=path)


class Mosquitto(_Peer):
    """Eclipse Mosquitto."""

    name = "mosquitto"
    transport: Transport = "mqtt"
    _program = "mosquitto"
    _asks_version = "-h"

    _SETTINGS: Final = (
        "allow_anonymous true",
        "persistence false",
        "set_tcp_nodelay true",
        "max_inflight_messages 0",  # no limit
        "max_queued_messages 0",  # no limit
        "max_queued_bytes 0",  # no limit
        "log_type error",
    )

    def __init__(self, *, tls: bool = False) -> None:
        self._tls = tls

    def _settings(self, port: int, directory: Path) -> str:
        secured: tuple[str, ...] = ()
        if self._tls:
            pair = issue(directory)
            secured = (f"certfile {pair.certificate}", f"keyfile {pair.key}")
        return "\n".join((f"listener {port} {_HOST}", *secured, *self._SETTINGS, ""))


class Nats(_Peer):
    """nats-server's MQTT listener. Its sessions and messages of QoS 1 are in JetStream, which writes
    files."""

    name = "nats-server"
    transport: Transport = "mqtt"
    _program = "nats-server"
    _asks_version = "--version"

    def _settings(self, port: int, directory: Path) -> str:
        mqtt = {
            "host": _HOST,
            "port": port,
            "max_ack_pending": 65_535,  # the largest value; 100 by default
            "consumer_memory_storage": True,
        }
        settings = {
            "server_name": "bench",
            "host": _HOST,
            "port": free_port(),
            "jetstream": {"store_dir": str(directory / "jetstream")},
            "mqtt": mqtt,
        }
        return json.dumps(settings)


class NatsCore(_Peer):
    """nats-server with its own protocol: it stores nothing."""

    name = "nats-server"
    transport: Transport = "nats"
    _program = "nats-server"
    _asks_version = "--version"

    def _settings(self, port: int, directory: Path) -> str:
        settings = {
            "server_name": "bench",
            "host": _HOST,
            "port": port,
            "max_pending": 1 << 30,  # bytes that may wait for one client; 64 MiB by default
            "write_deadline": "60s",  # how long a client may read nothing; 10 s by default
        }
        return json.dumps(settings)
