"""Nothing of QoS 1 is lost, whatever ends: the bridge, the other broker, an owner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bridge.site import PATIENCE_S, Site, messages_of, publish, site_with
from tests.interop.peer import Peer, connected
from tests.mosquitto.broker import Mosquitto
from tests.needs import need_mosquitto
from tests.waiting import until

KEPT = "persistence true\npersistence_location {directory}/\nmax_queued_messages 0\n"
EACH = 100
"""Messages in each direction between two disruptions."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A network whose bridge has no broker yet."""
    need_mosquitto()
    broker = Mosquitto(tmp_path, KEPT.format(directory=tmp_path))
    topics = [
        {"filter": "up/#", "local_prefix": "home/kitchen/"},
        {"filter": "down/#", "direction": "in", "local_prefix": "home/kitchen/"},
    ]
    with site_with(tmp_path, broker, [{"name": "cloud", "client_id": "cloud", "topics": topics}]) as site:
        yield site


def restart(site: Site) -> None:
    """Ends mosquitto, and starts it again with what it has stored."""
    site.broker.end()
    site.broker.start()


def test_no_message_is_lost(site: Site) -> None:
    with connected(site.here("before")) as local:
        publish(local, "home/kitchen/up/0", b"while the broker was down")
        publish(local, "home/kitchen/up/kept", b"retained", retained=True)
    site.broker.start()
    with (
        connected(site.there("remote", kept=True)) as remote,
        connected(site.here("local", kept=True)) as local,
    ):
        remote.subscribe(("home/kitchen/#", 1), ("up/#", 1))
        local.subscribe(("home/kitchen/down/#", 1))
        site.await_connected("cloud")
        disruptions: tuple[Callable[[], None], ...] = (
            lambda: site.kill("cloud"),
            lambda: restart(site),
            lambda: site.network.kill_node("kitchen"),
            lambda: site.kill("cloud"),
        )
        sent = 0
        for disrupt in (*disruptions, None):
            for _ in range(EACH):
                sent += 1
                local.client.publish("home/kitchen/up/n", b"%d" % sent, 1)
                remote.client.publish("down/n", b"%d" % sent, 1)
            for peer in (local, remote):  # Both directions are under way.
                await_payloads(peer, {b"%d" % (sent - EACH + 1)}, site)
            if disrupt is not None:
                disrupt()
        wanted = {b"%d" % number for number in range(1, sent + 1)}
        await_payloads(remote, wanted | {b"while the broker was down", b"retained"}, site)
        await_payloads(local, wanted, site)
        assert {topic for topic, _ in messages_of(local)} == {"home/kitchen/down/n"}


def missing(peer: Peer, wanted: set[bytes]) -> list[str]:
    return sorted(
        (payload.decode() for payload in wanted - peer.payloads()), key=lambda text: (len(text), text)
    )


def await_payloads(peer: Peer, wanted: set[bytes], site: Site) -> None:
    until(
        lambda: wanted <= peer.payloads(),
        "all messages",
        PATIENCE_S,
        found=lambda: f"{missing(peer, wanted)} are missing; {site.log('cloud')}",
    )
