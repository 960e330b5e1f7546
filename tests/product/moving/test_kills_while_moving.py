"""SIGKILL of a node that takes part in a handover: no message is lost or refused.

The simulated network kills at each step (tests/network/moving/test_kills_while_moving.py). Here the nodes are
real processes with real files, killed at random times, and started again by their launcher.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from hbroker import sync
from hbroker.runtime.launcher.supervisor import RAN_WELL
from tests.product.home import TOPIC, HomeNetwork, Traffic
from tests.product.network import PATIENCE, PROJECT, environment, hbroker
from tests.product.starvation import waited_s
from tests.waiting import until

SUBTREE = "home/kitchen"
RETAINED = 3_000
"""Messages that a handover carries along. They make it take longer, so that more of its steps can be hit."""
LATEST_KILL = 0.9
"""Seconds after the command was started. Half of that is over before its first order leaves."""
LONGEST_GAP = 5.0
ROUNDS, MANY_ROUNDS = 3, 100


def test_killing_a_node_during_a_handover_costs_seconds_and_no_message(
    home: HomeNetwork, is_long: bool
) -> None:
    random, owner = Random(18), "kitchen"
    with sync.connect(home.root) as client:
        client.publish_many([(f"{SUBTREE}/kept/{n}", b"x" * 60) for n in range(RETAINED)], qos=1, retain=True)
    traffic, kills = Traffic(home.root, TOPIC), list[Kill]()
    try:
        for number in range(MANY_ROUNDS if is_long else ROUNDS):
            target = {"kitchen": "bedroom", "bedroom": "kitchen"}[owner]
            victim = (owner, target, "home")[number % 3]
            if is_long:
                await_good_run(home, victim)
            kills.append(killed_while_moving(home, traffic, target, victim, random.uniform(0.3, LATEST_KILL)))
            owner = target
        traffic.stop()
    finally:
        traffic.kill()
    if is_long:
        slow = [kill for kill in kills if gap_at(traffic, kill) > LONGEST_GAP]
        assert not slow, [(kill, gap_at(traffic, kill)) for kill in slow]


@dataclass(frozen=True)
class Kill:
    """The node that was killed, how many seconds after the command was started, and at which time.
    `starved_s`: how long the process that was started in its place has waited for a CPU."""

    victim: str
    after_s: float
    at: float
    starved_s: float


def killed_while_moving(
    home: HomeNetwork, traffic: Traffic, target: str, victim: str, after_s: float
) -> Kill:
    """Moves the subtree and kills the victim meanwhile. Returns once the target has the subtree, and
    messages arrive."""
    process = home.network.processes()[victim]
    command = [*hbroker("move"), SUBTREE, target, "--root", home.root]
    move = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=PROJECT, env=environment()
    )
    threading.Event().wait(after_s)
    process.kill()
    at = time.time()
    assert home.network.event("back")["node"] == victim
    said, _ = move.communicate(timeout=PATIENCE)
    came = len(traffic.lines)
    until(lambda: len(traffic.lines) > came, "messages come", PATIENCE, found=lambda: said)
    if home.owner(TOPIC) != target:  # the command may have found no node for its order
        home.done("move", SUBTREE, target)
    return Kill(victim, after_s, at, waited_s(home.network.processes()[victim].pid))


def await_good_run(home: HomeNetwork, node: str) -> None:
    """Waits until the launcher would start the node again after the shortest pause."""
    served = home.network.processes()[node].create_time() + RAN_WELL + 3
    until(lambda: time.time() > served, f"{node} has run well", PATIENCE)


def gap_at(traffic: Traffic, kill: Kill) -> float:
    """The longest gap within ten seconds of a kill, less the time for which the process waited for a CPU."""
    times = [at for at, _ in traffic.lines if kill.at - 1 < at < kill.at + 10]
    return max(later - earlier for earlier, later in pairwise(times)) - kill.starved_s
