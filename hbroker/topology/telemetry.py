"""Reads the section `telemetry` of a topology file: what processes write about their load
(docs/telemetry.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from hbroker.config import TelemetrySettings
from hbroker.topology.document import Report

__all__ = ["TELEMETRY_KEYS", "read_telemetry"]

RANGES: Final = {
    "interval": (1, 60),
    "file": (1, 3_600),
    "keep_bytes": (1 << 20, 1 << 50),
    "keep_hours": (1, 876_000),
}
"""The keys with a whole number, each with its smallest and largest value."""
TELEMETRY_KEYS: Final = ("enabled", *RANGES, "directory")


def read_telemetry(node: yaml.Node, report: Report, directory: Path) -> TelemetrySettings:
    """Reads the section. The path in it is relative to `directory`, the topology's."""
    values = report.mapping(node, "telemetry", TELEMETRY_KEYS)
    numbers = {key: report.integer(values[key], key, *RANGES[key]) for key in RANGES if key in values}
    enabled = report.truth(values["enabled"], "enabled") if "enabled" in values else True
    place = report.text(values["directory"], "directory") if "directory" in values else None
    if place == "":
        report.error(values["directory"], "directory names no directory", "write its path, or remove the key")
    settings = TelemetrySettings(
        enabled=enabled is not False,
        directory=str(directory / place) if place else "",
        **{key: value for key, value in numbers.items() if value is not None},
    )
    if settings.file < settings.interval:
        message = f"a file is about {settings.file} s, less than an interval of {settings.interval} s"
        report.error(node, message, "give `file` no less than `interval`")
    return settings
