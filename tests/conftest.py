"""What all tests share: how the randomised ones draw their examples, and how long the long ones take.

`make test` draws the same examples in every run, so that a failure is a change's and not chance's. `make
soak` draws fresh ones, and more. Hypothesis prints what reproduces a failure. `--long`, which `make soak`
gives, is for tests that have a short form and a long one.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import HealthCheck, settings

# A shell that runs a job in the background has it ignore Ctrl-C, and so would the programs under test: what
# is ignored stays so in a child, what has a handler does not.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak", deadline=None, max_examples=5_000, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares `--long`."""
    parser.addoption("--long", action="store_true", help="run the long form of tests that have one")


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    """Whether the long form was asked for."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def in_long_form(is_long: bool) -> None:
    """Skips what has no short form."""
    if not is_long:
        pytest.skip("has no short form: --long")
