"""These tests make hosts. Where that cannot be done they are skipped, but not in CI: there they fail."""

from __future__ import annotations

import os

import pytest

from hbroker.sim.testbed import why_impossible


@pytest.fixture(scope="session", autouse=True)
def hosts_can_be_made() -> None:
    """Skips, or fails, where they cannot."""
    reason = why_impossible()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
