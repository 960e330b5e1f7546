"""The states of alerts, computed from closed windows, without a clock.

An alert has a *subject*: the imbalance of a role, the saturation of a node, or the drops of a node. A subject
has a value in each window, or none: then it is absent, or has too little load for the value to mean
something.

A subject has a *level*: 0, or that of a severity. It rises to a severity when `after` windows in a row reach
its threshold. It falls below the severity when `after` windows in a row are under `RELEASE` times the
threshold. In between nothing changes (hysteresis): a value that oscillates around a threshold raises one
alert and clears it once.

The state of an alert depends only on the windows up to its own. So if the same windows are processed again
after a crash, in any batches, the alerts are the same to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from .loads import WINDOW

IMBALANCE: Final = "imbalance"
SATURATION: Final = "saturation"
DROPS: Final = "drops"

RAISED: Final = "raised"
CLEARED: Final = "cleared"
SEVERITIES: Final = ("warning", "critical")

RELEASE: Final = 0.9
"""The factor of a threshold below which a value counts as normal again."""

REMEMBERED: Final = 360
"""Normal windows after which a cleared alert is forgotten: an hour of windows of ten seconds."""


class Subject(NamedTuple):
    """The subject of an alert. `node`: empty if it is a whole role."""

    alert: str
    role: str
    node: str


@dataclass(frozen=True, slots=True)
class Measured:
    """The value of a subject in a window. `node`: of the subject; for an imbalance, the most loaded node."""

    value: float
    node: str


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The values from which an alert has each severity."""

    warning: float
    critical: float


@dataclass(frozen=True, slots=True)
class Rules:
    """The conditions of alerts."""

    imbalance: Thresholds = Thresholds(2.0, 3.0)
    """Largest load over mean load, of the nodes or the gateways."""
    saturation: Thresholds = Thresholds(0.7, 0.9)
    """CPU time over that of all workers."""
    drops: Thresholds = Thresholds(0.01, 0.1)
    """Dropped messages over handled and dropped messages."""
    after: int = 3
    """Windows in a row that raise or clear an alert."""
    least_rate: float = 10.0
    """Messages a second. With fewer, there is no value of imbalance or drops."""

    def thresholds(self, alert: str) -> tuple[float, ...]:
        """The thresholds of an alert, in the order of `SEVERITIES`."""
        own: Thresholds = getattr(self, alert)
        return own.warning, own.critical


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of an alert, as it is published. Times are those of windows, in ISO 8601 and UTC."""

    alert: str
    role: str
    node: str | None
    """Its node; for an imbalance, the most loaded node."""
    state: str
    severity: str | None
    """None: cleared."""
    value: float | None
    """The value in the window that changed the state. None: there was none."""
    threshold: float
    """The threshold that was reached, or is not reached any more."""
    window_start: str
    """The begin of the window that changed the state."""
    window_s: int

    @property
    def subject(self) -> tuple[str, ...]:
        """The names of its subject: unique among alerts, and the same in all states."""
        return (self.alert, self.role, *([] if self.alert == IMBALANCE or not self.node else [self.node]))


@dataclass(slots=True)
class _Watch:
    """The state of one subject. `hot[i]`: windows in a row at or above threshold i; `cold[i]`: below its
    release."""

    level: int = 0
    hot: list[int] = field(default_factory=lambda: [0, 0])
    cold: list[int] = field(default_factory=lambda: [0, 0])
    told: Alert | None = None

    def observe(self, value: float | None, thresholds: tuple[float, ...], after: int) -> bool:
        """Adds the value of a window. Returns whether the level has changed."""
        for i, threshold in enumerate(thresholds):
            is_hot = value is not None and value >= threshold
            is_cold = value is None or value < RELEASE * threshold
            self.hot[i] = min(self.hot[i] + 1, after) if is_hot else 0
            self.cold[i] = min(self.cold[i] + 1, REMEMBERED) if is_cold else 0
        former = self.level
        risen = max((i + 1 for i, count in enumerate(self.hot) if count >= after), default=0)
        if risen > self.level:
            self.level = risen
        while self.level and self.cold[self.level - 1] >= after:
            self.level -= 1
        return self.level != former

    def is_forgettable(self) -> bool:
        """Whether this state is the initial one, or an old cleared alert."""
        is_old = self.told is None or self.cold[0] >= REMEMBERED
        return self.level == 0 and not any(self.hot) and is_old


class Watches:
    """The subjects that have a state to remember.

    `state`: what `state()` returned; None: no window was observed.
    """

    def __init__(self, rules: Rules, window_s: int, state: Iterable[Mapping[str, Any]] | None = None) -> None:
        self._rules = rules
        self._window_s = window_s
        self._watches = {Subject(*entry["subject"]): _watch(entry) for entry in state or ()}

    def observe(self, start: datetime, measured: Mapping[Subject, Measured]) -> list[Alert]:
        """Observes the next window. Returns the alerts that have changed."""
        changed: list[Alert] = []
        for subject in sorted({*self._watches, *measured}):
            watch = self._watches.setdefault(subject, _Watch())
            thresholds = self._rules.thresholds(subject.alert)
            found = measured.get(subject)
            former = watch.level
            if watch.observe(None if found is None else found.value, thresholds, self._rules.after):
                threshold = thresholds[max(former, watch.level) - 1]
                watch.told = self._alert(subject, watch.level, found, threshold, start)
                changed.append(watch.told)
            elif watch.is_forgettable():
                del self._watches[subject]
        return changed

    def told(self) -> list[Alert]:
        """The last published state of each alert that is remembered."""
        return [watch.told for _, watch in sorted(self._watches.items()) if watch.told is not None]

    def state(self) -> list[dict[str, Any]]:
        """The whole state, ready for JSON."""
        return [{"subject": list(key), **asdict(watch)} for key, watch in sorted(self._watches.items())]

    def _alert(
        self, subject: Subject, level: int, found: Measured | None, threshold: float, start: datetime
    ) -> Alert:
        return Alert(
            alert=subject.alert,
            role=subject.role,
            node=subject.node or (None if found is None else found.node),
            state=RAISED if level else CLEARED,
            severity=SEVERITIES[level - 1] if level else None,
            value=None if found is None else found.value,
            threshold=threshold,
            window_start=start.isoformat(),
            window_s=self._window_s,
        )


def measure(
    loads: Iterable[Mapping[str, Any]], spreads: Iterable[Mapping[str, Any]], window_s: int, rules: Rules
) -> dict[datetime, dict[Subject, Measured]]:
    """The value of each subject in each window, in time order.

    `loads`: rows of `loads.node_load`; `spreads`: rows of `loads.imbalance` by role and window.
    """
    least = rules.least_rate * window_s
    windows: dict[datetime, dict[Subject, Measured]] = {}
    busiest: dict[tuple[datetime, str], tuple[int, str]] = {}
    for row in loads:
        start, role, node = row[WINDOW], row["role"], row["node"]
        found = windows.setdefault(start, {})
        busiest[start, role] = max(busiest.get((start, role), (-1, "")), (row["load"], node))
        if row["busy"] is not None:
            found[Subject(SATURATION, role, node)] = Measured(row["busy"], node)
        handled = row["load"] + row["dropped"]
        if handled >= max(least, 1):
            found[Subject(DROPS, role, node)] = Measured(row["dropped"] / handled, node)
    for row in spreads:
        start, role = row[WINDOW], row["role"]
        if row["nodes"] > 1 and row["load"] >= least and row["max_over_mean"] is not None:
            most = busiest[start, role][1]
            windows[start][Subject(IMBALANCE, role, "")] = Measured(row["max_over_mean"], most)
    return dict(sorted(windows.items()))


def _watch(entry: Mapping[str, Any]) -> _Watch:
    told = entry["told"]
    return _Watch(entry["level"], [*entry["hot"]], [*entry["cold"]], None if told is None else Alert(**told))
