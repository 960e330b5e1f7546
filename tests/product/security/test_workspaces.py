"""Workspaces in a network that requires tokens: real nodes, native clients, stock MQTT clients."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import hbroker
from hbroker import ConfigError, InvalidTopic, Refused, Will, sync
from hbroker.identity.authority import Authority
from hbroker.protocol.packets import Reason
from hbroker.rights.block import Block
from hbroker.rights.rights import BlockRights
from hbroker.rights.token import create
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, Network, network_of, run_hbroker
from tests.waiting import until

FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: acme-home, subtree: $workspace/acme/home, listen: "127.0.0.1:7701"}
  - {name: home, subtree: home, listen: "127.0.0.1:7702"}
gateways:
  - name: gateway
    listeners:
      - {address: "127.0.0.1:1883"}
      - {address: "127.0.0.1:1884", workspace: acme}
      - {address: "127.0.0.1:1885", workspace: other}
workspaces:
  small: {sessions: 2, subscriptions: 3, messages_per_second: 5}
"""
SPACES = (None, "acme", "other")
TOPICS = ("home/oven", "attic")


class Site:
    """A running network, and a token for all topics of each workspace."""

    def __init__(self, network: Network, root: str, folder: Path) -> None:
        self.network, self.root, self._folder = network, root, folder
        state = network.directory / "house"
        self.authority = state / "authority" / "authority.crt"
        self._key = Authority.load(state / "authority").key

    def token(self, workspace: str | None, client: str | None = None, **rights: Any) -> Path:
        rights = rights or {"read": ("#",), "write": ("#",), "retain": True, "share": True}
        block = Block(BlockRights(**rights), client, int(time.time()) + 3_600, workspace)
        file = self._folder / f"{len(list(self._folder.iterdir()))}.token"
        file.write_text(create(self._key, block))
        return file

    def connect(self, workspace: str | None, **profile: Any) -> sync.Client:
        return self.with_token(self.token(workspace), **profile)

    def with_token(self, token: Path, **profile: Any) -> sync.Client:
        return sync.connect(self.root, authority=self.authority, token=token, **profile)

    def port(self, workspace: str | None) -> str:
        listeners = self.network.state()["gateways"][0]["listeners"]
        return str(listeners[SPACES.index(workspace)].rpartition(":")[2])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("workspaces")
    (folder / "held").mkdir()
    with network_of(FILE, folder) as (network, root):
        yield Site(network, root, folder / "held")


@contextmanager
def refused(reason: int = Reason.REASON_NOT_AUTHORIZED) -> Iterator[None]:
    with pytest.raises(Refused) as refusal:
        yield
    assert refusal.value.reason == reason


def texts(messages: sync.Subscription, *, takes_retained: bool = False) -> list[tuple[str, str]]:
    """The topics and payloads up to the message `end`, without it."""
    found: list[tuple[str, str]] = []
    while True:
        message = messages.next(timeout=PATIENCE)
        assert message is not None, found
        if message.payload == b"end":
            return found
        if not message.retained or takes_retained:
            found.append((message.topic, message.payload.decode()))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_equal_topics_of_two_workspaces_never_meet(site: Site, qos: int) -> None:
    with ExitStack() as stack:
        clients = {space: stack.enter_context(site.connect(space)) for space in SPACES}
        all_read = {
            (space, filter): stack.enter_context(clients[space].subscribe(filter, qos=qos))
            for space in SPACES
            for filter in ("#", "+/oven", "$share/group/#")
        }
        for space, client in clients.items():
            for topic in TOPICS:
                client.publish(topic, f"{space} {topic}", qos=qos)
            client.publish_many([(topic, f"{space} again") for topic in TOPICS], qos=qos)
        for space, client in clients.items():
            for topic in TOPICS:  # The last of each topic: nothing can come behind it.
                client.publish(topic, f"{space} end", qos=1)
        for (space, filter), messages in all_read.items():
            wanted = TOPICS if "#" in filter else TOPICS[:1]
            found = [messages.next(timeout=PATIENCE) for _ in range(3 * len(wanted))]
            assert sorted((each.topic, each.payload.decode()) for each in found if each) == sorted(
                (topic, f"{space} {text}") for topic in wanted for text in (topic, "again", "end")
            ), (space, filter)
            assert messages.next(timeout=0) is None


def test_retained_messages_and_wills_stay_in_their_workspace(site: Site) -> None:
    with ExitStack() as stack:
        clients = {space: stack.enter_context(site.connect(space)) for space in SPACES}
        for space, client in clients.items():
            client.publish("kept/x", f"{space}", qos=1, retain=True)
        wills = {space: stack.enter_context(c.subscribe("wills/#", qos=1)) for space, c in clients.items()}
        for space in SPACES:
            break_off(site, site.token(space), f"{space}")
        for space, client in clients.items():
            with client.subscribe("kept/#", "end", qos=1) as messages:
                client.publish("end", "end", qos=1)
                assert texts(messages, takes_retained=True) == [("kept/x", f"{space}")]
            message = wills[space].next(timeout=PATIENCE)
            assert message is not None
            assert (message.topic, message.payload) == ("wills/one", f"{space}".encode())
            assert wills[space].next(timeout=0) is None


def break_off(site: Site, token: Path, text: str) -> None:
    """Kills the process of a client with this token and a will."""
    code = (
        "import sys, time, hbroker\n"
        "root, authority, token, text = sys.argv[1:]\n"
        "will = hbroker.Will('wills/one', text, qos=1)\n"
        "client = hbroker.sync.connect(root, authority=authority, token=token, will=will)\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", code, site.root, str(site.authority), str(token), text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.kill()


def test_sessions_of_equal_client_ids_and_keys_are_different_ones(site: Site) -> None:
    profile = {"client_id": "reader", "session_expiry": 600.0, "session_key": "secret"}
    for space in SPACES:
        with site.connect(space, **profile) as client, client.subscribe("queued/#", qos=1):
            pass  # It stays in the session.
    for space in SPACES:
        with site.connect(space) as client:
            client.publish("queued/x", f"{space}", qos=1)
            client.publish("queued/x", "end", qos=1)
    for space in SPACES:
        with site.connect(space, **profile) as client:
            with client.subscribe("queued/#", qos=1) as messages:
                assert messages.resumed
                assert texts(messages) == [("queued/x", f"{space}")]
            client.close(end_session=True)


def test_a_token_says_of_which_workspace_its_client_is(site: Site) -> None:
    token = site.token("acme")
    with site.with_token(token) as client:
        assert client.workspace == "acme"
        found = client.resolve("home/oven")
        assert (found.topic, found.owner, found.subtree) == ("home/oven", "acme-home", "$workspace/acme/home")
    with pytest.raises(ConfigError, match="the token is of the workspace acme"):
        site.with_token(token, workspace="other")
    with site.with_token(site.token(None), workspace="acme") as outside, refused():
        outside.publish("home/oven", "no", qos=1)
    with refused(), site.with_token(site.token("acme", "oven"), client_id="lamp") as lamp:
        lamp.subscribe("home/#", qos=1).__enter__()
    for wrong in ("$SYS/x", "$workspace/other/x", ""):
        with site.with_token(token) as client, pytest.raises(InvalidTopic, match="of the workspace acme"):
            client.publish(wrong, "no", qos=1)
    with site.with_token(token) as client, pytest.raises(InvalidTopic, match="of the workspace acme"):
        client.subscribe("$SYS/#").__enter__()
    with pytest.raises(InvalidTopic, match="begins with"):
        site.with_token(token, will=Will("$SYS/x", "no"))


def test_what_a_client_puts_on_the_wire_itself_stays_in_its_workspace(site: Site) -> None:
    """A client that does not add the prefix has the rights of its token all the same."""
    token = site.token("acme")
    with (
        site.connect("other") as other,
        other.subscribe("#", qos=1) as theirs,
        site.connect(None) as outside,
        outside.subscribe("#", qos=1) as nobodys,
        site.connect("acme") as acme,
        acme.subscribe("#", qos=1) as ours,
        raw_client(site, token) as hostile,
    ):
        for topic in ("$workspace/other/x", "x", "$workspace", "$SYS/x", "$gateway/claims/x"):
            with refused():
                hostile.publish(topic, "no", qos=1)
            with refused():
                hostile.subscribe(topic, qos=1).__enter__()
        for filter in ("#", "$workspace/#", "$workspace/+/x", "$workspace/other/#", "+/+/x"):
            with refused():
                hostile.subscribe(filter, qos=1).__enter__()
        # These are its own, and no topics of a workspace: no client is given them.
        for topic in ("$workspace/acme", "$workspace/acme/", "$workspace/acme/$SYS/x"):
            hostile.publish(topic, "no", qos=1)
        hostile.publish("$workspace/acme/x", "raw", qos=1)
        for client in (other, outside, acme):
            client.publish("x", "end", qos=1)
        assert [texts(theirs), texts(nobodys), texts(ours)] == [[], [], [("x", "raw")]]


@contextmanager
def raw_client(site: Site, token: Path) -> Iterator[sync.Client]:
    """A client whose library adds no prefix, with the token of a workspace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hbroker.runtime.credentials._workspace_of_token", lambda path: "")
        client = site.with_token(token)
    with client:
        yield client


def test_a_client_pool_and_both_commands_are_in_the_workspace_of_their_token(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = site.token("acme")
    flags = [
        "--cafile",
        str(site.authority),
        "-h",
        *site.root.rsplit(":", 1)[:1],
        "-p",
        site.root.rsplit(":", 1)[1],
    ]

    async def receive(text: str) -> tuple[str, bytes]:
        async with (
            hbroker.client_pool(site.root, authority=site.authority, token=token) as pool,
            (await pool.connect(client_id="one")).subscribe("home/#", qos=1) as messages,
        ):
            publisher = await pool.connect(client_id="two")
            await publisher.publish("home/oven", text, qos=1)
            message = await anext(aiter(messages))
            return message.topic, message.payload

    assert asyncio.run(receive("pool")) == ("home/oven", b"pool")
    operator = site.token(None, read=("$workspace/#",), write=("$workspace/#",), retain=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    run_hbroker("context", "add", "acme", "--root", site.root, "--workspace", "acme", check=True)
    for file, named, environment in (
        (token, [], {}),
        (operator, [], {"HBROKER_CONTEXT": "acme"}),
        (operator, ["--workspace", "acme"], {"HBROKER_WORKSPACE": "other"}),
        (operator, [], {"HBROKER_WORKSPACE": "acme"}),
    ):
        given = {**os.environ, "HBROKER_TOKEN": str(file), **environment}

        def run(name: str, *more: str, given: dict[str, str] = given, named: list[str] = named) -> str:
            command = [str(Path(sys.executable).parent / name), *flags, *named, "-t", "commands", *more]
            done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            return done.stdout

        text = f"{file.name} {named} {environment}"
        run("hpub", "-q", "1", "-r", "-m", text)
        assert run("hsub", "-v", "-q", "1", "-C", "1") == f"commands {text}\n"
        with site.connect("acme") as client, client.subscribe("commands", qos=1) as messages:
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert message.payload == text.encode()


def test_quotas_of_a_workspace(site: Site) -> None:
    quota = Reason.REASON_QUOTA_EXCEEDED
    with ExitStack() as stack:
        one, two, three = (stack.enter_context(site.connect("small")) for _ in range(3))
        messages = stack.enter_context(one.subscribe("a", qos=1))
        stack.enter_context(one.subscribe("b", qos=1))
        held = two.subscribe("a", qos=1)
        held.__enter__()
        for client, filter in ((one, "c"), (two, "c"), (three, "c")):
            with refused(quota):
                client.subscribe(filter, qos=1).__enter__()
        held.close()
        stack.enter_context(three.subscribe("c", qos=1))
        with site.connect("acme") as elsewhere:
            elsewhere.subscribe("c", qos=1).__enter__()
            elsewhere.publish_many([("a", "x")] * 100, qos=1)
        # Beyond its rate a workspace waits, and loses nothing.
        began = time.monotonic()
        three.publish_many([("a", f"{n}") for n in range(12)], qos=1, timeout=PATIENCE)
        three.publish("a", "end", qos=1, timeout=PATIENCE)
        assert time.monotonic() - began > 1
        assert texts(messages) == [("a", f"{n}") for n in range(12)]


def test_mqtt_clients_of_workspaces(site: Site) -> None:
    need_mosquitto()

    def run(name: str, space: str | None, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [name, "-p", site.port(space), "-V", "5", "-q", "1", *flags]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)

    same = ("-i", "same", "-c", "-x", "600", "-t", "mqtt/#", "-t", "$share/group/shared/#")
    for space in SPACES:
        run("mosquitto_sub", space, *same, "-E")
    listed = json.loads(run_hbroker("clients", "--json", "--root", site.root, check=True).stdout)["clients"]
    assert {each["workspace"] for each in listed if each["client"] == "same"} == set(SPACES)
    for space in SPACES:
        run("mosquitto_pub", space, "-t", "mqtt/x", "-m", f"{space}", "-r")
        run("mosquitto_pub", space, "-t", "shared/x", "-m", f"{space} shared")
        with site.connect(space) as native, native.subscribe("mqtt/#", qos=1) as messages:
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert (message.topic, message.payload) == ("mqtt/x", f"{space}".encode())
            native.publish("mqtt/y", f"{space} native", qos=2)
    for space in SPACES:
        found = run("mosquitto_sub", space, *same, "-C", "3", "-F", "%t %p").stdout.splitlines()
        assert sorted(found) == [f"mqtt/x {space}", f"mqtt/y {space} native", f"shared/x {space} shared"]
        assert (
            run("mosquitto_sub", space, "-t", "mqtt/#", "-C", "1", "-F", "%t %p").stdout
            == f"mqtt/x {space}\n"
        )
    for wrong in ("$SYS/#", "$workspace/other/#", "$gateway/#"):
        assert "denied" in run("mosquitto_sub", "acme", "-t", wrong, "-E").stderr


def test_of_two_mqtt_clients_with_one_id_the_one_that_is_named_is_kicked(site: Site) -> None:
    need_mosquitto()

    def since() -> dict[str | None, int]:
        """Since when the clients are connected, by workspace."""
        listed = json.loads(run_hbroker("clients", "--json", "--root", site.root, check=True).stdout)
        clients = [each for each in listed["clients"] if each["client"] == "kicked"]
        return {each["workspace"]: each["since_us"] for each in clients}

    def kick(*flags: str) -> int:
        return run_hbroker("kick", "kicked", "--root", site.root, *flags).returncode

    command = ["mosquitto_sub", "-V", "5", "-i", "kicked", "-t", "x", "-p"]
    clients = [subprocess.Popen([*command, site.port(space)]) for space in (None, "acme")]
    try:
        until(lambda: since().keys() == {None, "acme"}, "both are listed", PATIENCE)
        before = since()
        assert [kick("--workspace", "other"), kick("--workspace", "acme")] == [1, 0]
        after = since()
        assert after[None] == before[None]
        assert after.get("acme") != before["acme"], "it may have connected again"
    finally:
        for client in clients:
            client.kill()
            client.wait(PATIENCE)
