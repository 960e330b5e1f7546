"""The report in a browser: it is complete at every width, each time is in its place, the console is empty,
and nothing is fetched."""

from __future__ import annotations

import html
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hbroker.spark_analysis.report import Section, page
from hbroker.spark_analysis.report.charts import COLOURS, HEAT_LEVELS
from hbroker.spark_analysis.report.icicle import icicle_of
from hbroker.spark_analysis.report.markup import micros, number, percent, size, tag
from tests.needs import need_chromium

WIDTHS = (1280, 800, 390)
NO_TABLE_SCROLLS_FROM = 800
LONG = "home/outside/garden/behind-the-greenhouse/soil-sensor-2/reading"
EVIL = "<script>alert('x')</script>&\"'"
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)

PROBE = """
const frame = document.querySelector("iframe");
const page = frame.contentDocument, view = frame.contentWindow;
const all = (what) => [...page.querySelectorAll(what)];
const mark = all("[data-tip]")[3], box = mark.getBoundingClientRect();
const at = {bubbles: true, clientX: box.x + 1, clientY: box.y + 1};
mark.dispatchEvent(new view.PointerEvent("pointermove", at));
const drawn = (e) => { const b = e.getBoundingClientRect(); return b.width > 0 && b.height > 0; };
const strip = page.querySelector(".heat-row svg"), lies = strip.getBoundingClientRect();
const begins = (e) => (e.getBoundingClientRect().left - lies.left) / lies.width;
const told = {
  overflow: page.documentElement.scrollWidth - view.innerWidth,
  sections: all("section h2").map((e) => e.textContent),
  cells: all(".heat rect").filter(drawn).length,
  places: [...strip.querySelectorAll("rect")].map(begins),
  strokes: all(".over-time path.line").map((e) => e.getAttribute("d").split("M").length - 1),
  gaps: all("rect.gap").filter(drawn).length,
  scrolling: all(".table").filter((e) => e.scrollWidth > e.clientWidth).length,
  boxes: all(".box").filter(drawn).length,
  lines: all("path.line").filter((e) => e.getTotalLength() > 0).length,
  smallest: Math.min(...all("td, th, p, span").map((e) => parseFloat(view.getComputedStyle(e).fontSize))),
  wide: all("section > *").filter((e) => e.getBoundingClientRect().right > view.innerWidth + 1).length,
  tip: page.getElementById("tip").textContent,
  tipShown: drawn(page.getElementById("tip")),
  expected: mark.dataset.tip,
  ink: view.getComputedStyle(page.body).color,
};
document.body.textContent = JSON.stringify(told);
"""


@pytest.fixture(scope="module")
def report() -> str:
    """The page of an invented network with malicious topics."""
    more = Section("Plan", "A section of another part.", tag("p", "before and after"))
    return page(*_measured(), more=[more])


@pytest.fixture(scope="module", params=WIDTHS)
def looked_at(request: pytest.FixtureRequest, report: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the browser reports of the page at a given width, and its console."""
    folder = tmp_path_factory.mktemp("browser")
    style = f"border:0;width:{request.param}px;height:900px"
    frame = f'<iframe style="{style}" srcdoc="{html.escape(report)}"></iframe>'
    probe = f'<script>addEventListener("load", () => {{{PROBE}}})</script>'
    (folder / "frame.html").write_text(f"<!doctype html><body>{frame}{probe}</body>", encoding="utf-8")
    command = [
        need_chromium(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1400,1000",
        "--dump-dom",
        f"file://{folder / 'frame.html'}",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    (said,) = re.findall(r"<body>(\{.*\})</body>", ran.stdout, re.DOTALL)
    console = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(said)) | {"width": request.param}, console


def test_the_page_is_complete_and_fits_every_width(looked_at: Any) -> None:
    told, console = looked_at
    assert console == []
    assert told["overflow"] <= 0
    assert told["wide"] == 0
    assert told["scrolling"] == 0 or told["width"] < NO_TABLE_SCROLLS_FROM
    assert told["cells"] == 2 * 4 * 30
    assert told["boxes"] == 4
    assert told["lines"] == 1 + 1 + 2
    assert told["smallest"] >= 10
    assert "Plan" in told["sections"]
    assert len(told["sections"]) == 10


def test_each_window_is_drawn_at_its_time(looked_at: Any) -> None:
    """Ten windows are missing behind the twentieth. The gap is as wide as ten windows, and no line crosses
    it."""
    told, _ = looked_at
    expected = [column / 40 for column in (*range(20), *range(30, 40))]
    assert told["places"] == pytest.approx(expected, abs=0.002)
    assert told["strokes"] == [2, 2, 2]
    assert told["gaps"] == 2


def test_a_large_message_counts_as_one_message(report: str) -> None:
    """Four nodes with a thousand messages in and two thousand out. Their load counts fragments."""
    assert "<span>messages handled</span><b>12 k</b>" in report
    assert "by owners, in and out; 3 M with each part of large ones" in report
    assert "<span>payload</span><b>246 MB</b>" in report


def test_without_costs_the_page_shows_no_capacity_and_no_forecast() -> None:
    """No node has them, and the lead says so."""
    summary, tables = _measured()
    tables["forecast"] = [row for row in tables["forecast"] if row["outlook"] == "unknown"]
    document = page(summary, tables)
    assert "What a message costs cannot be told of any node" in document
    assert "not told" in document


def test_the_tooltip_of_a_mark_shows_its_value(looked_at: Any) -> None:
    told, _ = looked_at
    assert told["tipShown"]
    assert told["tip"] == told["expected"] != ""


def test_the_page_fetches_nothing(report: str) -> None:
    assert not re.findall(r"\b(?:src|href|srcset|action)\s*=|url\(|@import|fetch\(|https?://", report)


def test_the_page_names_its_run_and_the_runs_left_out(report: str) -> None:
    assert "Of one run of the network; 2 others in the same directory left out." in report


def test_topics_of_the_network_are_escaped(report: str) -> None:
    assert "<script>alert" not in report
    assert "&lt;script&gt;alert" in report


def test_lost_messages_are_listed_before_harmless_drops(report: str) -> None:
    assert "did not deliver: 7. The other 900 drops" in report
    assert report.index("queue_full") < report.index("duplicate_delivery")


def test_a_page_with_empty_tables_is_drawn() -> None:
    summary, tables = _measured()
    for name in ("hot_topics", "subtrees", "drops", "latency", "latency_over_time", "fan_out"):
        tables[name] = []
    document = page(summary, tables)
    assert "Nothing was dropped" in document
    assert "No latency was measured" in document


def test_every_colour_is_in_the_style_sheet(report: str) -> None:
    for name in [*(f"h{level}" for level in range(HEAT_LEVELS)), *(f"c{i}" for i in range(COLOURS + 1))]:
        assert f".{name} {{" in report


def test_the_icicle_draws_a_subtree_only_within_its_parent() -> None:
    rows = [_subtree("a", 0.6), _subtree("b", 0.4), _subtree("b/x", 0.3), _subtree("c/orphan", 0.2)]
    boxes = {box.label.split()[0]: box for box in icicle_of(rows, {})}
    assert boxes.keys() == {"a", "b", "x"}
    assert (boxes["b"].left, boxes["b"].width) == (0.6, 0.4)
    assert (boxes["x"].left, boxes["x"].depth) == (0.6, 1)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (number(None), "\N{EN DASH}"),
        (number(0), "0"),
        (number(9_999), "9999"),
        (number(12_345), "12.3 k"),
        (number(0.3421), "0.34"),
        (number(4.56e9), "4.56 G"),
        (size(None), "\N{EN DASH}"),
        (size(512), "512 B"),
        (size(48_300_000), "48.3 MB"),
        (percent(0.41), "41%"),
        (percent(0.004), "0.4%"),
        (micros(1_580), "1.58 ms"),
        (micros(0.5), "0.50 \N{MICRO SIGN}s"),
    ],
)
def test_figures_are_formatted(told: str, text: str) -> None:
    assert told == text


NODES = ["n0", "n1", "n2", "a-node-with-a-long-name"]
SHARES = [0.5, 0.2, 0.2, 0.1]
TIMES = [BEGIN + timedelta(seconds=10 * i) for i in (*range(20), *range(30, 40))]
TRAFFIC = {"bytes_in": 20_500_000, "bytes_out": 41_000_000, "whole_in": 1_000, "whole_out": 2_000}
OF_NODE = {"role": "node", "node": "n0"}


def _measured() -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Four owners, the first with half of the load, over 30 windows and a gap."""
    summary = {
        "begin": TIMES[0].isoformat(),
        "end": TIMES[-1].isoformat(),
        "window_s": 10,
        "runs": [{"begin": TIMES[0].isoformat(), "end": TIMES[-1].isoformat(), "processes": 4}],
        "left_out": [{"begin": BEGIN.isoformat(), "end": BEGIN.isoformat(), "processes": 1}] * 2,
        "files": 12,
        "rows": {"topics": 12_345, "nodes": 1_200},
        "skipped": [{"path": f"file:/{EVIL}", "reason": "empty: no rows"}],
        "dropped": 907,
        "lost": 7,
    }
    return summary, {**_spread(), **_places(), **_service()}


def _spread() -> dict[str, list[dict[str, Any]]]:
    spread = {"role": "node", "nodes": 4, "load": 3_000_000}
    indices = {"max_over_mean": 2.0, "variation": 0.6, "gini": 0.3, "jain": 0.7}
    windows = [
        {"role": "node", "node": node, "window_start": time, "seconds": 10.0, "load": int(1e5 * share)}
        | {"share": share, "busy": share}
        for node, share in zip(NODES, SHARES, strict=True)
        for time in TIMES
    ]
    totals = [
        {"role": "node", "node": node, "rank": rank, "load": int(3e6 * share), "share": share}
        | {"cumulative_share": sum(sorted(SHARES)[:rank])}
        | TRAFFIC
        for rank, (node, share) in enumerate(reversed(list(zip(NODES, SHARES, strict=True))), start=1)
    ]
    return {
        "node_load": windows,
        "nodes": totals,
        "imbalance": [spread | indices],
        "imbalance_over_time": [spread | indices | {"window_start": time} for time in TIMES],
        "accounts": [{**OF_NODE, "agrees": False, "messages_in": 9, "topics_messages_in": 8}],
    }


def _places() -> dict[str, list[dict[str, Any]]]:
    counts = {"messages_in": 5, "messages_out": 9, "fan_out": 1.8, "main_node": NODES[3], "nodes": 1}
    counts |= TRAFFIC
    fan_out = [(None, 0, 2), (0, 1, 7), (65_536, None, 1)]
    return {
        "hot_topics": [
            {"role": "node", "rank": rank, "topic": topic, "load": 9, "share": 0.2, **counts}
            for rank, topic in enumerate((EVIL, LONG, "t" * 200), start=1)
        ],
        "subtrees": [
            _subtree("a", 0.6),
            _subtree(EVIL, 0.4),
            _subtree("a/b", 0.5),
            _subtree("a/c", 0.1),
            _subtree(f"a/{LONG}", 0.1),
        ],
        "fan_out": [
            {"role": "node", "above": above, "at_most": at_most, "topics": topics, **counts}
            for above, at_most, topics in fan_out
        ],
    }


def _service() -> dict[str, list[dict[str, Any]]]:
    measured = {
        "role": "node",
        "messages": 9,
        "p50_us": 90.0,
        "p90_us": 200.0,
        "p99_us": 900.0,
        "p999_us": 4e3,
    }
    rising = {
        "busy": 0.9,
        "load_rate": 1e4,
        "capacity": 1.1e4,
        "saturates_at": TIMES[-1],
        "outlook": "rising",
    }
    unknown = {"busy": None, "load_rate": 1e3, "capacity": None, "saturates_at": None, "outlook": "unknown"}
    return {
        "drops": [
            {**OF_NODE, "window_start": TIMES[0], "reason": reason, "dropped": count}
            for reason, count in (("duplicate_delivery", 900), ("queue_full", 7))
        ],
        "latency": [{**measured, "node": None}, *({**measured, "node": node} for node in NODES)],
        "latency_over_time": [{**measured, "window_start": time} for time in TIMES],
        "cost": [{**OF_NODE, "base_cpu": 0.1, "in_us": 9.0, "out_us": 4.0, "r2": 0.97}],
        "forecast": [{**OF_NODE, **rising}, {**OF_NODE, "node": "n1", **unknown}],
    }


def _subtree(name: str, share: float) -> dict[str, Any]:
    depth = 1 if name == EVIL else name.count("/") + 1
    counts = {"topics": 3, "nodes": 1, "main_node": "n0", "fan_out": None}
    return {
        "role": "node",
        "depth": depth,
        "rank": 1,
        "subtree": name,
        "load": int(share * 100),
        "share": share,
        **counts,
        **TRAFFIC,
    }
