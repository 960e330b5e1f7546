"""A network with stores that is stopped in order: each node has what it had when it is back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hbroker import sync
from tests.product.dying.test_store import FILE, TOPICS, OfflineSession
from tests.product.network import PATIENCE, PROJECT, environment, network_up, run_hbroker
from tests.waiting import until

COUNT = 300


def stored(state: Path, node: str) -> dict[str, int]:
    """How many messages wait at a node that does not run, by client."""
    (directory,) = state.glob(f"*/{node}.cuts.store")
    done = run_hbroker("store", "info", "--json", directory, check=True)
    return {session["client"]: session["messages"] for session in json.loads(done.stdout)["sessions"]}


@contextmanager
def silent_subscriber(root: str, name: str, topic: str) -> Iterator[None]:
    """A persistent session that is connected, and whose process does not run."""
    place = ["-L", f"hbroker://{root}/{topic}", "-q", "2", "-c", "-i", name]
    with subprocess.Popen(
        [sys.executable, "-m", "hbroker.clients.hsub", *place],
        stdout=subprocess.DEVNULL,
        cwd=PROJECT,
        env=environment(),
    ) as process:
        try:
            with sync.connect(root) as client:
                until(lambda: client.resolve(topic, trace=True).subscriptions > 1, "it subscribed", PATIENCE)
            os.kill(process.pid, signal.SIGSTOP)
            yield
        finally:
            process.kill()


def test_a_network_that_is_stopped_keeps_what_waits_where_it_is(tmp_path: Path) -> None:
    file, state = tmp_path / "stored.yaml", tmp_path / "state"
    file.write_text(FILE)
    with network_up(file, state) as (network, root):
        sessions = [OfflineSession(root, f"offline_{node}", topic) for node, topic in TOPICS.items()]
        with (
            silent_subscriber(root, "silent_root", TOPICS["root"]),
            silent_subscriber(root, "silent_kitchen", TOPICS["kitchen"]),
            sync.connect(root) as client,
        ):
            for topic in TOPICS.values():
                messages = [(topic, str(number)) for number in range(COUNT)]
                # The owner has those for the connected session in memory only.
                client.publish_many(messages, qos=2, ack_queued=True, timeout=PATIENCE)
            network.close()
    assert stored(state, "kitchen") == {"offline_kitchen": COUNT, "silent_kitchen": COUNT}
    assert stored(state, "root") == {"offline_root": COUNT, "silent_root": COUNT}
    with network_up(file, state) as (_, root):  # at other addresses
        for session in sessions:
            session.root = root
            assert session.read(COUNT - 1)
            assert session.received == list(range(COUNT))
