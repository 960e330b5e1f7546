"""The measurement of the gateway, in short: one load for all brokers of MQTT, and nobody is left behind."""

from __future__ import annotations

import shutil

import pytest

from bench.contestants.brokers import Broker
from bench.contestants.peers import Mosquitto, Nats
from bench.results.report import as_text, not_installed
from tests.bench.runs import assert_whole, has_two_cpus, left_behind, measured, start


@pytest.mark.skipif(not has_two_cpus, reason="a CPU for the broker and one for the load")
def test_what_it_measures_is_whole() -> None:
    loads = {(2, 1, None), (1, 20, None)}
    flags = ["--pairs", "2", "--subscribers", "20", "--qos", "1", "--rate", "0", "--json"]
    found = measured(start("bench.gateway", *flags))
    left_out = {sentence.partition(" ")[0] for sentence in found["left_out"]}
    for name in {"hbroker", "mosquitto", "nats-server"} - left_out:
        series = [one for one in found["series"] if one["broker"] == name]
        measures = {(one["pairs"], one["subscribers"], one["rate"], one["qos"]) for one in series}
        assert measures == {(*load, 1) for load in loads}
        for one in series:
            assert_whole(one)
    assert not left_behind()
    if left_out:
        pytest.skip(f"whole, but without {', '.join(left_out)}: not installed")


@pytest.mark.parametrize("peer", [Mosquitto(), Nats()])
def test_a_peer_that_is_not_there_is_left_out_with_a_word(
    peer: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert peer.version() is None
    assert as_text([], [not_installed(peer.name)]).endswith(f"{peer.name} is not installed: not measured")
