"""The files of scenarios: those of hbroker by name, others by path."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hbroker.topology.document import read_text

from .parse import parse
from .settings import Scenario

__all__ = ["KINDS", "bundled_scenarios", "load"]

_HERE: Final = Path(__file__).parent
_SCENARIOS: Final = _HERE.parent / "scenarios"
KINDS: Final = _HERE / "kinds.yaml"
"""The kinds that every scenario may use."""


def bundled_scenarios() -> tuple[str, ...]:
    """The names of hbroker's own scenarios."""
    return tuple(sorted(path.stem for path in _SCENARIOS.glob("*.yaml")))


def load(name: str) -> Scenario:
    """The scenario with that name, or in that file. Raises ConfigErrors with all errors in it."""
    path = Path(name)
    if name in bundled_scenarios() and not path.is_file():
        path = _SCENARIOS / f"{name}.yaml"
    return parse(read_text(path), file=str(path), common=(read_text(KINDS), str(KINDS)))
