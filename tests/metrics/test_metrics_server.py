"""The metrics of one process over HTTP: what scrapers get, and what happens to those who misbehave."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from hbroker.runtime import metrics_server
from hbroker.runtime.metrics_server import MetricsServer
from tests.product.network import PATIENCE


@asynccontextmanager
async def serving(text: bytes = b"a 1\n") -> AsyncIterator[str]:
    """A server of metrics, and its URL."""
    server = MetricsServer(("127.0.0.1", 0), lambda accept: (text + accept.encode(), "text/plain"))
    try:
        host, port = server.address
        yield f"http://{host}:{port}"
    finally:
        await server.stop()


async def get(url: str, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return await client.get(url, headers=headers)


async def test_a_scraper_gets_what_it_accepts_and_nothing_else_is_there() -> None:
    async with serving() as url:
        answer = await get(f"{url}/metrics", Accept="x/y")
        assert (answer.status_code, answer.text) == (200, "a 1\nx/y")
        assert (await get(f"{url}/metrics?x=1", Accept="")).text == "a 1\n"
        assert (await get(f"{url}/")).status_code == 404
        async with httpx.AsyncClient() as client:
            assert (await client.post(f"{url}/metrics")).status_code == 501


async def test_the_metrics_are_read_in_the_event_loop() -> None:
    loop = asyncio.get_running_loop()

    def render(_: str) -> tuple[bytes, str]:
        assert asyncio.get_running_loop() is loop
        return b"", "text/plain"

    server = MetricsServer(("127.0.0.1", 0), render)
    answer = await get(f"http://127.0.0.1:{server.address[1]}/metrics")
    assert answer.status_code == 200
    await server.stop()


async def test_a_defect_of_the_metrics_is_an_answer() -> None:
    def render(_: str) -> tuple[bytes, str]:
        raise ZeroDivisionError("once")

    server = MetricsServer(("127.0.0.1", 0), render)
    answer = await get(f"http://127.0.0.1:{server.address[1]}/metrics")
    assert (answer.status_code, "ZeroDivisionError" in answer.text) == (503, True)
    await server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nX: "])
async def test_who_says_little_or_nothing_delays_the_next_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(metrics_server, "TIMEOUT_S", 0.3)
    async with serving() as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as silent:
            silent.sendall(sent)
            began = time.monotonic()
            assert (await get(f"{url}/metrics")).status_code == 200
            assert time.monotonic() - began < PATIENCE
        assert (await get(f"{url}/metrics")).status_code == 200


async def test_bytes_that_are_no_http_harm_nobody() -> None:
    async with serving() as url:
        host, _, port = url.removeprefix("http://").partition(":")
        for sent in (b"\x00\xff" * 100 + b"\r\n\r\n", b"GET\r\n\r\n", b"A" * 100_000):
            with socket.create_connection((host, int(port))) as other:
                other.sendall(sent)
        assert (await get(f"{url}/metrics")).status_code == 200
