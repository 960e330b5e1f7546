"""Processes that put load on a network: handles of `tests.product.pacer` and `.readers`."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from types import TracebackType
from typing import Any, Self

from tests.product.network import PATIENCE, PROJECT, environment

__all__ = ["Load", "pacer", "readers"]


class Load:
    """A program that works until its input ends, and then prints its measurements. A context manager."""

    def __init__(self, module: str, **flags: object) -> None:
        given = [
            part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", module, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=PROJECT,
            env=environment(),
        )

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], PATIENCE)[0], "the load is not ready"
        assert self.process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()

    def tell(self, command: str) -> None:
        """Writes to the program's input."""
        assert self.process.stdin is not None
        self.process.stdin.write(command)
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Ends the program's input. Returns its measurements."""
        output, _ = self.process.communicate(timeout=2 * PATIENCE)
        assert self.process.returncode == 0
        measurements: dict[str, Any] = json.loads(output)
        return measurements


def pacer(root: str, topic: str, qos: int, rate: int) -> Load:
    """A publisher of `rate` messages per second."""
    return Load("tests.product.pacer", root=root, topic=topic, qos=qos, rate=rate)


def readers(
    root: str,
    filter: str,
    qos: int,
    count: int,
    name: str,
    *,
    queue_messages: int = 0,
    receive_messages: int = 4_096,
) -> Load:
    """`count` subscribers. `queue_messages`: the bound of each queue. `receive_messages`: how many
    messages each takes without having acknowledged them."""
    return Load(
        "tests.product.readers",
        root=root,
        filter=filter,
        qos=qos,
        readers=count,
        name=name,
        queue_messages=queue_messages,
        receive_messages=receive_messages,
    )
