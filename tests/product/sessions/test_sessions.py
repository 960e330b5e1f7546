"""Sessions and wills as users have them: real programs, a real node, SIGKILL (docs/guarantees.md)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hbroker import SessionTakenOver, sync
from tests.product.network import PATIENCE, PROJECT, environment, tree
from tests.product.node import Node, node_up

MESSAGES = 1_200
KILLS = 2
ON_THE_WAY = 256
"""More messages than hsub prints before it acknowledges them, and before the acknowledgement leaves."""
TOPIC = "home/counter"


class Reader:
    """hsub as a process, and the lines that it has printed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def await_lines(self, are_enough: Callable[[list[str]], bool]) -> None:
        """Waits until `are_enough` is true for the printed lines."""
        with self._more:
            assert self._more.wait_for(lambda: are_enough(self.lines), PATIENCE), self.lines[-10:]

    def kill(self) -> list[str]:
        """Kills hsub, as a crash does. Returns all lines that it printed."""
        self.process.kill()
        return self.close()

    def close(self) -> list[str]:
        """Waits for the end of hsub. Returns all lines that it printed."""
        self.process.wait(PATIENCE)
        self._thread.join()
        return self.lines

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                self._more.notify_all()


@contextmanager
def hsub(node: Node, *flags: str) -> Iterator[Reader]:
    """hsub once it has subscribed. It is killed at the end."""
    command = [sys.executable, "-m", "hbroker.clients.hsub", "-p", str(node.address[1]), "-d", *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment()
    ) as process:
        reader = Reader(process)
        try:
            reader.await_lines(lambda lines: any("received SUBACK" in line for line in lines))
            yield reader
        finally:
            process.kill()
            reader.close()


@pytest.fixture(scope="module", autouse=True)
def killed_client() -> Iterator[tuple[sync.Client, sync.Subscription]]:
    """A client with a will was killed before the first test of this module. Its owner notices after an
    idle timeout, during which the other tests run. Yields another client, and its subscription to the
    topic of the will."""
    will = ("--will-topic", "home/gone", "--will-payload", "gone", "--will-qos", "1", "--will-retain")
    with (
        node_up() as node,
        sync.connect(node.root) as client,
        client.subscribe("home/gone", qos=1) as messages,
    ):
        with hsub(node, "-t", "home/x", *will) as reader:
            assert tree(node.root)["root"]["wills"] == 1
            reader.kill()
        yield client, messages


def payloads(lines: list[str]) -> list[int]:
    return [int(line) for line in lines if line.isdigit()]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_persistent_reader_that_is_killed_several_times_prints_every_message(qos: int) -> None:
    printed: list[list[int]] = []
    flags = ("-i", "counter", "-c", "-q", str(qos), "-t", TOPIC)
    with node_up() as node, sync.connect(node.root) as publisher:
        for share in range(KILLS):
            with hsub(node, *flags) as reader:
                for number in range(share * MESSAGES // KILLS, (share + 1) * MESSAGES // KILLS):
                    publisher.try_publish(TOPIC, str(number), qos=qos)
                reader.await_lines(lambda lines: len(payloads(lines)) > MESSAGES // 8)
                printed.append(payloads(reader.kill()))
        assert publisher.drain(PATIENCE)
        with hsub(node, *flags, "-W", "2") as reader:
            printed.append(payloads(reader.close()))
    assert set().union(*printed) == set(range(MESSAGES)), "nothing is lost"
    for run in printed:
        assert run == sorted(set(run)), "each run has them once, and in order"
    again = sum(map(len, printed)) - MESSAGES
    assert again <= KILLS * ON_THE_WAY, "what comes again is what it had not said yet that it printed"


def test_the_message_counters_of_a_session_add_up() -> None:
    with node_up() as node, sync.connect(node.root) as publisher:
        with sync.connect(node.root, client_id="lamp", session_expiry=60) as lamp:
            lamp.subscribe("home/#", qos=1, queue_messages=5, overflow="drop_newest")
        for number in range(9):
            publisher.publish("home/x", str(number), qos=1)
        publisher.publish("home/x", "nobody has it", qos=0)
        (told,) = [client for client in tree(node.root)["root"]["clients"] if client["client"] == "lamp"]
        assert told["state"] == "offline"
        assert (told["accepted"], told["queued"]) == (10, 5)
        assert told["dropped"] == {"queue_full": 4, "offline": 1}
        sums = told["delivered"] + told["expired"] + sum(told["dropped"].values()) + told["queued"]
        assert told["accepted"] == sums
        with sync.connect(node.root, client_id="lamp", session_expiry=60) as lamp:
            messages = lamp.subscribe("home/#", qos=1)
            assert messages.resumed
            got = [messages.next(PATIENCE) for _ in range(5)]
            assert [message and message.payload for message in got] == [b"0", b"1", b"2", b"3", b"4"]
            lamp.close(end_session=True)
        assert tree(node.root)["root"]["sessions_offline"] == 0


def test_a_second_run_takes_the_session_over_and_the_first_is_told() -> None:
    with node_up() as node, sync.connect(node.root, client_id="lamp", session_expiry=60) as first:
        messages = first.subscribe("home/#", qos=1)
        with sync.connect(node.root, client_id="lamp", session_expiry=60) as second:
            later = second.subscribe("home/#", qos=1)
            with pytest.raises(SessionTakenOver):
                messages.next(PATIENCE)
            with pytest.raises(SessionTakenOver):
                first.publish("home/x", qos=1)
            second.publish("home/x", b"still here", qos=1)
            message = later.next(PATIENCE)
            assert message is not None
            assert message.payload == b"still here"


def test_the_will_of_a_killed_client_is_published(
    killed_client: tuple[sync.Client, sync.Subscription],
) -> None:
    """The last test of this module, because the will takes a while."""
    client, messages = killed_client
    message = messages.next(PATIENCE)
    assert message is not None
    assert (message.payload, message.qos) == (b"gone", 1)
    with client.subscribe("home/gone") as later:
        retained = later.next(PATIENCE)
    assert retained is not None
    assert retained.retained
