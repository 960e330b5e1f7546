"""Fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.product.house import FILE, House
from tests.product.network import network_up


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A network of its own for each test."""
    file = tmp_path / "house.yaml"
    file.write_text(FILE)
    with network_up(file, tmp_path / "state") as (network, root):
        yield House(network, root)
