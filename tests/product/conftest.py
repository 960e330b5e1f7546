"""Fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.home import FILE, HomeNetwork
from tests.product.network import network_of


@pytest.fixture
def home(tmp_path: Path) -> Iterator[HomeNetwork]:
    """A network of its own for each test."""
    with network_of(FILE, tmp_path) as (network, root):
        yield HomeNetwork(network, root)
