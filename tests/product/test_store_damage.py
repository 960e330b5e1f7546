"""A store whose files change while its node does not run: the node logs the damage, and serves the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hbroker import sync
from tests.product.dying.test_store import FILE, TOPICS
from tests.product.network import PATIENCE, network_up

COUNT = 100
FLAGS = ("--any-port", "--log-format", "json")
FLIPPED = 5_000
"""The offset of a byte that belongs to one of the messages."""
TORN = b"what a process was writing when it ended"


def logged(state: Path, event: str) -> dict[str, Any]:
    """The only line of the root's log with this event."""
    (log,) = state.glob("*/root.log")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    line: dict[str, Any]
    (line,) = [line for line in lines if line["event"] == event]
    return line


def test_a_damaged_record_and_a_torn_end_are_logged_and_the_rest_is_served(tmp_path: Path) -> None:
    file, state, topic = tmp_path / "stored.yaml", tmp_path / "state", TOPICS["root"]
    file.write_text(FILE)
    sent = [b"%090d" % number for number in range(COUNT)]
    with network_up(file, state, FLAGS) as (_, root):
        with sync.connect(root, client_id="attic", session_expiry=3_600, session_key="k") as client:
            client.subscribe(topic, qos=1)
        with sync.connect(root) as client:
            client.publish_many([(topic, payload) for payload in sent], qos=1, timeout=PATIENCE)
    (segment,) = state.glob("*/root.cuts.store/log/*.log")
    content = bytearray(segment.read_bytes())
    content[FLIPPED] ^= 1
    segment.write_bytes(content + TORN)
    with (
        network_up(file, state, FLAGS) as (_, root),
        sync.connect(root, client_id="attic", session_expiry=3_600, session_key="k") as client,
        client.subscribe(topic, qos=1) as messages,
    ):
        client.publish(topic, "last", qos=1, timeout=PATIENCE)
        received: list[bytes] = []
        while not received or received[-1] != b"last":
            message = messages.next(timeout=PATIENCE)
            assert message is not None, received[-3:]
            received.append(message.payload)
        assert not messages.resumed
    lost = set(sent) - set(received)
    assert lost
    assert received[:-1] == [payload for payload in sent if payload not in lost]
    damage = logged(state, "store_damaged")
    assert f"{segment.name}: damaged at offset " in damage["what"]
    assert logged(state, "store_torn")["bytes_cut_off"] == len(TORN)
