"""The statuses of nodes as OpenMetrics text, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from hbroker.metrics.families import FAMILIES

__all__ = ["CONTENT_TYPE_LATEST", "exposition"]

Metric = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily


def exposition(statuses: Iterable[tuple[dict[str, Any], bool]]) -> bytes:
    """The metrics of nodes. `statuses`: of each node, and whether it is up."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Statuses(list(statuses)))
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


class _Statuses(Collector):
    """Turns statuses into metrics."""

    def __init__(self, statuses: list[tuple[dict[str, Any], bool]]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """All metrics, each with a sample for each node."""
        up = GaugeMetricFamily(
            "hbroker_node_up", "1: the node says its status; 0: it is silent.", labels=["node"]
        )
        info = InfoMetricFamily("hbroker_node", "What the node is.", labels=["node"])
        dropped = CounterMetricFamily(
            "hbroker_dropped",
            "Messages and datagrams that were discarded, by reason.",
            labels=["node", "reason"],
        )
        for status, is_up in self._statuses:
            name = str(status["name"])
            up.add_metric([name], int(is_up))
            info.add_metric(
                [name], {key: str(status.get(key) or "") for key in ("subtree", "parent", "address")}
            )
            for reason, count in sorted(dict(status.get("drops") or {}).items()):
                dropped.add_metric([name, str(reason)], count)
        yield from (up, info, dropped)
        for family in FAMILIES:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=["node"])
            for status, _ in self._statuses:
                value = status.get(family.key)
                if isinstance(value, int | float):
                    metric.add_metric([str(status["name"])], value)
            yield metric
