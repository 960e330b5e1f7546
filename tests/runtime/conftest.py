"""A fake endpoint for the client that a test makes."""

from __future__ import annotations

import pytest

from tests.runtime.client.client_fakes import FakeEndpoint, install


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> FakeEndpoint:
    """The endpoint that the test's next client gets."""
    return install(monkeypatch)
