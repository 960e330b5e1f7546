"""Settings of all tests: the examples of randomised tests, and the length of long ones.

`make test` uses the same examples in every run, so that a failure is due to a change and not to chance. `make
soak` uses new ones, and more. Hypothesis prints how to reproduce a failure. `--long`, which `make soak`
gives, is for tests that have a short form and a long one.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, settings

# A shell that runs a job in the background makes it ignore Ctrl-C, and the programs under test would ignore
# it, too: a child inherits ignored signals, but no handlers.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Networks are announced there, and commands find them: the tests' own alone.
os.environ["XDG_STATE_HOME"] = mkdtemp(prefix="hbroker-tests-")
# No context of the user who runs the tests has an effect.
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.environ["XDG_STATE_HOME"], "config")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

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
    """Whether the long form was requested."""
    return bool(request.config.getoption("--long"))


@pytest.fixture
def in_long_form(is_long: bool) -> None:
    """Skips a test that has no short form."""
    if not is_long:
        pytest.skip("has no short form: --long")
