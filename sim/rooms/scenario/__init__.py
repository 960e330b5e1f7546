"""A scenario: from a file to frozen settings, or to everything that is wrong with it.

`settings` is what comes out; `load` reads a file, or one of those that hbroker brings, by its name.
"""

from .files import brought, load
from .parse import parse
from .settings import Scenario

__all__ = ["Scenario", "brought", "load", "parse"]
