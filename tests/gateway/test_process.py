"""A gateway's process in a real network, and the commands that query it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hbroker import cli
from hbroker.cli.gateways.gateway import gateway
from hbroker.config import AccessSettings, GatewaySettings, ListenerSettings
from hbroker.errors import ConfigErrors
from hbroker.gateway.access.password_file import hash_password
from hbroker.gateway.native_api import ClosedEvent, ConnectEvent, SubscribeEvent, SubscribeOptions
from hbroker.runtime import logs
from hbroker.runtime.gateway import process
from hbroker.runtime.gateway.process import _Process
from hbroker.runtime.launcher import ports
from tests.gateway.endpoint_gateway import EndpointShell
from tests.product.node import node_up
from tests.waiting import until

KEY = b"k" * 32
PATIENCE_S = 60.0


class Running:
    """A gateway in a thread with an event loop of its own. Signals are called as handlers."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.urls: tuple[str, ...] = ()
        self.code: int | None = None
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._loop.add_signal_handler = self._handlers.__setitem__  # type: ignore[method-assign,assignment]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: bool(self.urls) or self.code is not None, "it takes clients", PATIENCE_S)
        self.shell = EndpointShell.last

    def signal(self, number: int) -> None:
        self._loop.call_soon_threadsafe(self._handlers[number])

    def stop(self) -> int | None:
        if self.code is None:
            self.signal(signal.SIGTERM)
        self._thread.join(PATIENCE_S)
        return self.code

    def connect(self, number: int, client: str, **fields: object) -> None:
        event = ConnectEvent(number, 0, ("192.0.2.1", 5), 5, client, **fields)  # type: ignore[arg-type]
        self.shell.tell(event)
        until(lambda: number in self.shell.accepted | self.shell.refused, "a CONNACK", PATIENCE_S)

    def _run(self) -> None:
        process = _Process(self._settings, self._set_urls, "0", "", None)
        self.code = self._loop.run_until_complete(process.run())
        self._loop.close()

    def _set_urls(self, urls: tuple[str, ...]) -> None:
        self.urls = urls


@pytest.fixture
def root(key_file: str) -> Iterator[str]:
    with node_up("--join-key-file", key_file) as node:
        yield node.root


@pytest.fixture
def start(root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Running]]:
    monkeypatch.setattr(process, "NativeGateway", EndpointShell)
    host, _, port = root.rpartition(":")
    started: list[Running] = []

    def begin(name: str = "gate", **fields: object) -> Running:
        listener = ListenerSettings(("127.0.0.1", 0))
        fields.setdefault("join_key", KEY)
        settings = GatewaySettings(name, (host, int(port)), (listener,), **fields)  # type: ignore[arg-type]
        started.append(Running(settings))
        return started[-1]

    yield begin
    for one in started:
        assert one.stop() == 0


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "key").write_bytes(KEY)
    return str(tmp_path / "key")


def test_clients_are_listed_and_kicked_by_the_commands(
    root: str, start: Callable[..., Running], key_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = start("one"), start("two")
    one.connect(1, "ann", username="ann", clean_start=False, session_expiry_s=60)
    one.shell.tell(SubscribeEvent(1, 1, (("home/#", SubscribeOptions(1)),)))
    until(lambda: one.shell.subacks.get(1) == [1], "a SUBACK", PATIENCE_S)
    two.connect(2, "bob")
    ask = ["--root", root, "--join-key-file", key_file, "--timeout", "10"]

    assert cli.main(["clients", "--json", *ask]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(c["client"], c["gateway"], c["subscriptions"]) for c in told["clients"]] == [
        ("ann", "one", 1),
        ("bob", "two", 0),
    ]
    assert cli.main(["clients", *ask]) == 0
    assert "ann" in capsys.readouterr().out

    assert cli.main(["kick", "ann", *ask]) == 0
    assert "from one" in capsys.readouterr().out
    assert one.shell.closed == {1: 0x98}
    assert cli.main(["kick", "nobody", *ask, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["kicked"] is False
    assert cli.main(["clients", "--json", *ask]) == 0
    states = {c["client"]: c["state"] for c in json.loads(capsys.readouterr().out)["clients"]}
    assert states == {"ann": "offline", "bob": "connected"}


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "have a join key, and none was given; give --join-key-file"),
        (
            ("--join-key-file", "wrong"),
            "wrong: this is not the join key that the gateways of this network have",
        ),
    ],
)
@pytest.mark.parametrize("command", [("clients",), ("clients", "--json"), ("kick", "ann")])
def test_the_commands_fail_without_the_join_key(
    root: str,
    start: Callable[..., Running],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    flags: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong").write_bytes(KEY.swapcase())
    one = start("one")
    one.connect(1, "ann")
    assert cli.main([*command, "--root", root, *flags, "--timeout", "10"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert told in said.err
    assert one.shell.closed == {}


def test_a_gateway_with_another_key_is_reported(
    root: str, start: Callable[..., Running], key_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one").connect(1, "ann")
    start("two", join_key=KEY.swapcase())
    asking = ["--root", root, "--join-key-file", key_file, "--timeout", "10"]
    assert cli.main(["clients", *asking]) == 3
    said = capsys.readouterr()
    assert "ann" in said.out
    assert "two has another join key" in said.err
    assert cli.main(["kick", "nobody", *asking]) == 3
    assert "two has another join key" in capsys.readouterr().err


def test_sighup_reloads_the_passwords(start: Callable[..., Running], tmp_path: Path) -> None:
    users, rules = tmp_path / "users", tmp_path / "rules"
    users.write_text(f"ann:{hash_password('1')}\nbob:{hash_password('2')}\n")
    rules.write_text("user ann\ntopic read home/#\n")
    one = start(access=AccessSettings(passwords=str(users), acl=str(rules)))
    one.connect(1, "a", username="ann", password=b"1")
    one.connect(2, "b", username="bob", password=b"2")
    one.connect(3, "c", username="bob", password=b"1")
    one.connect(4, "d")
    assert one.shell.refused == {3: 0x86, 4: 0x87}

    users.write_text("bob:in plain text\n")
    one.signal(signal.SIGHUP)
    one.connect(5, "e", username="ann", password=b"1")
    assert 5 in one.shell.accepted, "a file that is wrong changes nothing"

    users.write_text(f"ann:{users.read_text()}")
    users.write_text(f"bob:{hash_password('3')}\n")
    one.signal(signal.SIGHUP)
    until(lambda: {1, 2, 5} <= one.shell.closed.keys(), "those not admitted any more are gone", PATIENCE_S)
    one.connect(6, "b", username="bob", password=b"3")
    assert 6 in one.shell.accepted


def test_a_gateway_that_stops_disconnects_its_clients(start: Callable[..., Running]) -> None:
    one = start()
    one.connect(1, "ann")
    assert one.stop() == 0
    assert one.shell.closed == {1: 0x8B}
    assert one.shell.is_shut_down


def test_a_failed_core_ends_the_process(
    root: str, monkeypatch: pytest.MonkeyPatch, start: Callable[..., Running]
) -> None:
    one = start("other")
    one.shell.fault = "its socket died"
    one.shell.tell(SubscribeEvent(9, 1, ()))
    until(lambda: one.code == 1, "it has ended", PATIENCE_S)
    one.code = 0  # which the fixture expects of every gateway


def test_a_port_in_use_is_reported_unless_the_listener_may_take_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()
        assert not ports.is_tcp_free(address)
        with pytest.raises(ports.PortTaken, match="in use by another process"):
            ports.require_listeners([ListenerSettings(address)])
        (given,) = ports.require_listeners([ListenerSettings(address, gives_way=True)])
        assert given.address == ("127.0.0.1", 0)
    assert ports.is_tcp_free(address)


class TestFlags:
    """The settings of `hbroker gateway`, without a gateway."""

    def settings(self, *arguments: str) -> GatewaySettings:
        given: list[GatewaySettings] = []

        def run_gateway(settings: GatewaySettings, **_: object) -> int:
            given.append(settings)
            return 0

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(process, "run_gateway", run_gateway)
            patch.setattr(logs, "configure", lambda **_: None)
            assert gateway.main(arguments, standalone_mode=False) == 0
        return given[0]

    def test_only_the_address_of_the_root_is_required(self) -> None:
        settings = self.settings("--root", "192.0.2.1:7700")
        assert settings.root == ("192.0.2.1", 7700)
        assert settings.name.startswith("gateway-")
        assert [listener.url for listener in settings.listeners] == [
            "mqtt://127.0.0.1:1883",
            "ws://127.0.0.1:8083/mqtt",
        ]

    def test_the_flags_set_what_the_configuration_file_sets(self, key_file: str) -> None:
        settings = self.settings(
            *("--root", "192.0.2.1:7700", "--name", "g", "--workers", "3", "--in-flight", "20"),
            *("--listener", "127.0.0.1:0", "--anonymous", "false", "--join-key-file", key_file),
            *("--listener", "address=127.0.0.1:8883,tls.certificate=c,tls.key=k,connections=9"),
            *("--passwords", "users", "--listen", "127.0.0.1:0", "--server-reference", "x:1"),
        )
        first, second = settings.listeners
        assert first.address == ("127.0.0.1", 0)
        assert second.tls is not None
        assert (second.tls.certificate, second.connections) == ("c", 9)
        assert (settings.workers, settings.limits.in_flight, settings.join_key) == (3, 20, KEY)
        assert settings.access == AccessSettings("users", "", anonymous=False)

    def test_a_listener_for_other_hosts_requires_authentication_or_explicit_anonymous_access(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        listener = ("--root", "192.0.2.1:7700", "--listener", "192.0.2.7:1883")
        assert cli.main(["gateway", *listener]) == 2
        assert "192.0.2.7:1883 takes everybody who reaches it" in capsys.readouterr().err
        assert self.settings(*listener, "--passwords", "users").access.passwords == "users"
        assert self.settings(*listener, "--anonymous", "true").access.anonymous
        assert self.settings(*listener, "--policy", "site:Policy").listeners[0].address[0] == "192.0.2.7"

    def test_all_errors_are_reported_at_once(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(ConfigErrors) as caught:
            self.settings("--root", "x", "--name", "/", "--listener", "here", "--in-flight", "many")
        assert len(caught.value.errors) == 4

    def test_a_gateway_of_the_configuration_file_is_chosen_by_its_name(self, tmp_path: Path) -> None:
        file = tmp_path / "site.yaml"
        file.write_text(
            "security: off\n"
            'nodes: [{name: root, subtree: "", listen: "127.0.0.1:7700"}]\n'
            'gateways: [{name: g, listeners: [{address: "127.0.0.1:1"}]}]\n'
        )
        assert self.settings("--config", str(file), "--name", "g").root == ("127.0.0.1", 7700)
        moved = self.settings("--config", str(file), "--name", "g", "--root", "192.0.2.9:1")
        assert moved.root == ("192.0.2.9", 1)
        assert cli.main(["gateway", "--config", str(file), "--name", "h"]) == 2
        assert cli.main(["gateway", "--config", str(file), "--name", "g", "--workers", "2"]) == 2


def test_passwd_sets_and_removes_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from io import StringIO

    from hbroker.gateway.access.password_file import Passwords, parse
    from hbroker.runtime.gateway.policies import VerifiedPasswordCache

    file = tmp_path / "users"
    for user, password in (("ann", "1"), ("bob", "2"), ("ann", "3")):
        monkeypatch.setattr("sys.stdin", StringIO(f"{password}\n"))
        assert cli.main(["passwd", str(file), user]) == 0
    assert os.stat(file).st_mode & 0o777 == 0o600
    users = Passwords(parse(file.read_text(), "users"), VerifiedPasswordCache(b""))
    assert users.verify("ann", b"3")
    assert cli.main(["passwd", "-D", str(file), "bob"]) == 0
    assert list(parse(file.read_text(), "users")) == ["ann"]
    assert cli.main(["passwd", "-D", str(file), "bob"]) == 1
    monkeypatch.setattr("sys.stdin", StringIO("\n"))
    assert cli.main(["passwd", str(file), "eve"]) == 1
    assert cli.main(["passwd", str(file), "a:b"]) == 1
    file.write_text("ann:plain\n")
    assert cli.main(["passwd", str(file), "eve"]) == 2
    assert "plain text" in capsys.readouterr().err


def test_connects_disconnects_and_refusals_are_logged_without_passwords(
    start: Callable[..., Running], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "hbroker.gateway")
    passwords = tmp_path / "passwords"
    passwords.write_text(f"alice:{hash_password('secret')}\n")
    running = start(access=AccessSettings(passwords=str(passwords)))
    running.connect(1, "lamp", username="alice", password=b"secret")
    running.connect(2, "thief", username="alice", password=b"open sesame")
    running.shell.tell(ClosedEvent(1, "keep_alive", 0x8D))
    until(lambda: "client_disconnected" in caplog.messages, "its end", PATIENCE_S)
    told = {
        record.getMessage(): (record.levelname, vars(record)["hbroker_fields"]) for record in caplog.records
    }
    address = "192.0.2.1:5"
    assert told["client_connected"] == (
        "DEBUG",
        {"client": "lamp", "address": address, "version": 5, "user": "alice", "session_present": False},
    )
    level, refused = told["client_refused"]
    assert (level, refused["client"], refused["address"], refused["reason"]) == (
        "WARNING",
        "thief",
        address,
        "0x86",
    )
    gone = {"client": "lamp", "address": address, "cause": "keep_alive", "reason": "0x8D"}
    assert told["client_disconnected"] == ("DEBUG", gone)
    text = str([vars(record) for record in caplog.records])
    assert "secret" not in text
    assert "sesame" not in text
