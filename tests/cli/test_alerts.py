"""Alerts reach the network whenever it is up, and clients that subscribe later, too."""

from __future__ import annotations

import socket

from hbroker import sync
from hbroker.cli.analysis.alerts import PREFIX, Announcer
from tests.product.network import PATIENCE
from tests.product.node import node_up
from tests.waiting import until

RAISED = {"saturation/node/kitchen": (b'{"state": "raised"}', True)}
CLEARED = {"saturation/node/kitchen": (b'{"state": "cleared"}', False)}


def test_an_alert_is_published_when_the_network_is_up_and_again_after_its_restart() -> None:
    said: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        root = f"127.0.0.1:{free.getsockname()[1]}"
    with Announcer(root, said.append, timeout=1.0, repeat_s=1.0) as announcer:
        announcer.tell(RAISED)
        until(lambda: len(said) == 1, "nobody is there", PATIENCE)
        assert "alerts wait" in said[0]
        with node_up("--listen", root) as node:
            assert _retained(root) == RAISED["saturation/node/kitchen"][0]
            node.kill()
        with node_up("--listen", root):
            assert _retained(root) == RAISED["saturation/node/kitchen"][0], "told again, word for word"
            announcer.tell(CLEARED)
            until(lambda: _retained(root) == CLEARED["saturation/node/kitchen"][0], "it is cleared", PATIENCE)


def test_at_its_end_the_announcer_reports_the_alerts_that_were_not_published() -> None:
    said: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        root = f"127.0.0.1:{silent.getsockname()[1]}"
        with Announcer(root, said.append, timeout=0.2) as announcer:
            announcer.tell({**RAISED, "drops/node/a#": (b"{}", True)})
    assert [line for line in said if "no topic" in line] == ["'drops/node/a#' is no topic: not told"]
    assert said[-1] == "1 alerts were not told"


def _retained(root: str) -> bytes | None:
    with sync.connect(root) as client, client.subscribe(f"{PREFIX}#", qos=1) as messages:
        message = messages.next(timeout=PATIENCE)
    assert message is not None
    assert message.topic == f"{PREFIX}saturation/node/kitchen"
    return message.payload
