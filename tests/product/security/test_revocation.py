"""Tokens are revoked while a network runs: the list travels to a node on another host, and stays there."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from hbroker import Refused, sync
from hbroker.errors import HBrokerError
from hbroker.protocol.packets import Reason
from hbroker.runtime.node.state_files import saved_revoked
from tests.product.network import PATIENCE, PROJECT, environment, hbroker, network_of, run_hbroker, tree
from tests.product.security.test_tokens import TokenNetwork, next_payload, not_authorized
from tests.waiting import until

FILE = """
tokens: required
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700"}
  - {name: house, subtree: home, listen: "127.0.0.1:7701"}
"""
TOPICS = ("attic", "home/lamp", "home/cellar/wine")
"""Of three owners, one below the other."""


class House(TokenNetwork):
    """A running network. `cellar` is a node on another host, with files of its own."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        network, root = stack.enter_context(network_of(FILE, folder))
        (folder / "held").mkdir()
        super().__init__(network, root, folder / "held")
        self.folder = folder
        self.cellar = folder / "cellar"
        self.cellar_address = f"127.0.0.1:{free_port()}"
        self.cellar_log = folder / "cellar.log"
        self._cellar: subprocess.Popen[bytes] | None = None
        stack.callback(self.kill_cellar)

    def hbroker(self, *arguments: object) -> str:
        """Runs a command with the network's files. Returns what it prints."""
        command, *rest = map(str, arguments)
        return run_hbroker(command, *rest, "--state-dir", self.network.directory, check=True).stdout

    def start_cellar(self) -> None:
        """Starts the node on the other host, with what an earlier run of it has saved."""
        if not self.cellar.exists():
            token = self.folder / "cellar.join"
            self.hbroker("keys", "issue", "cellar", "home/cellar", "--out", token)
            where = ("--root", self.root, "--listen", self.cellar_address, "--dir", self.cellar)
            run_hbroker("join", "--token", token, *where, "--no-start", check=True)
        assert not (self.cellar / "revoked").exists()
        flags = ["--config", str(self.cellar / "node.yaml")]
        with self.cellar_log.open("w") as said:
            self._cellar = subprocess.Popen(
                [*hbroker("node"), *flags], stdout=said, stderr=said, cwd=PROJECT, env=environment()
            )

    def await_cellar(self) -> None:
        """Waits until the node on the other host serves."""
        said = self.cellar_log.read_text
        until(lambda: "ready cellar" in said(), "the cellar has joined", PATIENCE, found=said)

    def kill_cellar(self) -> None:
        if self._cellar is not None:
            self._cellar.kill()
            self._cellar.wait(PATIENCE)

    def is_allowed(self, client: sync.Client, topic: str) -> bool:
        """Whether the owner takes what a client publishes."""
        try:
            client.publish(topic, "", qos=1, timeout=PATIENCE)
        except Refused as refused:
            if refused.reason != Reason.REASON_NOT_AUTHORIZED:
                raise
            return False
        return True

    def is_refused(self, client: sync.Client, topic: str) -> bool:
        return not self.is_allowed(client, topic)

    def await_refusals(self, client: sync.Client, topics: tuple[str, ...]) -> None:
        for topic in topics:
            until(partial(self.is_refused, client, topic), f"a refusal at {topic}", PATIENCE)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(tmp_path, stack)


def test_a_revoked_token_is_refused_by_all_owners_and_others_go_on(house: House) -> None:
    house.start_cellar()
    house.await_cellar()
    wide, other = (house.token(read=("#",), write=("#",)) for _ in range(2))
    victim = house.narrowed(wide, read=("#",), write=("#",))
    with (
        house.connect(victim) as revoked,
        house.connect(wide) as kept,
        house.connect(other) as reads,
        reads.subscribe("home/#", qos=1) as messages,
    ):
        for topic in TOPICS:
            assert house.is_allowed(revoked, topic)
            assert house.is_allowed(kept, topic)
        house.hbroker("token", "revoke", "--token", victim)
        house.await_refusals(revoked, TOPICS)
        assert all(house.is_allowed(kept, topic) for topic in TOPICS)
        kept.publish("home/cellar/wine", "last", qos=1)
        while next_payload(messages) != b"last":
            pass
        assert {node["revoked_tokens"] for node in tree(house.root).values()} == {1}
        with not_authorized(), house.connect(victim):
            pass
        root = house.network.processes()["root"]
        house.kill_cellar()
        root.suspend()
        try:
            house.start_cellar()
            _check_cellar_without_root(house, victim, wide)
        finally:
            root.resume()
        house.await_cellar()
        until(lambda: house.is_allowed(kept, "home/cellar/wine"), "it serves again", PATIENCE)
        assert not house.is_allowed(revoked, "home/cellar/wine")


def _check_cellar_without_root(house: House, victim: Path, other: Path) -> None:
    """The node cannot join. It refuses who was revoked, by what it has saved, and nobody else."""

    def answer(token: Path) -> HBrokerError | None:
        try:
            with sync.connect(house.cellar_address, authority=house.authority, token=token, timeout=1.0):
                return None
        except HBrokerError as error:
            return error

    def is_unauthorized(token: Path) -> bool:
        found = answer(token)
        return isinstance(found, Refused) and found.reason == Reason.REASON_NOT_AUTHORIZED

    until(
        lambda: is_unauthorized(victim), "a refusal without the root", PATIENCE, found=lambda: answer(victim)
    )
    assert not is_unauthorized(other)
    assert "ready" not in house.cellar_log.read_text()


def test_a_list_that_was_lost_is_made_of_what_the_nodes_know(house: House) -> None:
    tokens = [house.token(write=("#",)) for _ in range(3)]
    for token in tokens[:2]:
        house.hbroker("token", "revoke", "--token", token)
    saved = house.state / "root.cuts.revoked"
    until(lambda: saved.exists() and _records(saved) == 2, "two records at the root", PATIENCE)
    (house.state / "authority" / "revoked").unlink()
    with house.connect(tokens[2]) as client:
        assert house.is_allowed(client, "attic")
        house.hbroker("token", "revoke", "--token", tokens[2])
        house.await_refusals(client, TOPICS[:2])
    assert len(json.loads(house.hbroker("token", "revoked", "--json"))) == 3


def test_the_operators_token_is_no_exception_and_is_made_anew(house: House) -> None:
    assert len(tree(house.root)) == 2
    token = house.state / "operator.token"
    before = token.read_text()
    house.hbroker("token", "revoke", "--token", token)
    stolen = house.save(before)

    def is_refused() -> bool:
        try:
            with house.connect(stolen):
                return False
        except Refused as refused:
            return refused.reason == Reason.REASON_NOT_AUTHORIZED

    until(is_refused, "the operator is refused", PATIENCE)
    house.network.process.send_signal(signal.SIGHUP)
    until(lambda: token.read_text() not in ("", before), "another operator's token", PATIENCE)
    assert len(tree(house.root)) == 2
    assert is_refused()


def test_a_token_stays_revoked_while_the_authority_is_replaced(house: House) -> None:
    victim, other = (house.token(write=("#",)) for _ in range(2))
    topics = TOPICS[:2]
    with house.connect(victim) as revoked, house.connect(other) as kept:
        assert all(house.is_allowed(revoked, topic) for topic in topics)
        house.hbroker("token", "revoke", "--token", victim)
        house.await_refusals(revoked, topics)
        logs = [house.state / f"{name}.log" for name in ("root", "house")]
        for step in (1, 2):
            reloads = [log.read_text().count("reloaded") for log in logs]
            house.hbroker("keys", "rotate", "house", step)
            for log, before in zip(logs, reloads, strict=True):
                until(partial(_has_reloaded, log, before), f"{log} after step {step}", PATIENCE)
            assert not any(house.is_allowed(revoked, topic) for topic in topics)
            assert all(house.is_allowed(kept, topic) for topic in topics)
            with not_authorized(), house.connect(victim):
                pass
        assert len(tree(house.root)) == 2
        house.hbroker("token", "revoke", "--token", other)
        house.await_refusals(kept, topics)
        house.hbroker("token", "create", "--write", "#", "--out", house.folder / "new.token")
        with house.connect(house.folder / "new.token") as late:
            assert house.is_allowed(late, "attic")
            house.hbroker("token", "revoke", "--token", house.folder / "new.token")
            house.hbroker("keys", "rotate", "house", 3)
            house.await_refusals(late, topics)
        for token in (victim, other, house.folder / "new.token"):
            with not_authorized(), house.connect(token):
                pass


def _records(file: Path) -> int:
    """How many records a node has saved."""
    return sum(map(len, saved_revoked(file).values()))


def _has_reloaded(log: Path, before: int) -> bool:
    return log.read_text().count("reloaded") > before


def free_port() -> int:
    """A UDP port that was free a moment ago."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
