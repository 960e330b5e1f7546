"""A gateway as a user runs it: `hbroker gateway --config FILE`, with a root node."""

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
from tests.product.network import PATIENCE, PROJECT, environment, hbroker, run_hbroker
from tests.product.node import node_up
from tests.waiting import until

Address = tuple[str, int]


class Client(wire.Raw):
    """An MQTT client, byte for byte, over an open connection."""

    def __init__(self, connection: Any, *, level: int = 5) -> None:
        self.level = level
        self.socket = connection

    def open(self, client_id: str, **options: object) -> Client:
        """Sends CONNECT, and expects a CONNACK of success."""
        super().open(client_id, **options)
        return self


class Front:
    """A gateway that `front_up` started. `addresses`: its listeners by name."""

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
        """Writes the configuration file, with other listeners."""
        entries = [{"address": "127.0.0.1:0", **listener} for listener in listeners.values()]
        self._file.write_text(
            yaml.safe_dump(
                {
                    "nodes": [{"name": "root", "subtree": "", "listen": self.root}],
                    "gateways": [{"name": "gate", "workers": 2, "listeners": entries}],
                    "security": False,  # as of the root, which `hbroker node` started
                    **({"auth": self._auth} if self._auth else {}),
                }
            )
        )

    def reload(self) -> str:
        """Sends SIGHUP. Returns the log line with the result."""
        before = len(self._results())
        self.hang_up()
        until(lambda: len(self._results()) > before, "a word on SIGHUP", PATIENCE)
        return self._results()[-1]

    def hang_up(self) -> None:
        """Sends SIGHUP."""
        os.kill(self._process.pid, signal.SIGHUP)

    def log(self) -> str:
        """The log so far."""
        return self._log.read_text()

    def connect(self, listener: str) -> socket.socket:
        """Opens a TCP connection."""
        return socket.create_connection(self.addresses[listener], PATIENCE)

    def secure(self, listener: str, context: ssl.SSLContext) -> ssl.SSLSocket:
        """Opens a TLS connection."""
        connection = self.connect(listener)
        try:
            return context.wrap_socket(connection, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise

    def greet(self, listener: str, context: ssl.SSLContext) -> None:
        """A TLS handshake, and CONNECT. With TLS 1.3 the client is done before the server has read its
        certificate. So a refusal arrives instead of the first answer."""
        with Client(self.secure(listener, context)) as client:
            client.open("greeting")

    def clients(self) -> dict[str, dict[str, Any]]:
        """The clients that `hbroker clients --json` lists, by client id."""
        done = run_hbroker("clients", "--root", self.root, "--json", check=True)
        return {client["client"]: client for client in json.loads(done.stdout)["clients"]}

    def own_bytes(self) -> int:
        """The memory of the gateway, in bytes."""
        return own_bytes(self._process.pid)

    def close(self) -> None:
        """Stops the gateway, and checks that it ends in order."""
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
    """Sends up to `most` bytes without reading. Raises OSError if the peer closes the connection."""
    for _ in range(most // len(piece)):
        connection.sendall(piece)


@contextmanager
def front_up(
    directory: Path, listeners: Mapping[str, Mapping[str, Any]], *, rules: str, **auth: str | bool
) -> Iterator[Front]:
    """A root, and a gateway that accepts clients. `rules`: the access rules. `auth`: further settings of
    `auth` in the topology file."""
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
