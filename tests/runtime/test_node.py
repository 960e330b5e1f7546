"""A node's process: a failing endpoint, and SIGHUP."""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hbroker._native import Endpoint, Engine
from hbroker.addresses import Address
from hbroker.config import NodeSettings, SecuritySettings
from hbroker.identity.authority import Authority
from hbroker.runtime.node import process


class FailingEndpoint:
    """The native endpoint, with a `fault` that the test sets."""

    def __init__(self, *arguments: Any) -> None:
        self._endpoint = Endpoint(*arguments)
        self.fault: str | None = None
        self.is_shut = False

    def shutdown(self) -> None:
        self.is_shut = True
        self._endpoint.shutdown()

    def __getattr__(self, name: str) -> object:
        return getattr(self._endpoint, name)


def test_a_node_whose_socket_fails_logs_it_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[FailingEndpoint] = []

    def make(*arguments: Any) -> FailingEndpoint:
        made.append(FailingEndpoint(*arguments))
        return made[0]

    def fail(address: Address) -> None:
        made[0].fault = "worker 0: EIO"

    monkeypatch.setattr(process, "Endpoint", make)
    with caplog.at_level(logging.INFO):
        code = process.run_node(NodeSettings("root", "", ("127.0.0.1", 0)), on_ready=fail)
    assert code == 1
    assert made[0].is_shut
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failures] == ["endpoint_failed"]


def test_sighup_reloads_the_settings_and_does_not_end_a_node(caplog: pytest.LogCaptureFixture) -> None:
    """The first SIGHUP finds a changed setting, the second an unreadable file, and the third nothing new."""
    settings = NodeSettings("root", "", ("127.0.0.1", 0))
    reads = 0

    def reload() -> NodeSettings:
        nonlocal reads
        reads += 1
        if reads == 1:
            return replace(settings, workers=2)
        if reads == 2:
            raise OSError("no such file")
        return settings

    class LogCounter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() in ("reloaded", "not_reloaded"):
                logged.append((record.getMessage(), record.levelname))
                os.kill(os.getpid(), signal.SIGTERM if len(logged) == 3 else signal.SIGHUP)

    logged: list[tuple[str, str]] = []
    logger = logging.getLogger("hbroker.node")
    logger.addHandler(handler := LogCounter())
    try:
        with caplog.at_level(logging.INFO):
            code = process.run_node(
                settings, on_ready=lambda address: os.kill(os.getpid(), signal.SIGHUP), reload=reload
            )
    finally:
        logger.removeHandler(handler)
    assert code == 0
    assert logged == [("not_reloaded", "WARNING"), ("not_reloaded", "ERROR"), ("reloaded", "INFO")]


def test_the_next_run_of_a_node_has_its_key_for_tokens_and_resets(tmp_path: Path) -> None:
    """Peers believe the reset that says that their keys are gone, and do not wait until a node is silent."""
    authority = Authority.create("house", time.time())
    authority.save(tmp_path)
    for name in ("kitchen", "attic"):
        authority.issue(name, [""], time.time()).save(tmp_path)
    security = SecuritySettings(str(tmp_path / "authority.crt"), str(tmp_path))

    def tokens(settings: NodeSettings) -> list[bytes]:
        runs = (Engine(process.core_config(settings, run)) for run in (1, 2))
        return [run.token_for(("127.0.0.1", 1)) for run in runs]

    kitchen = NodeSettings("kitchen", "", ("127.0.0.1", 0), security=security)
    first, second = tokens(kitchen)
    assert first == second
    assert first not in tokens(replace(kitchen, name="attic"))
    first, second = tokens(NodeSettings("kitchen", "", ("127.0.0.1", 0)))
    assert first != second, "without keys of its own it draws one for each run"
