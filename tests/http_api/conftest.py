"""The API that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http_api.api import Api, api_of


@pytest.fixture(scope="package")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with api_of(tmp_path_factory.mktemp("api")) as running:
        yield running
