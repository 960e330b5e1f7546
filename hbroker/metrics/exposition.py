"""The statuses of nodes as text for Prometheus, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hbroker.metrics.families import FAMILIES, LABELLED

__all__ = ["exposition"]

Metric = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily


def exposition(statuses: Iterable[tuple[dict[str, Any], bool]], accept: str = "") -> tuple[bytes, str]:
    """The metrics of nodes, and the media type of that text. `statuses`: of each node, and whether it is up.
    `accept`: what the scraper reads (RFC 9110 §12.5.1): OpenMetrics, if it says so; otherwise the text of
    Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Statuses(list(statuses)))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Statuses(Collector):
    """Turns statuses into metrics."""

    def __init__(self, statuses: list[tuple[dict[str, Any], bool]]) -> None:
        self._statuses = statuses

    def collect(self) -> Iterator[Metric]:
        """All metrics, each with a sample for each node."""
        help = {each.name: each.help for each in LABELLED}
        up = GaugeMetricFamily("hbroker_node_up", help["hbroker_node_up"], labels=["node"])
        info = InfoMetricFamily("hbroker_node", help["hbroker_node"], labels=["node"])
        dropped = CounterMetricFamily("hbroker_dropped", help["hbroker_dropped"], labels=["node", "reason"])
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
