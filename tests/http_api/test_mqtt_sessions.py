"""Sessions of stock MQTT clients, made, emptied and ended by HTTP."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.http_api.api import Api
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE
from tests.waiting import until

TOPIC = "home/kitchen/oven"


@pytest.fixture(autouse=True)
def _stock_clients() -> None:
    need_mosquitto()


class Device:
    """A stock client of MQTT 5 with a persistent session."""

    def __init__(self, api: Api, name: str, workspace: str | None = None) -> None:
        self.name, self.workspace = name, workspace
        self._flags = ("-p", api.port(workspace), "-i", name, "-c", "-V", "5", "-x", "600", "-q", "1")

    def command(self, filter: str, *flags: str) -> list[str]:
        """A client that subscribes to a filter, which it may have in its session."""
        return ["mosquitto_sub", *self._flags, "-t", filter, *flags]

    def receive(self, filter: str, count: int) -> list[str]:
        """Connects, and receives so many messages."""
        command = self.command(filter, "-C", str(count), "-W", str(int(PATIENCE)))
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE, check=True)
        return done.stdout.splitlines()

    def session(self, **more: Any) -> dict[str, Any]:
        """The body of a request for a session."""
        named = {"client": self.name, "workspace": self.workspace}
        return {**named, "session_expiry": 600, "subscriptions": [_one(TOPIC)], **more}


def _one(filter: str, qos: int = 1) -> dict[str, Any]:
    return {"filter": filter, "qos": qos}


def publish(api: Api, payloads: Sequence[str], topic: str = TOPIC, workspace: str | None = None) -> None:
    """A stock client publishes these, at QoS 1."""
    command = ["mosquitto_pub", "-p", api.port(workspace), "-t", topic, "-q", "1", "-l"]
    subprocess.run(
        command, input="".join(f"{each}\n" for each in payloads), text=True, check=True, timeout=PATIENCE
    )


def listed(api: Api, client: str) -> dict[str, Any] | None:
    """What the gateways say of a client; None: nothing."""
    found: list[dict[str, Any]] = api.get("/v1/clients")["items"]
    return next((each for each in found if each["client"] == client), None)


def test_a_device_gets_what_came_before_its_first_connection(api: Api) -> None:
    device = Device(api, "oven-1")
    made = api.post(
        "/v1/clients", device.session(subscriptions=[_one("home/+/oven"), _one("home/attic/#", 0)])
    )
    assert (made["existed"], made["owners"]) == (False, ["attic", "kitchen", "root"])
    entry = listed(api, "oven-1")
    assert entry is not None
    assert (entry["state"], entry["subscriptions"], entry["session_expiry_s"]) == ("offline", 2, 600)
    sent = [str(number) for number in range(100)]
    publish(api, sent)
    assert device.receive("home/+/oven", 100) == sent
    publish(api, ["later"])  # Its gateway goes on with the session.
    assert device.receive("home/+/oven", 1) == ["later"]


def test_subscriptions_are_added_to_a_session(api: Api) -> None:
    device = Device(api, "oven-2")
    api.post("/v1/clients", device.session())
    publish(api, ["before"])
    made = api.post("/v1/clients", device.session(subscriptions=[_one("home/attic/#")]))
    assert (made["existed"], made["subscriptions"]) == (False, [TOPIC, "home/attic/#"])
    again = api.post("/v1/clients", device.session(subscriptions=[_one("home/attic/#")]))
    assert again["existed"]
    publish(api, ["between"], "home/attic/lamp")
    assert sorted(device.receive(TOPIC, 2)) == ["before", "between"]


def test_a_purge_discards_what_waits_and_nothing_else(api: Api) -> None:
    device = Device(api, "oven-3")
    api.post("/v1/clients", device.session())
    publish(api, ["old"] * 50)
    purged = api.post("/v1/clients/purge", {"client": "oven-3"}, status=200)
    assert (purged["subscriptions"], purged["owners"]) == ([TOPIC], ["kitchen"])
    publish(api, ["new"])
    assert device.receive(TOPIC, 1) == ["new"]
    # That connection left a session whose gateway has written its record.
    publish(api, ["old"] * 5)
    api.post("/v1/clients/purge", {"client": "oven-3"}, status=200)
    publish(api, ["newer"])
    assert device.receive(TOPIC, 1) == ["newer"]


def test_an_ended_session_is_gone_at_owners_and_gateways(api: Api) -> None:
    device = Device(api, "oven-4")
    api.post("/v1/clients", device.session())
    publish(api, ["old"])
    api.post("/v1/clients/end-session", {"client": "oven-4"}, status=200)
    until(lambda: listed(api, "oven-4") is None, "it is gone", PATIENCE)
    publish(api, ["nobody waits for it"])
    api.post("/v1/clients", device.session())
    publish(api, ["new"])
    assert device.receive(TOPIC, 1) == ["new"]
    for order in ("purge", "end-session"):
        problem = api.post(f"/v1/clients/{order}", {"client": "nobody"}, status=404)
        assert problem["detail"] == "the client nobody has no session"


def test_the_session_of_a_connected_client_is_its_own(api: Api) -> None:
    device = Device(api, "oven-5")
    with subprocess.Popen(device.command(TOPIC), stdout=subprocess.PIPE, text=True) as running:
        until(lambda: (listed(api, "oven-5") or {}).get("state") == "connected", "it is connected", PATIENCE)
        for path, body in (
            ("/v1/clients", device.session()),
            ("/v1/clients/purge", {"client": "oven-5"}),
            ("/v1/clients/end-session", {"client": "oven-5"}),
        ):
            problem = api.post(path, body, status=409)
            assert problem["detail"] == "the client oven-5 is connected to gateway"
        publish(api, ["still there"])
        assert running.stdout is not None
        assert running.stdout.readline() == "still there\n"
        running.kill()


@pytest.mark.parametrize("filter", ["home/#/oven", "$SYS/#", "$share/g/$SYS/#", "$gateway/#"])
def test_no_session_has_a_filter_that_no_mqtt_client_may_have(api: Api, filter: str) -> None:
    body = Device(api, "oven-6").session(subscriptions=[_one(filter)])
    assert "no MQTT client may subscribe to" in api.post("/v1/clients", body, status=422)["detail"]
    assert listed(api, "oven-6") is None


def test_clients_of_two_workspaces_never_meet(api: Api) -> None:
    devices = [Device(api, "oven-7", workspace) for workspace in (None, "acme", "other")]
    for device in devices:
        made = api.post("/v1/clients", device.session())
        assert (made["workspace"], made["existed"]) == (device.workspace, False)
    for device in devices:
        publish(api, [f"for {device.workspace}"], workspace=device.workspace)
    for device in devices[1:]:
        body = {"client": "oven-7", "workspace": device.workspace}
        if device.workspace == "other":
            api.post("/v1/clients/purge", body, status=200)
            publish(api, ["after the purge"], workspace="other")
    received = {device.workspace: device.receive(TOPIC, 1) for device in devices}
    assert received == {None: ["for None"], "acme": ["for acme"], "other": ["after the purge"]}
