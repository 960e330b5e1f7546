"""Fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.home import FILE, HomeNetwork
from tests.product.network import network_up


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HomeNetwork]:
    """A network of its own for each test."""
    file = tmp_path / "house.yaml"
    file.write_text(FILE)
    with network_up(file, tmp_path / "state") as (network, root):
        yield HomeNetwork(network, root)
