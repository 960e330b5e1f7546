"""Writes docs/metrics.md, the alert rules and the Grafana board from the list of metrics: `python -m
scripts.metrics`.

With `--check` it writes nothing, and fails if a file is not what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from hbroker.metrics.families import (
    ALERTS,
    FAMILIES,
    GATEWAY_FAMILIES,
    LABELLED,
    REFUSALS,
    REFUSED,
    Alert,
    Family,
)

ROOT: Final = Path(__file__).resolve().parent.parent
DOCS: Final = ROOT / "docs" / "metrics.md"
RULES: Final = ROOT / "packaging" / "prometheus" / "alerts.yaml"
BOARD: Final = ROOT / "packaging" / "grafana" / "hbroker.json"

_INTRODUCTION: Final = """\
# Metrics

The [HTTP API](http-api.md) has the metrics of all nodes at `/metrics`.
Prometheus shows it a token that may read `$SYS/#`:

```yaml
scrape_configs:
  - job_name: hbroker
    authorization: {credentials_file: /etc/prometheus/hbroker.token}
    static_configs: [{targets: ["127.0.0.1:7780"]}]
rule_files: [packaging/prometheus/alerts.yaml]
```

`packaging/prometheus/alerts.yaml` has the alert rules below, and `packaging/grafana/hbroker.json` a board for
Grafana (*Dashboards*, *New*, *Import*). Both are made of the same list as this page. Counters are since the
process of the node began. A node publishes them every ten seconds, so a shorter interval of Prometheus brings
nothing.

A node or a gateway also serves its own metrics, with `--metrics HOST:PORT`, or `metrics` at its entry of the
[topology file](topology.md#nodes). Nobody has to show a token there: name an address that only Prometheus
reaches. Scrape a node either there or by the HTTP API, so that its messages are counted once. Gateways have
this way alone.

"""


def main() -> int:
    """Returns 1 if a file is not up to date, and `--check` was given."""
    wanted = {DOCS: _page(), RULES: _rules(), BOARD: _board()}
    stale = [file for file, text in wanted.items() if not file.exists() or file.read_text() != text]
    if "--check" in sys.argv[1:]:
        for file in stale:
            print(
                f"{file.relative_to(ROOT)} is not up to date: run `python -m scripts.metrics`",
                file=sys.stderr,
            )
        return int(bool(stale))
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(wanted[file])
    return 0


def _page() -> str:
    rows = [f"| `{each.sample}` | {each.kind} | `node` | {each.help} |" for each in FAMILIES]
    for other in LABELLED:
        labels = ", ".join(f"`{label}`" for label in other.labels)
        rows.append(f"| `{other.sample}` | {other.kind} | {labels} | {other.help} |")
    gateways = [f"| `{each.sample}` | {each.kind} | `gateway` | {each.help} |" for each in GATEWAY_FAMILIES]
    reasons = ", ".join(f"`{reason}`" for reason in REFUSALS)
    labels = ", ".join(f"`{label}`" for label in REFUSED.labels)
    gateways.append(f"| `{REFUSED.sample}` | {REFUSED.kind} | {labels} | {REFUSED.help} {reasons}. |")
    alerts = [_alert_row(each) for each in ALERTS]
    return (
        _INTRODUCTION
        + "## Nodes\n\n| sample | type | labels | meaning |\n|---|---|---|---|\n"
        + "\n".join(sorted(rows))
        + "\n\n## Gateways\n\n| sample | type | labels | meaning |\n|---|---|---|---|\n"
        + "\n".join(sorted(gateways))
        + "\n\n## Alerts\n\n| alert | if | for | what to do |\n|---|---|---|---|\n"
        + "\n".join(alerts)
        + "\n"
    )


def _alert_row(alert: Alert) -> str:
    expression = alert.expression.replace("|", "\\|")
    return f"| {alert.name} | `{expression}` | {alert.minutes} min | {alert.help} |"


def _rules() -> str:
    rules = [_rule(alert) for alert in ALERTS]
    text = yaml.safe_dump({"groups": [{"name": "hbroker", "rules": rules}]}, sort_keys=False, width=110)
    return f"# Made by `python -m scripts.metrics`: do not edit.\n{text}"


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.help},
    }


def _board() -> str:
    panels = [
        _panel(
            number, family.help, f"rate({family.sample}[1m])" if family.kind == "counter" else family.sample
        )
        for number, family in enumerate(FAMILIES)
    ]
    dropped = LABELLED[-1]
    panels.append(_panel(len(panels), dropped.help, f"sum by (node, reason) (rate({dropped.sample}[5m]))"))
    board = {
        "title": "hbroker",
        "uid": "hbroker",
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus"}]},
        "panels": panels,
    }
    return json.dumps(board, indent=2) + "\n"


def _rate(family: Family) -> str:
    return f"rate({family.sample}[1m])" if family.kind == "counter" else family.sample


def _panel(number: int, title: str, expression: str) -> dict[str, Any]:
    place = {"h": 7, "w": 8, "x": number % 3 * 8, "y": number // 3 * 7}
    source = {"type": "prometheus", "uid": "${source}"}
    target = {"refId": "A", "expr": expression, "legendFormat": "__auto"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title.rstrip("."),
        "datasource": source,
        "gridPos": place,
        "targets": [target],
    }


if __name__ == "__main__":
    sys.exit(main())
