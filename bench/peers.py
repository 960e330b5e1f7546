"""Other brokers, as the system's packages have them.

None is handicapped: each gets tcp_nodelay (which nats-server sets by itself) and queues without a limit, or
as long as it allows, and keeps on disk only what it keeps nowhere else.
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

from bench.brokers import Started, wait_for_port
from bench.secure import issue
from hbroker.bench.launching import NoAnswer, free_port, launch
from hbroker.bench.plan import Transport

__all__ = ["Mosquitto", "Nats", "NatsCore"]

_HOST: Final = "127.0.0.1"


class _Peer(ABC):
    """A program that has its settings in a file, and listens at a port that the file names."""

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
        directory.chmod(0o755)  # started by root, it may become another user
        with launch(directory, [program, "-c", str(settings)]) as process:
            wait_for_port(process, address)
            return process, address

    @abstractmethod
    def _settings(self, port: int, directory: Path) -> str:
        """The text of its file."""

    def _path(self) -> str | None:
        path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))
        return shutil.which(self._program, path=path)


class _MqttPeer(_Peer):
    """Its clients speak MQTT."""

    transport: Transport = "mqtt"

    def __init__(self, *, tls: bool = False) -> None:
        self._tls = tls


class Mosquitto(_MqttPeer):
    """Eclipse Mosquitto."""

    name = "mosquitto"
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

    def _settings(self, port: int, directory: Path) -> str:
        secured: tuple[str, ...] = ()
        if self._tls:
            pair = issue(directory)
            secured = (f"certfile {pair.certificate}", f"keyfile {pair.key}")
        return "\n".join((f"listener {port} {_HOST}", *secured, *self._SETTINGS, ""))


class Nats(_MqttPeer):
    """nats-server's MQTT listener. Its sessions and messages of QoS 1 are JetStream's, which are files."""

    name = "nats-server"
    _program = "nats-server"
    _asks_version = "--version"

    def _settings(self, port: int, directory: Path) -> str:
        mqtt = {
            "host": _HOST,
            "port": port,
            "max_ack_pending": 65_535,  # the most; 100 by default
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
    """nats-server, by its own protocol: nothing is kept."""

    name = "nats-server"
    transport: Transport = "nats"
    _program = "nats-server"
    _asks_version = "--version"

    def _settings(self, port: int, directory: Path) -> str:
        settings = {
            "server_name": "bench",
            "host": _HOST,
            "port": port,
            "max_pending": 1 << 30,  # bytes that wait for one client; 64 MiB by default
            "write_deadline": "60s",  # so long a client may take none; 10 s by default
        }
        return json.dumps(settings)
