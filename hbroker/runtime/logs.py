"""Logs: one event per line, for people or for programs.

    2026-11-21T08:50:01.123Z info  kitchen joined parent=root subtree=home/kitchen epoch=12
    {"time": "2026-11-21T08:50:01.123Z", "level": "info", "node": "kitchen", "event": "joined", ...}

An event has a short name in the past tense, and fields; it is never a sentence. The module uses the standard
library's `logging`, so an application that embeds a node can route the events like its other logs.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import IO, Literal

Style = Literal["text", "json"]

_FIELDS = "hbroker_fields"
_LEVEL_NAMES = {"warning": "warn"}


def audit_fields(node: str, event: str, fields: Mapping[str, object]) -> dict[str, object]:
    """The record of an event in the audit (docs/audit.md): as in the log, with a version."""
    moment = _text_of(datetime.now(UTC))
    known: dict[str, object] = {"v": 1, "time": moment, "node": node, "event": event}
    return known | dict(fields) | known


def pairs(fields: Mapping[str, object]) -> list[str]:
    """The fields as `key=value`. A value with spaces, quotes or `=` is written as a JSON string."""
    return [f"{key}={plain(value)}" for key, value in fields.items()]


class EventLog:
    """Logs the events of one part of hbroker, under the logger `hbroker.<part>`."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"hbroker.{part}")

    def debug(self, event: str, **fields: object) -> None:
        """Logs an event that helps to find a defect."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        """Logs an event of normal operation."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Logs an event that was not intended, and from which the process recovers by itself."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Logs an event that needs an operator."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """As `error`, with the traceback of the exception that is being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: dict[str, object], exc_info: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={_FIELDS: fields}, exc_info=exc_info)


def configure(
    *, node: str, style: Style = "text", level: str = "info", stream: IO[str] | None = None
) -> None:
    """Writes the events of this process to `stream` (default: stderr), from `level` on, and to no other
    handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(node) if style == "json" else TextFormatter(node))
    logger = logging.getLogger("hbroker")
    logger.handlers[:] = [handler]
    logger.propagate = False
    set_level(level)


def level() -> str:
    """The level from which on this process writes its events."""
    return logging.getLevelName(logging.getLogger("hbroker").getEffectiveLevel()).lower()


def set_level(level: str) -> None:
    """From now on writes the events of this process that are at least so severe."""
    logging.getLogger("hbroker").setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """`time level node event key=value…`. A value with spaces, quotes or `=` is written as a JSON string."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line, followed by the lines of the traceback, if there is one."""
        level = _LEVEL_NAMES.get(_level(record), _level(record))
        words = [_time(record), f"{level:<5}", self._node, plain(record.getMessage())]
        line = " ".join([*words, *pairs(_fields(record))])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line.

    A field named `time`, `level`, `node` or `event` does not replace the entry of that name.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the fields contain."""
        entry: dict[str, object] = {
            "time": _time(record),
            "level": _level(record),
            "node": self._node,
            "event": record.getMessage(),
        }
        entry = entry | _fields(record) | entry
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def _time(record: logging.LogRecord) -> str:
    return _text_of(datetime.fromtimestamp(record.created, UTC))


def _text_of(moment: datetime) -> str:
    """RFC 3339."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _level(record: logging.LogRecord) -> str:
    return record.levelname.lower()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, _FIELDS, {})
    return fields


def plain(value: object) -> str:
    """The value as one word: as it is, or as a JSON string."""
    text = "null" if value is None else str(value)
    is_plain = text and text.isprintable() and not any(c in ' "=' for c in text)
    return text if is_plain else json.dumps(text)
