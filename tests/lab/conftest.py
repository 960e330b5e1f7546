"""These tests create hosts as network namespaces. Where that is not possible they are skipped; in CI they
fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hbroker.sim.lab import Lab, why_impossible
from tests.lab.network import Network
from tests.needs import need

DELEGATED = ("site/a", "site/b", "site/c", "site/d")
OWNED = ("site/hall", *DELEGATED)
"""One topic prefix of each of five owners. The root owns everything outside the other subtrees, such as
the hall."""

SUBTREES = {"root": "", **{subtree[-1]: subtree for subtree in DELEGATED}}
TOPICS = [f"{place}/lamp" for place in OWNED]
FILTERS = [f"{place}/#" for place in OWNED]
"""One filter for each owner. It matches no topics of another owner."""

CLIENTS = ("one", "two", "three", "four")
"""Hosts for clients."""


@pytest.fixture(scope="session", autouse=True)
def hosts_can_be_made() -> None:
    """Skips, or fails, where hosts cannot be created."""
    reason = why_impossible()
    need(reason is None, str(reason))


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Hosts for five owners and some clients, with paths without faults."""
    with Lab([*SUBTREES, *CLIENTS]) as lab:
        yield lab


@pytest.fixture
def network(lab: Lab, tmp_path: Path) -> Network:
    """Five owners that have joined, with paths without faults."""
    network = Network(lab, tmp_path, SUBTREES)
    network.start()
    return network
