"""What the routes do, on a real network."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
from contextlib import ExitStack

import httpx

from hbroker import sync
from tests.http_api.api import Api, admin_of
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE
from tests.waiting import until


def test_the_nodes_and_what_they_own(api: Api) -> None:
    nodes = {node["name"]: node for node in api.get("/v1/nodes")["items"]}
    assert nodes["root"]["parent"] is None
    assert nodes["kitchen"]["parent"] == "root"
    assert nodes["kitchen"]["subtrees"] == ["home/kitchen"]
    assert nodes["attic"]["security"] == "on"
    assert api.get("/v1/nodes/kitchen")["address"] == nodes["kitchen"]["address"]
    assert "GET /v1/nodes" in api.get("/v1/nodes/cellar", status=404)["detail"]
    subtrees = {each["subtree"]: each for each in api.get("/v1/subtrees")["items"]}
    assert {"home/attic", "home/kitchen"} <= set(subtrees[""]["delegated"])
    owner = api.get("/v1/owner", topic="home/kitchen/oven")
    assert (owner["node"], owner["subtree"]) == ("kitchen", "home/kitchen")
    assert api.get("/v1/owner", status=422, topic="home/#")["detail"]


def test_a_list_comes_in_pages(api: Api) -> None:
    names, cursor = [], None
    while True:
        page = api.get("/v1/nodes", limit=1, **({} if cursor is None else {"cursor": cursor}))
        names += [node["name"] for node in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert names == ["attic", "kitchen", "root"]
    assert api.get("/v1/nodes", status=400, cursor="§")["title"] == "Bad Request"
    assert api.get("/v1/nodes", status=400, limit=0)["errors"]


def test_messages_are_published_and_followed(api: Api) -> None:
    with api.events("/v1/messages", filter="home/attic/+") as events:
        sent = {"topic": "home/attic/lamp", "payload": "on", "user_properties": [["by", "hand"]]}
        assert api.post("/v1/messages", sent)["subscribers"] is True
        name, message = next(events)
        assert (name, message["topic"], message["payload"]) == ("message", "home/attic/lamp", "on")
        assert message["user_properties"] == [["by", "hand"]]
        api.post(
            "/v1/messages",
            {"topic": "home/attic/raw", "payload_base64": base64.b64encode(b"\xff\0").decode()},
        )
        _, message = next(events)
        assert base64.b64decode(message["payload_base64"]) == b"\xff\0"
    api.post("/v1/messages", {"topic": "a/#", "payload": ""}, status=422)
    api.post("/v1/messages", {"topic": "a", "payload": "", "qos": 3}, status=400)
    api.post("/v1/messages", {"topic": "a", "payload": "", "payload_base64": ""}, status=400)


def test_streams_end_with_the_api(api: Api) -> None:
    """Their readers see the end of the stream, and not a broken connection."""
    headers = {"Authorization": f"Bearer {api.operator}"}
    with admin_of(api.network, api.root) as (url, process), ExitStack() as streams:
        opened = [
            streams.enter_context(httpx.stream("GET", url + path, headers=headers, timeout=PATIENCE))
            for path in ("/v1/events", "/v1/messages?filter=home/never")
        ]
        assert [each.status_code for each in opened] == [200, 200]
        process.send_signal(signal.SIGTERM)
        for each in opened:
            assert not [line for line in each.iter_lines() if line.startswith("event: error")]


def test_retained_messages_are_listed_and_cleared(api: Api) -> None:
    for room in ("bath", "den"):
        api.post("/v1/messages", {"topic": f"flat/{room}", "payload": room, "retain": True})
    page = api.get("/v1/retained", filter="flat/#", limit=1)
    assert [each["topic"] for each in page["items"]] == ["flat/bath"]
    page = api.get("/v1/retained", filter="flat/#", cursor=page["next"])
    assert [(each["topic"], each["payload"]) for each in page["items"]] == [("flat/den", "den")]
    api.post("/v1/retained/clear", {"topic": "flat/bath"}, status=200)
    assert [each["topic"] for each in api.get("/v1/retained", filter="flat/#")["items"]] == ["flat/den"]


def test_retained_messages_are_listed_while_others_come(api: Api) -> None:
    need_mosquitto()
    api.post("/v1/messages", {"topic": "busy/retained", "payload": "1", "retain": True})
    port = api.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    lines = "while echo 1; do sleep 0.05; done"
    command = f"{{ {lines}; }} | exec mosquitto_pub -p {port} -t busy/live -l"
    with subprocess.Popen(["bash", "-c", command], start_new_session=True) as publisher:
        try:
            with api.events("/v1/messages", filter="busy/live") as events:
                next(events)
                assert [each["topic"] for each in api.get("/v1/retained", filter="busy/#")["items"]] == [
                    "busy/retained"
                ]
        finally:
            os.killpg(publisher.pid, signal.SIGTERM)


def test_a_device_that_was_never_connected_gets_what_came_before(api: Api) -> None:
    need_mosquitto()
    token = api.token(read=("home/#",))
    session = {
        "client_id": "oven-17",
        "session_key": "secret",
        "session_expiry": 600,
        "subscriptions": [{"filter": "home/+/oven", "qos": 1}],
    }
    made = api.post("/v1/sessions", session, token)
    assert (made["existed"], made["owners"]) == (False, ["attic", "kitchen", "root"])
    port = api.network.state()["gateways"][0]["listeners"][0].rpartition(":")[2]
    for number in range(5):
        flags = ("-p", port, "-t", "home/kitchen/oven", "-q", "1", "-m", str(number))
        subprocess.run(["mosquitto_pub", *flags], check=True, timeout=PATIENCE)
    listed = [
        each for each in api.get("/v1/sessions", client="oven-17")["items"] if each["node"] == "kitchen"
    ]
    assert [each["state"] for each in listed] in ([], ["offline"])  # A status is up to ten seconds old.
    file = api.state / "oven.token"
    file.write_text(token)
    with (
        sync.connect(
            api.root,
            authority=api.authority,
            token=file,
            client_id="oven-17",
            session_key="secret",
            session_expiry=600,
        ) as device,
        device.subscribe("home/+/oven", qos=1) as messages,
    ):
        assert messages.resumed
        got = [messages.next(timeout=PATIENCE) for _ in range(5)]
    assert [message.payload for message in got if message is not None] == [b"0", b"1", b"2", b"3", b"4"]


def test_mqtt_clients_are_listed_and_disconnected(api: Api) -> None:
    need_mosquitto()
    (gateway,) = api.get("/v1/gateways")["items"]
    assert gateway["name"] == "gateway"
    port = gateway["listeners"][0].rpartition(":")[2]
    flags = ("-p", port, "-V", "5", "-i", "lamp", "-t", "home/#")
    with subprocess.Popen(["mosquitto_sub", *flags], stderr=subprocess.DEVNULL) as lamp:

        def clients() -> list[str]:
            return [each["client"] for each in api.get("/v1/clients", in_state="connected")["items"]]

        until(lambda: clients() == ["lamp"], "the client is listed", PATIENCE)
        gone = api.post("/v1/clients/disconnect", {"client": "lamp"}, status=200)
        assert gone["gateways"] == ["gateway"]
        lamp.kill()
    assert api.post("/v1/clients/disconnect", {"client": "nobody"}, status=200)["gateways"] == []


def test_a_subtree_is_moved_with_progress(api: Api) -> None:
    with api.events("/v1/events") as events:
        move = api.post("/v1/moves", {"subtree": "home/kitchen/oven", "node": "attic"}, status=202)
        states = []
        for name, content in events:
            if name == "move" and content["id"] == move["id"]:
                states.append(content["state"])
                if content["state"] != "running":
                    break
    assert states[-1] == "done", api.get(f"/v1/moves/{move['id']}")
    found = api.get(f"/v1/moves/{move['id']}")
    assert found["source"] == "kitchen"
    assert found["steps"] == ["attic takes home/kitchen/oven"]
    assert api.get("/v1/owner", topic="home/kitchen/oven/x")["node"] == "attic"
    assert move["id"] in [each["id"] for each in api.get("/v1/moves")["items"]]
    api.post("/v1/moves", {"subtree": "home/+", "node": "attic"}, status=422)
    lost = api.post("/v1/moves", {"subtree": "home/kitchen/oven", "node": "cellar"}, status=202)
    until(lambda: api.get(f"/v1/moves/{lost['id']}")["state"] == "failed", "it failed", PATIENCE)
    assert "no node is called 'cellar'" in api.get(f"/v1/moves/{lost['id']}")["error"]
    back = api.post("/v1/moves", {"subtree": "home/kitchen/oven", "node": "kitchen"}, status=202)
    until(lambda: api.get(f"/v1/moves/{back['id']}")["state"] == "done", "it is back", PATIENCE)


def test_events_of_nodes_are_kept_and_followed(api: Api) -> None:
    def asked() -> set[str]:
        return {each["event"] for each in api.get("/v1/audit", limit=1_000)["items"]}

    with api.events("/v1/events") as events:
        api.post("/v1/nodes/kitchen/leave", {}, api.token(read=("$SYS/#",)), 403)
        stranger = api.token(read=("home/#",))
        file = api.state / "stranger.token"
        file.write_text(stranger[:-8] + "AAAAAAA=")
        api.post("/v1/moves", {"subtree": "home/attic/chest", "node": "kitchen"}, status=202)
        for name, content in events:
            if name == "audit" and content["event"] == "ordered":
                assert content["node"] == "kitchen"
                break
    until(lambda: "ordered" in asked(), "the event is kept", PATIENCE)


def test_tokens_are_made_narrowed_and_looked_at(api: Api) -> None:
    made = api.post("/v1/tokens", {"read": ["home/#"], "client": "lamp", "valid_s": 600})
    narrowed = api.post(
        "/v1/tokens/attenuate", {"token": made["token"], "read": ["home/attic/#"]}, made["token"], 200
    )
    found = api.post("/v1/tokens/inspect", {"token": narrowed["token"]}, made["token"], 200)
    assert found["is_valid"]
    assert [block["read"] for block in found["blocks"]] == [["home/#"], ["home/attic/#"]]
    assert found["blocks"][0]["client"] == "lamp"
    api.post("/v1/tokens/attenuate", {"token": made["token"], "read": ["#"]}, made["token"], 422)
    api.post("/v1/tokens/inspect", {"token": "no token"}, made["token"], 422)


def test_prometheus_can_scrape(api: Api) -> None:
    text = api.get("/metrics")
    assert 'hbroker_node_up{node="kitchen"} 1' in text
    assert 'hbroker_messages_received_total{node="root"}' in text
    headers = {"Authorization": f"Bearer {api.operator}", "Accept": "application/openmetrics-text"}
    answer = httpx.get(f"{api.url}/metrics", headers=headers, timeout=PATIENCE)
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_the_hottest_topics_are_known(api: Api) -> None:
    def hottest() -> list[tuple[str, str]]:
        return [(each["topic"], each["node"]) for each in api.get("/v1/topics")["items"]]

    for _ in range(200):
        api.post("/v1/messages", {"topic": "home/attic/hot", "payload": "1", "qos": 0})
    until(lambda: ("home/attic/hot", "attic") in hottest(), "the topic is listed", PATIENCE, found=hottest)
    assert 'hbroker_topic_received_messages_per_second{topic="home/attic/hot"}' in api.get("/metrics")


def test_health(api: Api) -> None:
    assert api.get("/healthz", None) == {"status": "ok"}
    assert api.get("/readyz", None) == {"status": "ok"}
