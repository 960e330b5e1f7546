"""mosquitto itself, with a configuration, on a free port."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import need_mosquitto
from tests.waiting import until

PATIENCE_S = 30.0


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


def is_open(port: int) -> bool:
    """Whether somebody listens on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Mosquitto:
    """A mosquitto that can be killed and started again, with what it keeps on disk."""

    def __init__(self, directory: Path, more: str = "", port: int | None = None) -> None:
        self.port = port or free_port()
        self._log = directory / "mosquitto.log"
        self._file = directory / "broker.conf"
        self._file.write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous true\nlog_type all\nuser root\n{more}"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it. Returns once it listens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen([need_mosquitto(), "-c", self._file], stderr=log)
        until(lambda: is_open(self.port), "mosquitto", PATIENCE_S)

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Ends it in order: it stores all that it keeps."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    @property
    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()


@contextmanager
def mosquitto_with(directory: Path, more: str) -> Iterator[int]:
    """A running mosquitto with these further lines. Its port."""
    broker = Mosquitto(directory, more)
    broker.start()
    try:
        yield broker.port
    finally:
        broker.kill()
