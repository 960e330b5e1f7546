"""mosquitto as a bridge to a gateway, with the default settings of a bridge and some topics."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.interop.clients import PATIENCE_S
from tests.interop.home import HomeNetwork
from tests.interop.lines import Place
from tests.interop.peer import Peer, connected
from tests.needs import need_mosquitto
from tests.waiting import until

FILE = """
listener {port} 127.0.0.1
allow_anonymous true
persistence false
connection {name}
address 127.0.0.1:{gateway}
remote_clientid {name}
topic both/# both 1 {name}/ home/kitchen/{name}/
topic down/# in 2 {name}/ weather/{name}/
topic up/# out 0 {name}/ weather/{name}/
{more}
"""


@contextmanager
def bridged(home: HomeNetwork, directory: Path, name: str, more: str) -> Iterator[Place]:
    """Starts mosquitto, and yields the address for clients. Its process is killed at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    gateway = home.place("one", name).port
    file = directory / "mosquitto.conf"
    file.write_text(FILE.format(port=port, gateway=gateway, name=name, more=more))
    process = subprocess.Popen([need_mosquitto(), "-c", file], stderr=subprocess.DEVNULL)
    try:
        place = Place("127.0.0.1", port, f"{name}-local")
        until(lambda: is_open(place), "mosquitto", PATIENCE_S)
        yield place
    finally:
        process.kill()
        process.wait()


def is_open(place: Place) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((place.host, place.port)) == 0


def publish(peer: Peer, topic: str, text: bytes, *, retained: bool = False) -> None:
    peer.client.publish(topic, text, 1, retain=retained).wait_for_publish(PATIENCE_S)


def await_messages(peer: Peer, messages: dict[tuple[str, bytes], int]) -> None:
    until(
        lambda: received_messages(peer) >= Counter(messages),
        str(messages),
        PATIENCE_S,
        found=lambda: received_messages(peer),
    )


def received_messages(peer: Peer) -> Counter[tuple[str, bytes]]:
    return Counter((message.topic, bytes(message.payload)) for message in list(peer.received))


@pytest.mark.parametrize(
    ("name", "more", "copies"),
    [
        ("plain", "", 1),
        ("oldest", "bridge_protocol_version mqttv31", 1),
        ("newest", "bridge_protocol_version mqttv50", 1),
        # The gateway treats it as any other client. It gets its own messages back, and forwards them.
        ("unmarked", "try_private false", 2),
    ],
)
def test_a_bridge_carries_topics_in_both_directions_without_a_loop(
    home: HomeNetwork, tmp_path: Path, name: str, more: str, copies: int
) -> None:
    state = f"$SYS/broker/connection/{name}/state"
    above, below = f"home/kitchen/{name}", name
    with connected(home.place("two", f"{name}-watcher")) as watcher:
        watcher.subscribe((f"{above}/#", 1), (f"weather/{name}/#", 1), (state, 1))
        with bridged(home, tmp_path, name, more) as place:
            await_messages(watcher, {(state, b"1"): 1})
            with connected(place) as local:
                local.subscribe((f"{below}/#", 1))
                publish(local, f"{below}/both/a", b"from below", retained=True)
                publish(watcher, f"{above}/both/b", b"from above", retained=True)
                publish(watcher, f"weather/{name}/down/c", b"down")
                publish(local, f"{below}/up/d", b"up")
                at_both_ends = {("both/a", b"from below"): 1, ("both/b", b"from above"): 1}
                await_messages(
                    local, {(f"{below}/{topic}", text): n for (topic, text), n in at_both_ends.items()}
                )
                await_messages(
                    local, {(f"{below}/down/c", b"down"): 1, (f"{below}/both/a", b"from below"): copies}
                )
                await_messages(
                    watcher, {(f"{above}/{topic}", text): n for (topic, text), n in at_both_ends.items()}
                )
                await_messages(watcher, {(f"weather/{name}/up/d", b"up"): 1})
                assert received_messages(local).total() == 3 + copies
            assert received_messages(watcher).total() == 5 + received_messages(watcher)[state, b"0"]
        until(lambda: watcher.received[-1].payload == b"0", "the will", PATIENCE_S)
    with connected(home.place("one", f"{name}-late")) as late:
        late.subscribe((state, 1))
        await_messages(late, {(state, b"0"): 1})
    assert late.received[0].retain
