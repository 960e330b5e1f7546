"""The statuses of nodes, and the counters of a gateway, as text for Prometheus: OpenMetrics 1.0, or the text
format before it (0.0.4).

Not by `prometheus_client`: for a thousand nodes it takes ten times as long, because it is made for metrics
that a process counts itself. Its parser reads this text in the tests, and so does `promtool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from hbroker.metrics.families import (
    FAMILIES,
    GATEWAY_FAMILIES,
    LABELLED,
    REFUSALS,
    REFUSED,
    Family,
    LabelledFamily,
)

__all__ = ["OPEN_METRICS", "PLAIN", "exposition", "gateway_exposition"]

OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_INFO: Final = ("subtree", "parent", "address")


def exposition(
    statuses: Iterable[tuple[dict[str, Any], bool]],
    topics: Mapping[str, tuple[float, float]] | None = None,
    accept: str = "",
) -> tuple[bytes, str]:
    """The metrics of nodes, and the media type of that text.

    `statuses`: of each node, and whether it is up. `topics`: of the hottest topics, and of `other`, the
    messages received and sent for each second. `accept`: what the scraper reads (RFC 9110 §12.5.1):
    OpenMetrics, if it says so.
    """
    is_open = _is_open(accept)
    nodes = [(f'node="{_escaped(status["name"])}"', status, is_up) for status, is_up in statuses]
    lines = _plain_samples(FAMILIES, [(label, status) for label, status, _ in nodes], is_open=is_open)
    samples = _labelled(nodes, topics or {})
    for other in LABELLED:
        lines += _labelled_samples(other, samples[other.name], is_open=is_open)
    return _finished(lines, is_open=is_open)


def gateway_exposition(name: str, counters: Mapping[str, Any], accept: str = "") -> tuple[bytes, str]:
    """The metrics of a gateway; otherwise as `exposition`. `counters`: by the names that the gateway has for
    them."""
    is_open = _is_open(accept)
    label = f'gateway="{_escaped(name)}"'
    lines = _plain_samples(GATEWAY_FAMILIES, [(label, counters)], is_open=is_open)
    refused = [(f'{label},reason="{reason}"', counters.get(key, 0)) for reason, key in REFUSALS.items()]
    lines += _labelled_samples(REFUSED, refused, is_open=is_open)
    return _finished(lines, is_open=is_open)


def _is_open(accept: str) -> bool:
    return "application/openmetrics-text" in accept


def _finished(lines: list[str], *, is_open: bool) -> tuple[bytes, str]:
    if is_open:
        lines.append("# EOF")
    text = "\n".join(lines) + "\n"
    return text.encode("utf-8", "replace"), OPEN_METRICS if is_open else PLAIN


def _plain_samples(
    families: Sequence[Family], values: Sequence[tuple[str, Mapping[str, Any]]], *, is_open: bool
) -> list[str]:
    lines: list[str] = []
    for family in families:
        lines += _head(family.name if is_open else family.sample, family.kind, family.help)
        lines += [
            f"{family.sample}{{{label}}} {value}"
            for label, counts in values
            if isinstance(value := counts.get(family.key), int | float)
        ]
    return lines


def _labelled_samples(
    family: LabelledFamily, samples: Iterable[tuple[str, float]], *, is_open: bool
) -> list[str]:
    kind = "gauge" if family.kind == "info" and not is_open else family.kind
    head = _head(family.name if is_open else family.sample, kind, family.help)
    return [*head, *(f"{family.sample}{{{labels}}} {value}" for labels, value in samples)]


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _labelled(
    nodes: Sequence[tuple[str, dict[str, Any], bool]], topics: Mapping[str, tuple[float, float]]
) -> dict[str, list[tuple[str, float]]]:
    """The samples of metrics that have other labels than `node`: the labels of each, and its value."""
    named = [(f'topic="{_escaped(topic)}"', rates) for topic, rates in topics.items()]
    return {
        "hbroker_node_up": [(label, int(is_up)) for label, _, is_up in nodes],
        "hbroker_node": [(f"{label},{_info(status)}", 1) for label, status, _ in nodes],
        "hbroker_dropped": [
            (f'{label},reason="{_escaped(reason)}"', count)
            for label, status, _ in nodes
            for reason, count in _dropped(status)
        ],
        "hbroker_topic_received_messages_per_second": [(label, rates[0]) for label, rates in named],
        "hbroker_topic_sent_messages_per_second": [(label, rates[1]) for label, rates in named],
    }


def _info(status: dict[str, Any]) -> str:
    return ",".join(f'{key}="{_escaped(status.get(key) or "")}"' for key in _INFO)


def _dropped(status: dict[str, Any]) -> Iterator[tuple[str, int]]:
    drops = status.get("drops")
    if isinstance(drops, dict):
        yield from (
            (reason, count) for reason, count in sorted(drops.items()) if isinstance(count, int) and count
        )


def _escaped(value: object) -> str:
    return str(value).translate(_ESCAPES)
