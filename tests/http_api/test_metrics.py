"""Metrics: the text that Prometheus reads, and what is made of the list."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hbroker.metrics.exposition import exposition
from hbroker.metrics.families import ALERTS, FAMILIES, LABELLED
from tests.needs import need_promtool

PACKAGING = Path(__file__).parent.parent.parent / "packaging"
STATUS = {
    "name": 'a"\n\\',
    "subtree": "home",
    "parent": None,
    "address": "127.0.0.1:1",
    "messages_in": 7,
    "cpu_s": 0.5,
    "drops": {"queue_full": 3},
}


def test_prometheus_reads_what_is_written() -> None:
    text, media_type = exposition(
        [(STATUS, True), ({"name": "b"}, False)],
        {"home/oven": (2.0, 4.0)},
        accept="application/openmetrics-text; version=1.0.0",
    )
    assert media_type.startswith("application/openmetrics-text")
    samples = {
        (sample.name, sample.labels.get("node", sample.labels.get("topic"))): sample.value
        for family in text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
    }
    name = STATUS["name"]
    assert samples["hbroker_messages_received_total", name] == 7
    assert samples["hbroker_cpu_seconds_total", name] == 0.5
    assert samples["hbroker_dropped_total", name] == 3
    assert (samples["hbroker_node_up", name], samples["hbroker_node_up", "b"]) == (1, 0)
    assert ("hbroker_messages_received_total", "b") not in samples
    assert samples["hbroker_topic_sent_messages_per_second", "home/oven"] == 4


def test_names_follow_the_conventions() -> None:
    for family in FAMILIES:
        assert family.name.startswith("hbroker_")
        assert not family.name.endswith("_total")
        assert family.help.endswith(".")
    names = [family.name for family in FAMILIES] + [family.name for family in LABELLED]
    assert len(set(names)) == len(names)


def test_alerts_and_the_board_name_samples_that_there_are() -> None:
    samples = {family.sample for family in FAMILIES} | {family.sample for family in LABELLED}
    board = json.loads((PACKAGING / "grafana" / "hbroker.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    expressions += [alert.expression for alert in ALERTS if alert.name != "HbrokerApiDown"]
    assert len(expressions) > len(FAMILIES)
    for expression in expressions:
        assert any(sample in expression for sample in samples), expression
    rules = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())
    assert [rule["alert"] for rule in rules["groups"][0]["rules"]] == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("what", ["rules", "metrics"])
def test_promtool_has_no_objection(what: str) -> None:
    need_promtool()
    if what == "rules":
        command, given = ["promtool", "check", "rules", str(PACKAGING / "prometheus" / "alerts.yaml")], b""
    else:
        command, given = ["promtool", "check", "metrics"], exposition([(STATUS, True)])[0]
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
