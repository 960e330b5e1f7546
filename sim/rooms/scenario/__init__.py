"""A scenario: from a file to frozen settings, or to all errors in it.

    files      finds a scenario by name or path, and loads it
    parse      the text of a file -> a valid `Scenario`
    kinds      the section `kinds`
    ranges     names that stand for many: `floor-[1-4]`
    reading    values of one mapping
    settings   the settings that result

Each module imports only modules below it in this list. `reading` and `parse` use `hbroker.topology.document`.
"""

from .files import bundled_scenarios, load
from .parse import parse
from .settings import Scenario

__all__ = ["Scenario", "bundled_scenarios", "load", "parse"]
