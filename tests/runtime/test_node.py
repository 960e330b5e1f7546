"""A node's process over an endpoint that fails."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hbroker._native import Endpoint
from hbroker.config import Address, NodeSettings
from hbroker.runtime import node


class FailingEndpoint:
    """The native endpoint, but for its `fault`."""

    def __init__(self, *arguments: Any) -> None:
        self._endpoint = Endpoint(*arguments)
        self.fault: str | None = None
        self.is_shut = False

    def shutdown(self) -> None:
        self.is_shut = True
        self._endpoint.shutdown()

    def __getattr__(self, name: str) -> object:
        return getattr(self._endpoint, name)


def test_a_node_whose_socket_fails_says_so_and_ends_for_its_supervisor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[FailingEndpoint] = []

    def make(*arguments: Any) -> FailingEndpoint:
        made.append(FailingEndpoint(*arguments))
        return made[0]

    def fail(address: Address) -> None:
        made[0].fault = "worker 0: EIO"

    monkeypatch.setattr(node, "Endpoint", make)
    with caplog.at_level(logging.INFO):
        code = node.run_node(NodeSettings("root", "", ("127.0.0.1", 0)), ready=fail)
    assert code == 1
    assert made[0].is_shut
    failures = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage() for record in failures] == ["endpoint_failed"]
