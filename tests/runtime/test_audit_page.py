"""docs/audit.md lists exactly the events that nodes and gateways have, and their fields."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from hbroker.gateway.events import EventQueue
from hbroker.gateway.native_api import ConnectEvent
from hbroker.protocol.events import NodeEvent, event_name
from hbroker.protocol.timers import SECOND
from hbroker.runtime.logs import audit_fields
from hbroker.runtime.node.event_entries import entry_of

PAGE = (Path(__file__).parent.parent.parent / "docs" / "audit.md").read_text("utf-8")
OF_PROCESS = {"authority_changed": {"authorities"}, "certificate_changed": {"certificate"}}
SAMPLES: dict[str, Any] = {"str": "x", "int": 1, "bool": True, "Address": ("192.0.2.1", 7700)}


def listed(heading: str) -> dict[str, set[str]]:
    """The events of one table, with their fields."""
    section = PAGE.partition(f"### {heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", names)) for event, names in rows}


def test_events_of_nodes() -> None:
    found = {}
    for kind in get_args(NodeEvent):
        entry = entry_of(kind(**{field.name: SAMPLES[str(field.type)] for field in fields(kind)}))
        found[event_name(kind)] = set(entry)
        assert not set(entry) & {"v", "time", "node", "event", "dropped"}, "each has a field of its own"
        assert all(isinstance(value, str | int) for value in entry.values())
    assert listed("Events of nodes") == found | OF_PROCESS


def test_events_of_gateways() -> None:
    queue = EventQueue()
    event = ConnectEvent(1, 0, ("192.0.2.1", 1883), 5, "lamp")
    queue.connected(event, "lamp", "ann", is_present=True)
    queue.disconnected(event, "lamp", "client", 0)
    for n in range(20):
        queue.refused(n, event, 0x87, "no")
    queue.refused(2 * SECOND, event, 0x87, "no")
    queue.started_without_mark(10)
    found: dict[str, set[str]] = {}
    while (each := queue.poll()) is not None:
        found.setdefault(each.name, set()).update(each.fields)
    assert listed("Events of gateways") == found


def test_a_record_begins_with_what_the_page_says() -> None:
    record = audit_fields("kitchen", "left", {"subtree": "a", "node": "other", "time": 0})
    assert list(record)[:4] == ["v", "time", "node", "event"]
    assert (record["v"], record["node"], record["event"], record["subtree"]) == (1, "kitchen", "left", "a")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(record["time"]))
