"""One network for all tests of this folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.interop.clients import HAS_MQTTJS, WITHOUT_NODE
from tests.interop.home import HomeNetwork, home_up
from tests.needs import need


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HomeNetwork]:
    """The network of home.yaml with two gateways."""
    with home_up(tmp_path_factory.mktemp("interop")) as home:
        yield home


@pytest.fixture(scope="session")
def with_mosquitto() -> None:
    """Skips, or fails, without mosquitto's clients."""
    need(shutil.which("mosquitto_rr") is not None, "needs mosquitto's clients")


@pytest.fixture(scope="session")
def with_mqttjs() -> None:
    """Skips, or fails, without MQTT.js."""
    need(HAS_MQTTJS, WITHOUT_NODE)
