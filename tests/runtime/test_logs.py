"""Each log line is one event, as text or as JSON, whatever its fields contain."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from hbroker.runtime import logs

log = logs.EventLog("test")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    logger = logging.getLogger("hbroker")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


def lines(style: logs.Style, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(node="kitchen", style=style, level=level, stream=stream)
    return stream


def test_a_text_line_has_time_level_node_event_and_fields() -> None:
    stream = lines("text")
    log.info("joined", parent="root", epoch=12, holder=None)
    time, rest = stream.getvalue().split(" ", 1)
    assert time.endswith("Z")
    assert rest == "info  kitchen joined parent=root epoch=12 holder=null\n"


@pytest.mark.parametrize("value", ["two words", 'a "quote"', "line\nbreak", "", "\x1b[31m", "a=b"])
def test_a_text_line_quotes_special_values_and_stays_one_line(value: str) -> None:
    stream = lines("text")
    log.warning("refused", why=value)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line.partition("why=")[2]) == value


def test_a_json_line_is_one_object() -> None:
    stream = lines("json")
    log.error("refused", why="a\nb", level="mine", node="other", address=("127.0.0.1", 1), odd={1})
    (line,) = stream.getvalue().splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "error",
        "node": "kitchen",
        "event": "refused",
        "why": "a\nb",
        "address": ["127.0.0.1", 1],
        "odd": "{1}",
    }


def test_lower_levels_are_not_logged() -> None:
    stream = lines("text", "warning")
    log.debug("seen")
    log.info("joined")
    log.warning("lease_lost")
    assert [line.split()[3] for line in stream.getvalue().splitlines()] == ["lease_lost"]


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_exception_is_logged_with_its_traceback(style: logs.Style) -> None:
    stream = lines(style)
    try:
        raise ValueError("seven")
    except ValueError:
        log.exception("failed", step=7)
    assert "ValueError: seven" in stream.getvalue()
    assert "Traceback" in stream.getvalue()


def test_a_percent_sign_in_an_event_is_not_a_format() -> None:
    stream = lines("text")
    log.info("100%s")
    assert stream.getvalue().endswith(" 100%s\n")
