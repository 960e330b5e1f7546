"""A subtree moves with many messages queued for offline sessions (§5.4). The source copies them while it
serves, so that publishers notice nothing.

`--long` moves 1 GiB of messages, twice, under 1,000 messages a second. `-s` shows how long publishers waited.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import pytest

from hbroker import sync
from tests.product.client import PolledClient
from tests.product.home import TWO_ROOMS, HomeNetwork
from tests.product.network import PATIENCE, network_of, run_hbroker
from tests.product.starvation import Starvation
from tests.waiting import until

BYTES = 4_000
"""Bytes of a message: it travels and is queued in fragments."""
FEW, MANY = (4, 250), (214, 1_200)
"""Offline sessions, and messages for each."""
RATE = 1_000
"""Messages per second during the handover, in turn for all sessions."""
LONGEST_GAP_S = 0.25
"""The longest time between two PUBACKs, less the time for which one of the threads waited for a CPU."""
MOST_MEMORY_MIB = 256
"""Of a process, while 1 GiB moves."""
NOTABLE_S = 0.05
LONG_PATIENCE_S = 600.0


class OfflineSession:
    """A session that is offline while its queue moves."""

    def __init__(self, root: str, number: int) -> None:
        self._root, self.topic = root, f"home/kitchen/{number}"
        self._name = f"offline{number}"
        with self._connect() as client:
            client.subscribe(f"{self.topic}/#", qos=2)

    def fill(self, client: sync.Client, messages: int) -> None:
        """Publishes messages for the session. Their owner queues and acknowledges them."""
        batch = [(f"{self.topic}/old", b"%d " % n + bytes(BYTES)) for n in range(messages)]
        client.publish_many(batch, qos=1, timeout=PATIENCE)

    def read(self, old: int, live: int) -> None:
        """Resumes the session, and checks that it receives all messages once and in order."""
        came: dict[str, list[int]] = {"old": [], "live": []}
        with self._connect() as client, client.subscribe(f"{self.topic}/#", qos=2) as messages:
            while sum(map(len, came.values())) < old + live:
                message = messages.next(timeout=PATIENCE)
                assert message is not None, Counter({kind: len(numbers) for kind, numbers in came.items()})
                came[message.topic.rpartition("/")[2]].append(int(message.payload.partition(b" ")[0]))
        assert came == {"old": list(range(old)), "live": list(range(live))}

    def _connect(self) -> sync.Client:
        return sync.connect(self._root, client_id=self._name, session_expiry=3_600, session_key="k")


class Publisher:
    """Publishes RATE messages per second at QoS 1, in turn for all sessions, and records the times without
    a PUBACK."""

    def __init__(self, root: str, sessions: list[OfflineSession]) -> None:
        host, port = root.split(":")
        self._client = PolledClient((host, int(port)), "publisher")
        self._client.resolve(sessions[0].topic)
        self._sessions = sessions
        self._is_over = Event()
        self._thread = Thread(target=self._run)
        self.sent = Counter[str]()
        self.gaps: list[tuple[int, int]] = []
        """The times without a PUBACK, in nanoseconds of the monotonic clock."""

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE)
        self._client.close()

    def stop(self) -> None:
        """Stops once all messages are acknowledged."""
        self._is_over.set()
        self._thread.join(PATIENCE)
        until(self._is_answered, "all are answered", PATIENCE)
        assert self._client.failed == 0

    def _is_answered(self) -> bool:
        self._client.turn(at_once=True)
        return self._client.acknowledged == self.sent.total()

    def _run(self) -> None:
        answered, answered_at, due = 0, time.monotonic_ns(), time.monotonic()
        for session in cycle(self._sessions):
            topic = f"{session.topic}/live"
            if self._client.endpoint.publish(topic, b"%d " % self.sent[topic] + bytes(50), 1) is not None:
                self.sent[topic] += 1
            due += 1 / RATE
            while (pause := due - time.monotonic()) > 0:
                self._client.endpoint.wait(pause)
                self._client.turn(at_once=True)
                if self._client.acknowledged > answered:
                    answered, now = self._client.acknowledged, time.monotonic_ns()
                    if now - answered_at > NOTABLE_S * 1e9:
                        self.gaps.append((answered_at, now))
                    answered_at = now
            if self._is_over.is_set():
                return


@pytest.mark.timeout(1_200)
def test_only_messages_that_arrived_since_the_copying_move_after_the_stop(
    tmp_path: Path, is_long: bool
) -> None:
    with network_of(TWO_ROOMS, tmp_path) as (network, root), sync.connect(root) as client:
        home = HomeNetwork(network, root)
        sessions, messages = MANY if is_long else FEW
        offline_sessions = [OfflineSession(root, number) for number in range(sessions)]
        for offline_session in offline_sessions:
            offline_session.fill(client, messages)
        waiting = counters(client, "kitchen")["queued_messages"]
        assert waiting >= sessions * messages
        if is_long:
            move_under_load(home, offline_sessions, messages, client)
            return
        move(home, "bedroom")
        moved = counters(client, "kitchen")
        assert moved["handover_copied"] == waiting, "all was copied while it was served"
        assert "handover_rest" not in moved
        for offline_session in offline_sessions:
            offline_session.read(messages, 0)


def move_under_load(
    home: HomeNetwork, offline_sessions: list[OfflineSession], messages: int, client: sync.Client
) -> None:
    """Moves the subtree there and back."""
    pids = [os.getpid(), *(process.pid for process in home.network.processes().values())]
    with Starvation(pids) as starvation, Publisher(home.root, offline_sessions) as publisher:
        for owner, before in (("bedroom", "kitchen"), ("kitchen", "bedroom")):
            began = time.monotonic()
            move(home, owner)
            moved = counters(client, before)
            print(
                f"{moved['handover_copied']} copied, {moved.get('handover_rest', 0)} after the stop,"
                f" {time.monotonic() - began:.1f} s"
            )
        publisher.stop()
    for offline_session in offline_sessions:
        offline_session.read(messages, publisher.sent[f"{offline_session.topic}/live"])
    longest = max(((end - begin) / 1e9 for begin, end in publisher.gaps), default=0)
    own = max((starvation.own_s(*gap) for gap in publisher.gaps), default=0)
    peaks = {name: peak_memory(process.pid) for name, process in home.network.processes().items()}
    print(f"longest gap {longest * 1e3:.0f} ms, our own {own * 1e3:.0f} ms; MiB {peaks}")
    assert own < LONGEST_GAP_S
    assert max(peaks.values()) < MOST_MEMORY_MIB, "the queues are not in memory, at either end"


def peak_memory(pid: int) -> int:
    """The most memory that a process has had, in MiB (`VmHWM`, proc_pid_status(5))."""
    (line,) = (
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) >> 10


def move(home: HomeNetwork, owner: str) -> None:
    """Runs `hbroker move home/kitchen` to its end."""
    flags = ["--root", home.root, "--state-dir", home.network.directory, "--timeout", LONG_PATIENCE_S]
    run_hbroker("move", "home/kitchen", owner, *flags, patience=LONG_PATIENCE_S, check=True)


def counters(client: sync.Client, node: str) -> dict[str, int]:
    """The counters in the node's status, now."""
    with client.subscribe(f"$SYS/nodes/{node}/status") as messages:
        message = messages.next(timeout=PATIENCE)
    assert message is not None
    found: dict[str, int] = json.loads(message.payload)["counters"]
    return found
