"""What a test needs of the machine. If it is missing, the test is skipped with a message. In CI the test
fails."""

from __future__ import annotations

import os
import shutil

import pytest

_SBIN = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"


def need(is_there: bool, otherwise: str) -> None:
    """Skips the test if it is missing, and says what is missing. Fails in CI."""
    if is_there:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{otherwise}; CI needs it")
    pytest.skip(otherwise)


def need_mosquitto() -> str:
    """The path of mosquitto, which comes with its clients."""
    broker = shutil.which("mosquitto", path=_SBIN)
    need(
        broker is not None and shutil.which("mosquitto_pub") is not None,
        "mosquitto and its clients are not installed",
    )
    assert broker is not None
    return broker


def need_nats() -> str:
    """The path of nats-server."""
    server = shutil.which("nats-server", path=_SBIN)
    need(server is not None, "nats-server is not installed")
    assert server is not None
    return server


def need_tshark() -> str:
    """The path of tshark."""
    program = shutil.which("tshark")
    need(program is not None, "tshark is not installed")
    assert program is not None
    return program


def need_chromium() -> str:
    """The path of a browser."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name)) is not None), None)
    need(found is not None, "no Chromium is installed")
    assert found is not None
    return found


def need_promtool() -> None:
    """The program that checks rules and metrics of Prometheus."""
    need(shutil.which("promtool") is not None, "promtool is not installed (Debian's package prometheus)")
