"""The statuses of nodes as text for Prometheus, by `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from hbroker.metrics.families import FAMILIES, LABELLED

__all__ = ["exposition"]

Metric = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily


def exposition(
    statuses: Iterable[tuple[dict[str, Any], bool]],
    topics: Mapping[str, tuple[float, float]] | None = None,
    accept: str = "",
) -> tuple[bytes, str]:
    """The metrics of nodes, and the media type of that text.

    `statuses`: of each node, and whether it is up. `topics`: of the hottest topics, and of `other`, the
    messages received and sent for each second. `accept`: what the scraper reads (RFC 9110 §12.5.1):
    OpenMetrics, if it says so; otherwise the text of Prometheus.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Statuses(list(statuses), topics or {}))
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Statuses(Collector):
    """Turns statuses into metrics."""

    def __init__(
        self, statuses: list[tuple[dict[str, Any], bool]], topics: Mapping[str, tuple[float, float]]
    ) -> None:
        self._statuses = statuses
        self._topics = topics

    def collect(self) -> Iterator[Metric]:
        """All metrics, each with a sample for each node or topic."""
        yield from self._labelled()
        for family in FAMILIES:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=["node"])
            for status, _ in self._statuses:
                value = status.get(family.key)
                if isinstance(value, int | float):
                    metric.add_metric([str(status["name"])], value)
            yield metric

    def _labelled(self) -> Iterator[Metric]:
        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "info": InfoMetricFamily}
        labelled: dict[str, Any] = {
            each.name: kinds[each.kind](
                each.name, each.help, labels=each.labels if each.kind != "info" else ["node"]
            )
            for each in LABELLED
        }
        for status, is_up in self._statuses:
            name = str(status["name"])
            labelled["hbroker_node_up"].add_metric([name], int(is_up))
            what = {key: str(status.get(key) or "") for key in ("subtree", "parent", "address")}
            labelled["hbroker_node"].add_metric([name], what)
            for reason, count in sorted(dict(status.get("drops") or {}).items()):
                if count:
                    labelled["hbroker_dropped"].add_metric([name, str(reason)], count)
        for topic, (received, sent) in self._topics.items():
            labelled["hbroker_topic_received_messages_per_second"].add_metric([topic], received)
            labelled["hbroker_topic_sent_messages_per_second"].add_metric([topic], sent)
        yield from labelled.values()
