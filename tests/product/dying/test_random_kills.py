"""All processes of a network die at random moments, again and again, by SIGKILL or with the power of their
disk. What was acknowledged is there when they are back."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.product.dying.power import Disk, need_disk
from tests.product.dying.test_store import own_port
from tests.product.dying.test_stored_state import change, client_with_will, read_retained
from tests.product.dying.users import (
    MqttPublisher,
    MqttSession,
    NativePublisher,
    NativeSession,
    Publisher,
    Session,
)
from tests.product.network import Network, network_up

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""paho leaves a socket open each time its client connects."""
KILLS, LONG_KILLS = 2, 200
CUTS, LONG_CUTS = 2, 50
TOGETHER = 200
"""The most messages that each publisher publishes between two kills."""
FILE = """
limits: {store_bytes: 16777216}  # With the smallest segments: some are removed, and checkpoints made.
nodes:
  - {name: root, subtree: "", listen: "127.0.0.1:7701"}
  - {name: kitchen, subtree: home/kitchen, listen: "127.0.0.1:7702"}
gateways:
  - name: gateway
    listeners: [{address: "127.0.0.1:MQTT", acknowledge: distributed}]
"""


class World:
    """A network, its users, and what must be there after each kill. `end` ends all processes at once."""

    def __init__(self, directory: Path, state: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.file, self.state = directory / "kills.yaml", state
        self.port = own_port()
        text = re.sub(r":770\d", lambda _: f":{own_port()}", FILE)
        self.file.write_text(text.replace("MQTT", str(self.port)))
        self.retained: dict[str, bytes] = {}
        self.publishers: dict[str, Publisher] = {}
        self.sessions: list[Session] = []
        self.allowed = self.kills = self.wills = 0

    def begin(self, root: str) -> None:
        """Makes the sessions, then the publishers."""
        for place in ("home/lamp", "home/kitchen/oven"):
            for qos in (1, 2):
                native = NativePublisher(root, f"{place}/native{qos}", qos)
                over_mqtt = MqttPublisher(self.port, f"{place}/mqtt{qos}", qos)
                self.publishers |= {native.topic: native, over_mqtt.topic: over_mqtt}
        self.sessions += [NativeSession(f"native{number}", root, self.publishers) for number in range(2)]
        self.sessions += [MqttSession(f"mqtt{number}", self.port, self.publishers) for number in range(2)]
        for publisher in self.publishers.values():
            publisher.start()

    def live(self, root: str) -> None:
        """One run of the network, until the moment at which it is killed."""
        for session in self.sessions:
            if session.is_away == (self.dice.random() < 0.5):
                session.resume() if session.is_away else session.leave()
        change(root, self.dice, self.retained)
        before, self.allowed = self.allowed, self.allowed + TOGETHER
        for publisher in self.publishers.values():
            publisher.allow(TOGETHER)
        watched = self.dice.choice(list(self.publishers.values()))
        watched.wait_for(before + self.dice.randrange(TOGETHER), f"before kill {self.kills}")
        self.kills += 1

    def note_kill(self) -> None:
        """The network was killed."""
        for publisher in self.publishers.values():
            publisher.note_kill()
        for session in self.sessions:
            session.note_kill()

    def finish(self, root: str) -> int:
        """Lets all users finish, and checks what they have. Returns how many messages came twice."""
        assert read_retained(root, len(self.retained)) == self.retained
        for publisher in self.publishers.values():
            publisher.wait_for(self.allowed, "at the end")
        for session in self.sessions:
            if session.is_away:
                session.resume()
            session.catch_up(self.wills)
        twice = sum(session.check() for session in self.sessions)
        for session in self.sessions:
            session.leave()
        for publisher in self.publishers.values():
            publisher.stop()
        return twice


def die(world: World, count: int, end: Callable[[Network], None]) -> int:
    """Lets a world die so many times. Returns how many messages came twice."""
    for _ in range(count):
        with network_up(world.file, world.state, flags=()) as (network, root):
            if not world.sessions:
                world.begin(root)
            assert read_retained(root, len(world.retained)) == world.retained, f"after kill {world.kills}"
            has_will = count > KILLS and world.dice.random() < 0.2  # It is published 15 s after a restart.
            with client_with_will(root) if has_will else nullcontext():
                world.live(root)
                end(network)
            world.note_kill()
            world.wills += has_will
    with network_up(world.file, world.state, flags=()) as (_, root):
        return world.finish(root)


@pytest.mark.timeout(3_600)
def test_all_processes_are_killed_at_random_moments(
    tmp_path: Path, is_long: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(tmp_path, tmp_path / "state", seed=1)
    twice = die(world, LONG_KILLS if is_long else KILLS, Network.kill)
    if is_long:
        with capsys.disabled():
            print(f"\n{world.kills} kills, {world.allowed} messages a publisher, {twice} twice as documented")


@pytest.mark.timeout(3_600)
def test_the_power_of_the_disk_is_cut_at_random_moments(
    tmp_path: Path, is_long: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    need_disk()
    with Disk(tmp_path / "disk.img", tmp_path / "disk") as disk:
        world = World(tmp_path, disk.mount_point / "state", seed=2)

        def cut(network: Network) -> None:
            network.suspend()
            disk.cut_power()
            network.kill()
            disk.restore()

        twice = die(world, LONG_CUTS if is_long else CUTS, cut)
    if is_long:
        with capsys.disabled():
            print(f"\n{world.kills} cuts, {world.allowed} messages a publisher, {twice} twice as documented")
