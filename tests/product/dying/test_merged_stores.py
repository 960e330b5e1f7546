"""Two networks continue from one backup, as the two sides of a partition do. `hbroker store merge` makes one
of their stores, and what waits there is read from a network with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from hbroker import sync
from tests.product.dying.test_store_command import run
from tests.product.network import PATIENCE, network_up

FILE = """
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7700", durability: fsync}
"""
STORE = "net/root.cuts.store"


def numbers(topic: str, first: int, end: int) -> list[tuple[str, str]]:
    """Messages that are numbered."""
    return [(topic, str(number)) for number in range(first, end)]


def session_of(root: str, name: str) -> sync.Client:
    """A client with a persistent session."""
    return sync.connect(root, client_id=name, session_expiry=3_600, session_key="k")


def make_session(root: str, name: str, filter: str) -> None:
    """Makes a persistent session that is offline."""
    with session_of(root, name) as client:
        client.subscribe(filter, qos=1)


def read(root: str, name: str, filter: str, count: int) -> list[tuple[str, str]]:
    """Reads so many messages of a session, and that it has no more."""
    with session_of(root, name) as client, client.subscribe(filter, qos=1) as messages:
        assert messages.resumed
        found: list[tuple[str, str]] = []
        while len(found) < count:
            message = messages.next(timeout=PATIENCE)
            assert message is not None, f"{name}: {len(found)} of {count}"
            found.append((message.topic, message.payload.decode()))
        assert messages.next(timeout=0.2) is None
        return found


def test_two_sides_of_a_partition_become_one(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(FILE)
    sides = [tmp_path / "east", tmp_path / "west"]
    with network_up(file, sides[0]) as (_, root):
        make_session(root, "both", "t/+")
        make_session(root, "reader", "t/+")
        with sync.connect(root) as client:
            client.publish_many(numbers("t/before", 0, 100), qos=1, timeout=PATIENCE)
            client.publish("kept/old", "old", qos=1, retain=True)
    shutil.copytree(sides[0], sides[1])
    with network_up(file, sides[0]) as (_, root), sync.connect(root) as client:
        client.publish_many(numbers("t/east", 0, 50), qos=1, timeout=PATIENCE)
        client.publish("kept/old", "new", qos=1, retain=True)
        # What this session has read must not come again, although the other side still has it.
        assert len(read(root, "reader", "t/+", 150)) == 150
    with network_up(file, sides[1]) as (_, root), sync.connect(root) as client:
        make_session(root, "west_only", "t/west")
        client.publish_many(numbers("t/west", 0, 70), qos=1, timeout=PATIENCE)
    merged = tmp_path / "merged"
    done = run("merge", sides[0] / STORE, str(sides[1] / STORE), str(merged / STORE), "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["common"], report["settled"], report["disordered"]) == (100, 100, 0)
    assert report["messages"] == 100 + 50 + 70 + 70 + 70
    assert report["retained"] == 1
    with network_up(file, merged) as (_, root):
        found = read(root, "both", "t/+", 220)
        for topic, count in (("t/before", 100), ("t/east", 50), ("t/west", 70)):
            assert [message for message in found if message[0] == topic] == numbers(topic, 0, count)
        assert read(root, "reader", "t/+", 70) == numbers("t/west", 0, 70)
        assert read(root, "west_only", "t/west", 70) == numbers("t/west", 0, 70)
        with sync.connect(root) as client, client.subscribe("kept/#", qos=1) as messages:
            message = messages.next(timeout=PATIENCE)
            assert message is not None
            assert message.payload == b"new"
