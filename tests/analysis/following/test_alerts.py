"""Alerts depend only on the windows. They neither flap nor accumulate."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hbroker.spark_analysis.measures.alerts import (
    CLEARED,
    DROPS,
    IMBALANCE,
    RAISED,
    RELEASE,
    REMEMBERED,
    SATURATION,
    SEVERITIES,
    Alert,
    Measured,
    Rules,
    Subject,
    Thresholds,
    Watches,
    measure,
)

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
WINDOW_S = 10
RULES = Rules(saturation=Thresholds(0.5, 0.8), after=3)
NODE = Subject(SATURATION, "node", "kitchen")
LIMITS = (0.5, 0.8)

Values = list[float | None]

values = st.none() | st.sampled_from([0.0, 0.44, 0.45, 0.5, 0.71, 0.72, 0.8, 1.0]) | st.floats(0, 1)


def start(index: int) -> datetime:
    return BEGIN + timedelta(seconds=index * WINDOW_S)


def levels(sequence: Values, after: int) -> list[int]:
    """The definition of the level after each window, computed from the last windows."""
    found: list[int] = []
    level = 0
    for end in range(1, len(sequence) + 1):
        last = sequence[max(0, end - after) : end]
        if len(last) == after:
            risen = [
                i + 1 for i, limit in enumerate(LIMITS) if all(v is not None and v >= limit for v in last)
            ]
            level = max([level, *risen])
        while level and end >= after and all(v is None or v < RELEASE * LIMITS[level - 1] for v in last):
            level -= 1
        found.append(level)
    return found


def alerts_of(watches: Watches, sequence: Values, first: int = 0) -> list[Alert]:
    alerts: list[Alert] = []
    for index, value in enumerate(sequence, start=first):
        measured = {} if value is None else {NODE: Measured(value, NODE.node)}
        alerts.extend(watches.observe(start(index), measured))
    return alerts


def level_of(alert: Alert) -> int:
    return 0 if alert.severity is None else SEVERITIES.index(alert.severity) + 1


@settings(max_examples=300)
@given(st.lists(values, max_size=60), st.integers(1, 4))
def test_the_level_of_an_alert_follows_from_the_last_windows(sequence: Values, after: int) -> None:
    rules = Rules(saturation=Thresholds(*LIMITS), after=after)
    alerts = alerts_of(Watches(rules, WINDOW_S), sequence)
    expected = [0, *levels(sequence, after)]
    changes = [(start(i), new) for i, (old, new) in enumerate(pairwise(expected)) if old != new]
    assert [(datetime.fromisoformat(a.window_start), level_of(a)) for a in alerts] == changes
    for alert, (_, level) in zip(alerts, changes, strict=True):
        assert alert.state == (RAISED if level else CLEARED)
        assert alert.subject == tuple(NODE)


@settings(max_examples=200)
@given(st.lists(values, max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_crashes_and_batches_do_not_change_the_alerts(sequence: Values, cuts: list[int]) -> None:
    """However the windows are split into batches, with the state as JSON in between, the alerts are the
    same."""
    whole = alerts_of(Watches(RULES, WINDOW_S), sequence)
    parts: list[Alert] = []
    state: list[dict[str, Any]] | None = None
    for begin, end in pairwise([0, *sorted(cuts), len(sequence)]):
        tried = [
            alerts_of(watches := Watches(RULES, WINDOW_S, state), sequence[begin:end], begin)
            for _ in range(2)
        ]
        assert tried[0] == tried[1], "done again after a crash"
        parts.extend(tried[1])
        state = json.loads(json.dumps(watches.state()))
    assert parts == whole
    standing = {alert.subject: alert for alert in whole}
    assert Watches(RULES, WINDOW_S, state).told() == list(standing.values())


@given(st.lists(st.floats(RELEASE * 0.5, 0.5, exclude_max=True) | st.just(0.5), max_size=60))
def test_a_value_near_its_threshold_raises_at_most_one_alert(sequence: Values) -> None:
    assert len(alerts_of(Watches(RULES, WINDOW_S), sequence)) <= 1


def test_a_cleared_alert_is_forgotten_after_a_while() -> None:
    watches = Watches(RULES, WINDOW_S)
    alerts = alerts_of(watches, [*[0.6] * 3, *[None] * 3])
    assert [(alert.state, alert.value) for alert in alerts] == [(RAISED, 0.6), (CLEARED, None)]
    assert alerts_of(watches, [None] * (REMEMBERED - 4), 6) == []
    assert watches.told() == alerts[1:]
    assert alerts_of(watches, [None], REMEMBERED + 2) == []
    assert watches.state() == []


@given(st.lists(st.sampled_from([f"n{i}" for i in range(500)]), min_size=1, max_size=500))
def test_only_subjects_above_a_threshold_are_remembered(names: list[str]) -> None:
    """Nodes that join and leave leave no state behind."""
    watches = Watches(RULES, WINDOW_S)
    for index, name in enumerate(names):
        watches.observe(start(index), {Subject(SATURATION, "node", name): Measured(0.6, name)})
        assert len(watches.state()) <= RULES.after


def test_saturation_drops_and_imbalance_are_measured() -> None:
    rules = Rules(least_rate=10)
    loads = [
        _load("a", load=300, busy=0.5, dropped=100),
        _load("b", load=100, busy=None, dropped=0),
        _load("idle", load=3, busy=0.1, dropped=3, at=1),
    ]
    spreads = [
        {"role": "node", "window_start": start(0), "nodes": 2, "load": 400, "max_over_mean": 1.5},
        {"role": "node", "window_start": start(1), "nodes": 1, "load": 3, "max_over_mean": 1.0},
    ]
    first, second = measure(loads, spreads, WINDOW_S, rules).items()
    assert first == (
        start(0),
        {
            Subject(SATURATION, "node", "a"): Measured(0.5, "a"),
            Subject(DROPS, "node", "a"): Measured(0.25, "a"),
            Subject(DROPS, "node", "b"): Measured(0.0, "b"),
            Subject(IMBALANCE, "node", ""): Measured(1.5, "a"),
        },
    )
    assert second == (start(1), {Subject(SATURATION, "node", "idle"): Measured(0.1, "idle")})


def test_an_idle_network_is_measured() -> None:
    found = measure([_load("a", load=0, busy=0.0, dropped=0)], [], WINDOW_S, Rules(least_rate=0))
    assert found == {start(0): {Subject(SATURATION, "node", "a"): Measured(0.0, "a")}}


def test_an_imbalance_names_the_node_with_the_largest_load() -> None:
    watches = Watches(Rules(after=1), WINDOW_S)
    (alert,) = watches.observe(BEGIN, {Subject(IMBALANCE, "node", ""): Measured(2.5, "kitchen")})
    assert (alert.subject, alert.node, alert.severity, alert.threshold) == (
        ("imbalance", "node"),
        "kitchen",
        "warning",
        2.0,
    )


def _load(node: str, *, load: int, busy: float | None, dropped: int, at: int = 0) -> dict[str, Any]:
    return {
        "role": "node",
        "node": node,
        "window_start": start(at),
        "load": load,
        "busy": busy,
        "dropped": dropped,
    }
