"""Tokens as passwords, with keys that an identity provider publishes at a URL and replaces."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.gateway.connect.test_web_tokens import Issuer
from tests.gateway.transports.front import Client, Front, front_up
from tests.gateway.transports.test_rotation import connect_with
from tests.gateway_native.wire import CONNACK, DISCONNECT, PUBACK, publish

RULES = "user ann\ntopic readwrite home/#\n"
REFUSED, NOT_AUTHORIZED = 0x86, 0x87


class Provider:
    """An identity provider, as far as a gateway sees it. `keys`: None: it does not answer in order."""

    def __init__(self) -> None:
        self.keys: list[dict[str, object]] | None = []
        self.has_been_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.has_been_asked.set()
        self.may_answer.wait()
        handler.send_response(500 if self.keys is None else 200)
        handler.end_headers()
        handler.wfile.write(json.dumps({"keys": self.keys}).encode())


@contextmanager
def served(provider: Provider) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # The library calls it so.
            provider.answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/keys"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def log_in(front: Front, token: bytes) -> tuple[Client, int]:
    """A client that sends the token as its password, and the code in its CONNACK."""
    client = Client(front.connect("plain"))
    client.send(connect_with("c", "ann", token.decode()))
    return client, client.expect(CONNACK)[1]


def code_of(front: Front, token: bytes) -> int:
    """The code in the CONNACK of a client that is to be refused."""
    client, code = log_in(front, token)
    client.socket.close()
    return code


def token(issuer: Issuer, left_s: int = 3_600) -> bytes:
    return issuer.token(exp=int(time.time()) + left_s)


@pytest.fixture
def provider() -> Provider:
    return Provider()


def test_keys_are_read_from_a_url_and_again_on_sighup(provider: Provider, tmp_path: Path) -> None:
    old, new = Issuer(kid="old"), Issuer("ES256", "new")
    provider.keys = [old.key()]
    with (
        served(provider) as url,
        front_up(tmp_path, {"plain": {}}, rules=RULES, jwt_keys=url, anonymous=False) as front,
    ):
        first, code = log_in(front, token(old))
        assert code == 0
        first.send(publish("home/lamp", b"on", qos=1, packet_id=1))
        first.expect(PUBACK)
        assert code_of(front, token(new)) == REFUSED
        assert code_of(front, token(old, left_s=-100)) == REFUSED

        provider.keys = None
        assert "not_reloaded" in front.reload()
        provider.keys = [old.key(), new.key()]
        assert "not_reloaded" not in front.reload()
        second, code = log_in(front, token(new))
        assert code == 0
        assert first.expect(DISCONNECT)[0] == 0x8E, "the same client id"

        provider.keys = [old.key()]
        front.reload()
        assert second.expect(DISCONNECT)[0] == NOT_AUTHORIZED
        for client in (first, second):
            client.socket.close()


def test_clients_are_served_while_the_provider_takes_its_time(provider: Provider, tmp_path: Path) -> None:
    issuer = Issuer()
    provider.keys = [issuer.key()]
    with (
        served(provider) as url,
        front_up(tmp_path, {"plain": {}}, rules=RULES, jwt_keys=url, anonymous=False) as front,
    ):
        provider.has_been_asked.clear()
        provider.may_answer.clear()
        front.hang_up()
        assert provider.has_been_asked.wait(60)
        client, code = log_in(front, token(issuer))
        assert code == 0
        provider.may_answer.set()
        client.socket.close()
