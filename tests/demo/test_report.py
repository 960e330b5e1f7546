"""The texts in which the demo reports its results."""

from __future__ import annotations

import io

from rich.console import Console

from hbroker.capture.packet_counts import PacketCounts
from hbroker.demo import report
from hbroker.demo.display import progress_display
from hbroker.demo.house import Node
from hbroker.demo.life import Progress, Watch

ROOT, KITCHEN, CLIENT = ("127.0.0.1", 7700), ("127.0.0.1", 7701), ("127.0.0.1", 40_001)
NODES = (Node("root", "", ROOT), Node("kitchen", "home/kitchen", KITCHEN))


def some_progress(elapsed: float = 4.0) -> Progress:
    progress = Progress(10.0, elapsed, watches=[Watch("home/#", 0, ("kitchen", "root"), 7)])
    progress.published.update({0: 5, 1: 2})
    progress.latest["home/outside/wind"] = b"12.0"
    return progress


def test_the_number_of_publish_packets_between_brokers_is_shown_with_the_total() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(CLIENT, ROOT, ["PUBLISH"] * 3)
    packet_counts.add(KITCHEN, ROOT, ["JOIN"])
    text = "\n".join(report.on_capture(packet_counts, NODES, None))
    assert "loopback interface: 3, in 2 datagrams" in text
    assert "PUBLISH packets between broker addresses:  0" in text
    assert "control packets between broker addresses:  1" in text


def test_a_publish_between_brokers_is_shown() -> None:
    packet_counts = PacketCounts()
    packet_counts.add(ROOT, KITCHEN, ["PUBLISH"])
    assert "PUBLISH packets between broker addresses:  1" in "\n".join(
        report.on_capture(packet_counts, NODES, None)
    )


def test_missed_datagrams_are_shown() -> None:
    assert "missed 4 datagrams" in "\n".join(report.on_capture(PacketCounts(missed=4), NODES, None))


def test_a_capture_that_is_not_permitted_is_shown() -> None:
    text = "\n".join(report.on_capture(None, NODES, "this user may not capture"))
    assert "Not captured: this user may not capture" in text
    assert "counters" in text


def test_published_and_received_messages_are_shown() -> None:
    first, watch = report.on_life(some_progress())
    assert first == "published 7 messages (5 at QoS 0, 2 at QoS 1), 0 failed"
    assert watch.split() == ["home/#", "QoS", "0:", "7", "received", "from", "kitchen,", "root"]


def test_progress_without_a_terminal_is_plain_lines() -> None:
    written = io.StringIO()
    with progress_display(Console(file=written)) as show:
        for tenths in range(0, 101):
            show(some_progress(tenths / 10))
    lines = written.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[-1] == "10.0 of 10 s: 7 published, 7 received"
    assert "\x1b" not in written.getvalue()


def test_progress_on_a_terminal_shows_the_latest_topics() -> None:
    written = io.StringIO()
    with progress_display(Console(file=written, force_terminal=True, width=120, height=40)) as show:
        show(some_progress())
    assert "home/outside/wind" in written.getvalue()
