"""How a test says which normative statements of MQTT 5 it holds: `@holds("MQTT-3.1.2-4")`.

`scripts.conformance` reads these marks without importing the tests, so they are written as literals. A Rust
test says the same in its doc comment: `/// Holds MQTT-3.1.2-4.`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.conformance.statements import IDS

Test = TypeVar("Test", bound=Callable[..., object])


def holds(*statements: str) -> Callable[[Test], Test]:
    """The test fails where the gateway breaks one of these. Raises ValueError where there is no such
    statement, or none is named."""
    unknown = set(statements) - set(IDS)
    if unknown or not statements:
        raise ValueError(f"no statements of MQTT 5: {sorted(unknown)}")
    return lambda test: test
