"""One network for all of these tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.interop.clients import HAS_MQTTJS, WITHOUT_NODE
from tests.interop.house import House, house_up
from tests.needs import need


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """The network of home.yaml with two gateways."""
    with house_up(tmp_path_factory.mktemp("interop")) as house:
        yield house


@pytest.fixture(scope="session")
def with_mosquitto() -> None:
    """Needs mosquitto's clients."""
    need(shutil.which("mosquitto_rr") is not None, "needs mosquitto's clients")


@pytest.fixture(scope="session")
def with_mqttjs() -> None:
    """Needs MQTT.js."""
    need(HAS_MQTTJS, WITHOUT_NODE)
