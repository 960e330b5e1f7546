"""Retained messages and wills of nodes with stores, after SIGKILL of all processes."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hbroker import sync
from tests.product.dying.test_store import FILE, own_port
from tests.product.network import PATIENCE, PROJECT, environment, network_up
from tests.waiting import until

TOPICS = [f"home/{place}/{number}" for place in ("hall", "kitchen") for number in range(15)]
LARGE = "home/kitchen/large"
READY = "home/kitchen/ready"
GONE = "home/kitchen/gone"
ROUNDS = 3


def read_retained(root: str, count: int) -> dict[str, bytes]:
    """The retained messages below `home`. Waits until there are at least `count` of them."""
    found: dict[str, bytes] = {}
    with sync.connect(root) as client, client.subscribe("home/#", qos=1) as messages:
        while len(found) < count:
            message = messages.next(timeout=PATIENCE)
            assert message is not None, f"only {sorted(found)}"
            if message.retained:
                found[message.topic] = message.payload
        while (message := messages.next(timeout=0.2)) is not None:
            if message.retained:
                found[message.topic] = message.payload
    return found


@contextmanager
def client_with_will(root: str) -> Iterator[None]:
    """A client in a process of its own, which has registered a will. At the end it is killed."""
    will = ["--will-topic", GONE, "--will-payload", "gone", "--will-qos", "1"]
    place = ["-L", f"hbroker://{root}/{READY}"]
    with ExitStack() as stack:
        with sync.connect(root) as client:
            others = client.resolve(READY, trace=True).subscriptions
            command = [sys.executable, "-m", "hbroker.clients.hsub", *place, *will]
            process = stack.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=environment())
            )
            stack.callback(process.kill)
            until(
                lambda: client.resolve(READY, trace=True).subscriptions > others, "hsub subscribed", PATIENCE
            )
            client.publish(READY, "ready", qos=1, timeout=PATIENCE)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield


def change(root: str, dice: random.Random, retained: dict[str, bytes]) -> None:
    """Publishes or clears retained messages, and notes what is retained then."""
    with sync.connect(root) as client:
        for topic in dice.sample(TOPICS, 25):
            payload = b"" if dice.random() < 0.3 else b"%d" % dice.randrange(10**6)
            client.publish(topic, payload, qos=dice.choice([1, 2]), retain=True, timeout=PATIENCE)
            retained.pop(topic, None)
            retained |= {topic: payload} if payload else {}
        retained[LARGE] = dice.randbytes(20_000)
        client.publish(LARGE, retained[LARGE], qos=1, retain=True, timeout=PATIENCE)


def test_retained_messages_and_wills_survive_a_kill_of_everything(tmp_path: Path) -> None:
    file = tmp_path / "stored.yaml"
    file.write_text(re.sub(r":770\d", lambda _: f":{own_port()}", FILE))
    dice = random.Random(1)
    retained: dict[str, bytes] = {}
    for _ in range(ROUNDS):
        with network_up(file, tmp_path / "state", flags=()) as (network, root), client_with_will(root):
            assert read_retained(root, len(retained)) == retained
            change(root, dice, retained)
            network.kill()
    with network_up(file, tmp_path / "state", flags=()) as (_, root):
        assert read_retained(root, len(retained)) == retained
        with sync.connect(root) as client, client.subscribe(GONE, qos=1) as wills:
            # No run was long enough that a client counted as gone.
            found = [wills.next(timeout=PATIENCE) for _ in range(ROUNDS)]
            assert [will and will.payload for will in found] == [b"gone"] * ROUNDS
            assert wills.next(timeout=0.2) is None, "each once"
