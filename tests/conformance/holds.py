"""A test names the normative statements of MQTT 5 that it tests: `@holds("MQTT-3.1.2-4")`.

`scripts.conformance` reads these marks without importing the tests, so the ids are literals. A Rust test
names them in its doc comment: `/// Holds MQTT-3.1.2-4.`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.conformance.statements import IDS

Test = TypeVar("Test", bound=Callable[..., object])


def holds(*statements: str) -> Callable[[Test], Test]:
    """Marks a test that fails where the gateway breaks one of these statements. Raises ValueError for an
    unknown id, and for no id."""
    unknown = set(statements) - set(IDS)
    if unknown or not statements:
        raise ValueError(f"no statements of MQTT 5: {sorted(unknown)}")
    return lambda test: test
