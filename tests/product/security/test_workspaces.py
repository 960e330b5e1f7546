"""Workspaces in a network that requires tokens: real nodes, native clients, stock MQTT clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

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


def texts(messages: sync.Subscription, end: str = "end") -> list[tuple[str, str]]:
    """The topics and payloads up to the message `end`, without it."""
    found: list[tuple[str, str]] = []
    while True:
        message = messages.next(timeout=PATIENCE)
        assert message is not None, found
        if message.payload == end.encode():
            return found
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
        for client in clients.values():  # The last of each topic: nothing can come behind it.
            client.publish("end/oven", "end", qos=1)
        for (space, filter), messages in all_read.items():
            wanted = TOPICS if "#" in filter else TOPICS[:1]
            found = texts(messages)
            assert sorted(found) == sorted(
                (topic, text) for topic in wanted for text in (f"{space} {topic}", f"{space} again")
            ), (space, filter)


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
                assert texts(messages) == [("kept/x", f"{space}")]
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


def test_mqtt_clients_of_workspaces(site: Site, tmp_path: Path) -> None:
    need_mosquitto()

    def run(name: str, space: str | None, *flags: str) -> subprocess.Popen[str]:
        command = [name, "-p", site.port(space), "-V", "5", *flags]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def publish(space: str | None, topic: str, text: str, *flags: str) -> int:
        return run("mosquitto_pub", space, "-q", "1", "-t", topic, "-m", text, *flags).wait(PATIENCE)

    def begin(space: str | None, *flags: str) -> None:
        done = run("mosquitto_sub", space, "-i", "same", "-c", "-q", "1", "-E", *flags, "-x", "600")
        assert done.wait(PATIENCE) == 0

    for space in SPACES:
        begin(space, "-t", "mqtt/#", "-t", "$share/group/shared/#")
    listed = json.loads(run_hbroker("clients", "--json", "--root", site.root, check=True).stdout)["clients"]
    assert {each["workspace"] for each in listed if each["client"] == "same"} == set(SPACES)
    for space in SPACES:
        assert publish(space, "mqtt/x", f"{space}", "-r") == 0
        assert publish(space, "shared/x", f"{space} shared") == 0
        with site.connect(space) as native, native.subscribe("mqtt/#", qos=1) as messages:
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert (message.topic, message.payload) == ("mqtt/x", f"{space}".encode())
            native.publish("mqtt/y", f"{space} native", qos=2)
    for space in SPACES:
        flags = ("-i", "same", "-c", "-q", "1", "-t", "mqtt/#", "-C", "3", "-F", "%t %p", "-x", "600")
        output, _ = run("mosquitto_sub", space, *flags).communicate(timeout=PATIENCE)
        wanted = [f"mqtt/x {space}", f"shared/x {space} shared", f"mqtt/y {space} native"]
        assert sorted(output.splitlines()) == sorted(wanted)
        fresh, _ = run("mosquitto_sub", space, "-t", "#", "-C", "1", "-F", "%t %p").communicate(
            timeout=PATIENCE
        )
        assert fresh == f"mqtt/x {space}\n"
    for wrong in ("$SYS/#", "$workspace/other/#", "$gateway/#"):
        assert run("mosquitto_sub", "acme", "-t", wrong, "-E").wait(PATIENCE) != 0
    kick(site, "acme")


def kick(site: Site, workspace: str) -> None:
    """Of two clients with one id, the one that is meant is disconnected."""

    def sub(space: str | None) -> subprocess.Popen[str]:
        command = ["mosquitto_sub", "-p", site.port(space), "-V", "5", "-i", "kicked", "-t", "x", "-d"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if "SUBACK" in line:
                break
        return process

    def found() -> Sequence[str | None]:
        listed = run_hbroker("clients", "--json", "--root", site.root, check=True).stdout
        clients = json.loads(listed)["clients"]
        return sorted(
            each["workspace"] or ""
            for each in clients
            if each["client"] == "kicked" and each["state"] == "connected"
        )

    with sub(None) as outside, sub(workspace) as inside:
        try:
            until(lambda: found() == ["", workspace], "both are listed", PATIENCE)
            flags = ("--workspace", workspace, "kicked", "--root", site.root)
            assert run_hbroker("kick", *flags).returncode == 0
            until(lambda: found() == [""], "one is disconnected", PATIENCE)
        finally:
            outside.kill()
            inside.kill()
