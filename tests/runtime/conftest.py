"""A client whose endpoint and control are fakes."""

from __future__ import annotations

import pytest

from tests.runtime.client.client_fakes import FakeEndpoint, install


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> FakeEndpoint:
    """That of the client which the test makes next."""
    return install(monkeypatch)
