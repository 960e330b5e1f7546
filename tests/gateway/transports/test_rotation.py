"""SIGHUP with TLS: new certificates, passwords and rules, and who is still admitted stays connected."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from shutil import copy
from typing import Any

import pytest

from hbroker.gateway.access.password_file import hash_password
from tests.gateway.transports.certificates import Authority, Pair
from tests.gateway.transports.front import Client, Front, front_up
from tests.gateway_native.wire import CONNACK, DISCONNECT, PINGRESP, SUBACK, packet, subscribe, text
from tests.product.network import run_hbroker

PINGREQ = b"\xc0\x00"
NOT_AUTHORIZED, QUOTA_EXCEEDED = 0x87, 0x97
RULES = "user ann\ntopic read a/#\n"


class Site:
    """A gateway whose files the test changes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.old, self.new = Authority(directory, "old"), Authority(directory, "new")
        self.server = Pair(str(directory / "host.pem"), str(directory / "host.key"))
        self.clients = directory / "clients.pem"
        self.users, self.rules = directory / "users", directory / "rules"
        self._first = self.old.server()
        self._hashes = f"ann:{hash_password('1')}\nbob:{hash_password('2')}\n"
        self.begin()
        self.front: Front

    def begin(self) -> None:
        """Writes the initial files."""
        self.install(self._first)
        copy(self.old.file, self.clients)
        self.users.write_text(self._hashes)
        self.rules.write_text(RULES)

    def install(self, pair: Pair) -> None:
        """Writes a certificate and its key to the files that the gateway reads."""
        copy(pair.certificate, self.server.certificate)
        copy(pair.key, self.server.key)

    def listeners(self, **limits: int) -> dict[str, dict[str, Any]]:
        tls = self.server.tls
        asks = {**tls, "client_ca": str(self.clients), "client_certificate": "required"}
        return {
            "tls": {"tls": tls, **limits},
            "wss": {"tls": tls, "websocket": "/mqtt"},
            "needs": {"tls": {**asks, "names_user": True}},
        }

    def logged_in(self, authority: Authority, client_id: str, user: str, password: str) -> Client:
        client = Client(self.front.secure("tls", authority.context()))
        client.send(connect_with(client_id, user, password))
        assert client.expect(CONNACK)[1] == 0
        return client


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site"))
    with front_up(site.directory, site.listeners(), rules=RULES, passwords="users") as site.front:
        yield site


@pytest.fixture
def site(running: Site) -> Site:
    """The gateway with its initial files."""
    running.begin()
    running.front.write(running.listeners())
    assert "not_reloaded" not in running.front.reload()
    return running


def connect_with(client_id: str, user: str, password: str) -> bytes:
    body = text("MQTT") + bytes([5, 0xC2, 0, 0, 0]) + text(client_id) + text(user) + text(password)
    return packet(0x10, body)


def is_alive(client: Client) -> bool:
    client.send(PINGREQ)
    client.expect(PINGRESP)
    return True


def test_new_certificates_are_used_and_only_who_is_not_admitted_any_more_is_disconnected(site: Site) -> None:
    front = site.front
    before = site.logged_in(site.old, "before", "ann", "1")
    known = Client(front.secure("needs", site.old.context(site.old.client("device")))).open("known")
    resumed = site.old.context()
    first = front.secure("tls", resumed)
    Client(first).send(connect_with("first", "ann", "1"))
    assert Client(first).expect(CONNACK)[1] == 0

    site.install(site.new.server())
    copy(site.new.file, site.clients)
    assert "reloaded" in front.reload()

    assert is_alive(before)
    # Its authority was dropped.
    assert known.expect(DISCONNECT) == bytes([NOT_AUTHORIZED, 0])
    for listener in ("tls", "wss"):
        with front.secure(listener, site.new.context()) as connection:
            assert connection.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLCertVerificationError):
            front.secure(listener, site.old.context())
    with Client(front.secure("needs", site.new.context(site.new.client("device")))) as client:
        client.open("new")
    with pytest.raises(ssl.SSLError, match="UNKNOWN_CA"):
        front.greet("needs", site.new.context(site.old.client("device")))
    with pytest.raises(
        ssl.SSLCertVerificationError
    ):  # a session ticket from before the change is not valid any more
        resumed.wrap_socket(front.connect("tls"), server_hostname="localhost", session=first.session)
    for client in (before, known, Client(first)):
        client.socket.close()


def test_an_invalid_file_changes_nothing(site: Site) -> None:
    front = site.front
    key = Path(site.server.key).read_bytes()
    copy(site.new.server().key, site.server.key)
    site.users.write_text("")
    result = front.reload()
    assert "not_reloaded" in result
    assert site.server.certificate in result
    client = site.logged_in(site.old, "still", "ann", "1")
    Path(site.server.key).unlink()
    result = front.reload()
    assert "not_reloaded" in result
    assert site.server.key in result
    assert is_alive(client)
    Path(site.server.key).write_bytes(key)
    site.users.write_text(f"ann:{hash_password('1')}\n")
    assert "not_reloaded" not in front.reload()
    client.socket.close()


def test_new_passwords_rules_and_limits_apply_and_connections_stay_open(site: Site) -> None:
    front = site.front
    ann, bob = site.logged_in(site.old, "ann", "ann", "1"), site.logged_in(site.old, "bob", "bob", "2")
    site.users.write_text("\n".join(line for line in site.users.read_text().splitlines() if "ann" in line))
    site.rules.write_text("user ann\ntopic read b/#\n")
    front.write(site.listeners(connections=1))
    assert "not_reloaded" not in front.reload()
    assert bob.read() == (0xE0, bytes([NOT_AUTHORIZED, 0]))
    assert bob.at_end()
    ann.send(subscribe(1, ("a/x", 1), ("b/x", 1)))
    assert ann.expect(SUBACK)[-2:] == bytes([NOT_AUTHORIZED, 1])
    with Client(front.secure("tls", site.old.context())) as third:
        third.send(connect_with("third", "ann", "1"))
        assert third.expect(CONNACK)[1] == QUOTA_EXCEEDED
    assert is_alive(ann)
    for client in (ann, bob):
        client.socket.close()


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ("certificate", "certificate: "),
        ("key", "key: "),
        ("pair", "certificate and key: "),
        ("none", "cannot read"),
    ],
)
def test_a_gateway_with_an_invalid_certificate_or_key_does_not_start(
    site: Site, tmp_path: Path, wrong: str, word: str
) -> None:
    """The gateway names the invalid file, and does not wait for a network first."""
    server = site.new.server()
    certificate, key = Path(server.certificate), Path(server.key)
    if wrong == "none":
        key.unlink()
    elif wrong == "pair":
        copy(site.old.server().key, key)
    else:
        {"certificate": certificate, "key": key}[wrong].write_text("nothing of the kind")
    listener = f"address=127.0.0.1:0,tls.certificate={certificate},tls.key={key}"
    done = run_hbroker("gateway", "--root", "127.0.0.1:1", "--listener", listener)
    assert done.returncode == 2
    named = str(key if wrong in ("key", "none") else certificate)
    assert done.stderr.startswith(f"{named}: {word}"), done.stderr


def test_changed_listeners_wait_for_a_restart(site: Site) -> None:
    site.install(site.new.server())
    listeners = site.listeners()
    del listeners["wss"]
    site.front.write(listeners)
    assert "not_reloaded" not in site.front.reload()
    for listener in ("tls", "wss"):
        site.front.secure(listener, site.new.context()).close()
