"""The two pairs of programs that the tests compare, each with its broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hbroker import sync
from tests.clients.programs import Family, HBrokerPrograms, mosquitto, root_node


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Family, Family]]:
    """mosquitto and its clients, and a root node with hpub and hsub."""
    with (
        mosquitto(tmp_path_factory.mktemp("mosquitto")) as theirs,
        root_node() as (host, port),
        sync.connect((host, port)) as client,
    ):
        yield theirs, HBrokerPrograms(port, client)
