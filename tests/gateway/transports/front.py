"""A gateway as a user runs it: `hbroker gateway --config FILE`, before a root node."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.gateway_native import wire
from tests.memory import own_bytes
from tests.product.network import PATIENCE, PROJECT, environment, hbroker
from tests.product.node import node_up
from tests.waiting import until

Address = tuple[str, int]


class Client(wire.Raw):
    """An MQTT client, byte for byte, over a connection that is there."""

    def __init__(self, connection: Any, *, level: int = 5) -> None:
        self.level = level
        self.socket = connection

    def open(self, client_id: str, **options: object) -> Client:
        """CONNECT, and a CONNACK of success."""
        super().open(client_id, **options)
        return self


class Front:
    """Made by `front_up`. Its listeners have names; `addresses` is where they are."""

    def __init__(
        self, directory: Path, root: str, listeners: Mapping[str, Mapping[str, Any]], **auth: str | bool
    ) -> None:
        self.root = root
        self._file = directory / "site.yaml"
        self._log = directory / "gateway.log"
        self._auth = auth
        self.write(listeners)
        flags = ["--config", str(self._file), "--name", "gate", "--root", root]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [*hbroker("gateway"), *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=PROJECT,
                env=environment(),
            )
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "the gateway is not ready"
        ready = self._process.stdout.readline()
        assert ready.startswith("ready "), self._log.read_text()
        self.urls = dict(zip(listeners, ready.split()[2:], strict=True))
        self.addresses = {name: _address(url) for name, url in self.urls.items()}

    def write(self, listeners: Mapping[str, Mapping[str, Any]]) -> None:
        """Its file, with other listeners."""
        entries = [{"address": "127.0.0.1:0", **listener} for listener in listeners.values()]
        self._file.write_text(
            yaml.safe_dump(
                {
                    "nodes": [{"name": "root", "subtree": "", "listen": self.root}],
                    "gateways": [{"name": "gate", "workers": 2, "listeners": entries}],
                    **({"auth": self._auth} if self._auth else {}),
                }
            )
        )

    def reload(self) -> str:
        """SIGHUP; returns the line of the log that says what came of it."""
        before = len(self._results())
        os.kill(self._process.pid, signal.SIGHUP)
        until(lambda: len(self._results()) > before, "a word on SIGHUP", PATIENCE)
        return self._results()[-1]

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def connect(self, listener: str) -> socket.socket:
        """A connection, over TCP alone."""
        return socket.create_connection(self.addresses[listener], PATIENCE)

    def secure(self, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
        """A connection over TLS."""
        connection = self.connect(listener)
        try:
            return context.wrap_socket(connection, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise

    def greet(self, listener: str, context: ssl.SSLContext) -> None:
        """A handshake, and CONNECT. With TLS 1.3 a client is done before the server has read its certificate:
        what becomes of it comes with the first answer."""
        with Client(self.secure(listener, context)) as client:
            client.open("greeting")

    def clients(self) -> dict[str, dict[str, Any]]:
        """What `hbroker clients --json` tells, by client id."""
        command = [*hbroker("clients"), "--root", self.root, "--json"]
        done = subprocess.run(command, capture_output=True, check=True, env=environment(), cwd=PROJECT)
        return {client["client"]: client for client in json.loads(done.stdout)["clients"]}

    def own_bytes(self) -> int:
        """Bytes of memory that it holds."""
        return own_bytes(self._process.pid)

    def close(self) -> None:
        """Ends it; it ends in order."""
        self._process.send_signal(signal.SIGTERM)
        try:
            assert self._process.wait(PATIENCE) == 0
        finally:
            self._process.kill()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _results(self) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if "reloaded" in line]


def flood(connection: socket.socket, piece: bytes, most: int) -> None:
    """Sends so many bytes without reading. Raises OSError where it is not let."""
    for _ in range(most // len(piece)):
        connection.sendall(piece)


@contextmanager
def front_up(
    directory: Path, listeners: Mapping[str, Mapping[str, Any]], *, rules: str, **auth: str | bool
) -> Iterator[Front]:
    """A root and a gateway that takes clients. `rules`: who may read and write what; `auth`: what else the
    topology file says of that."""
    (directory / "rules").write_text(rules)
    auth["acl"] = "rules"
    with node_up() as node:
        front = Front(directory, node.root, listeners, **auth)
        try:
            yield front
        finally:
            front.close()


def _address(url: str) -> Address:
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    return host.strip("[]"), int(port)
