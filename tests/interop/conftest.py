"""One network for all of these tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.interop.clients import HAS_MQTTJS, WITHOUT_NODE
from tests.interop.house import House


def need(is_there: bool, reason: str) -> None:
    """Skips where something is missing, but not in CI: there the test fails."""
    if is_there:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The network of home.yaml with two gateways."""
    house = House(tmp_path_factory.mktemp("interop"))
    yield house
    house.close()


@pytest.fixture(scope="session")
def with_mosquitto() -> None:
    """Needs mosquitto's clients."""
    need(shutil.which("mosquitto_rr") is not None, "needs mosquitto's clients")


@pytest.fixture(scope="session")
def with_mqttjs() -> None:
    """Needs MQTT.js."""
    need(HAS_MQTTJS, WITHOUT_NODE)
