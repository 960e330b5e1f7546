"""Commands that go by the HTTP API, on a real network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hbroker.errors import LocalError, Refused, Unreachable
from hbroker.operations.http_client import HttpApi
from tests.http_api.api import FILE, Api
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE, PROJECT, environment
from tests.waiting import until


def hbroker(api: Api, *arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command with `--url` and a token, far from the network: it knows no root."""
    file = api.state / "by_url.token"
    file.write_text(token or api.operator)
    variables = {**environment(), "HBROKER_TOKEN": str(file), "HBROKER_ROOT": "192.0.2.1:1"}
    return subprocess.run(
        [sys.executable, "-m", "hbroker", *arguments, "--url", api.url],
        cwd=PROJECT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def of_json(api: Api, *arguments: str) -> Any:
    done = hbroker(api, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_tree(api: Api) -> None:
    done = hbroker(api, "tree")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()[:2]] == ["NODE", "root"]
    assert "└─ kitchen" in done.stdout
    nodes = {node["name"]: node for node in of_json(api, "tree")["nodes"]}
    assert nodes["kitchen"]["subtree"] == "home/kitchen"
    assert nodes["root"]["messages_in"] >= 0


def test_a_subtree_is_moved_there_and_back(api: Api) -> None:
    moved = of_json(api, "move", "home/kitchen/by-url", "attic")
    assert (moved["moved"], moved["from"], moved["owner"]) == (True, "kitchen", "attic")
    assert api.get("/v1/owner", topic="home/kitchen/by-url")["node"] == "attic"
    assert "went from attic to kitchen" in hbroker(api, "move", "home/kitchen/by-url", "kitchen").stdout
    refused = hbroker(api, "move", "home/kitchen/by-url", "cellar")
    assert refused.returncode == 1
    assert "no node is called 'cellar'" in refused.stderr


def test_a_plan_is_applied(api: Api, tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(FILE)
    before = hbroker(api, "apply", str(file))  # what other tests moved
    assert before.returncode == 0, before.stderr
    file.write_text(FILE.replace("subtree: home/attic,", "subtree: home/attic, also: [home/planned],"))

    def moves(*flags: str) -> list[tuple[object, ...]]:
        found = of_json(api, "apply", str(file), *flags)["moves"]
        return [(each["subtree"], each["source"], each["target"], each["done"]) for each in found]

    assert moves("--dry-run") == [("home/planned", None, "attic", None)]
    assert moves() == [("home/planned", None, "attic", True)]
    assert api.get("/v1/owner", topic="home/planned")["node"] == "attic"
    file.write_text(FILE)
    back = hbroker(api, "apply", str(file))
    assert back.returncode == 0, back.stderr
    assert "[1/1] home/planned: from attic back to the node around it" in back.stderr
    file.write_text(FILE + "plan: {in_us: 10, out_us: 5, predicted: {root: 0.1, kitchen: 0.3}}\n")
    applied = of_json(api, "apply", str(file), "--measure", "0.1")
    assert applied["moves"] == []
    predicted = {each["name"]: each["predicted"] for each in applied["measured"]["nodes"]}
    assert predicted == {"root": 0.1, "kitchen": 0.3, "attic": None}
    file.write_text(FILE.replace("name: attic,", "name: cellar,"))
    refused = hbroker(api, "apply", str(file))
    assert (refused.returncode, "node 'cellar' does not run" in refused.stderr) == (1, True)


def test_events_are_followed(api: Api) -> None:
    need_mosquitto()
    flags = ("-p", api.port(), "-V", "5", "-t", "home/audited", "-m", "1")

    def seen() -> list[str]:
        """The clients whose events came while a client connected and left."""
        with ThreadPoolExecutor(1) as other:
            listens = other.submit(hbroker, api, "audit", "--timeout", "3", "--json")
            while not listens.done():
                subprocess.run(["mosquitto_pub", *flags, "-i", "audited"], check=True, timeout=PATIENCE)
        done = listens.result()
        assert done.returncode == 0, done.stderr
        records = [json.loads(line) for line in done.stdout.splitlines()]
        assert all({"time", "node", "event"} <= record.keys() for record in records)
        return [record["client"] for record in records if "client" in record]

    assert "audited" in seen()


def test_mqtt_clients_are_listed_and_disconnected(api: Api) -> None:
    need_mosquitto()
    flags = ("-p", api.port(), "-V", "5", "-i", "by-url", "-t", "home/#")
    with subprocess.Popen(["mosquitto_sub", *flags], stderr=subprocess.DEVNULL) as lamp:

        def connected() -> list[str]:
            found = of_json(api, "clients")["clients"]
            return [each["client"] for each in found if each["state"] == "connected"]

        until(lambda: connected() == ["by-url"], "it is listed", PATIENCE, found=connected)
        assert "disconnected from gateway" in hbroker(api, "kick", "by-url").stdout
        lamp.kill()
    assert hbroker(api, "kick", "nobody").returncode == 1


def test_what_the_token_does_not_allow_is_refused(api: Api) -> None:
    token = api.token(read=("$SYS/#",))
    assert hbroker(api, "tree", token=token).returncode == 0
    refused = hbroker(api, "leave", "attic", token=token)
    assert (refused.returncode, "$SYS/#" in refused.stderr) == (1, True)
    assert hbroker(api, "tree", token="nonsense").returncode == 1


@pytest.fixture
def other() -> Iterator[str]:
    """The URL of another HTTP server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status = int(self.path.strip("/").partition("/")[0])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "error"), [(200, LocalError), (403, Refused), (404, LocalError), (502, Unreachable)]
)
def test_an_answer_of_something_else_is_an_error(other: str, status: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        HttpApi(f"{other}/{status}", "", PATIENCE).statuses()
    with pytest.raises(error if status != 200 else Unreachable):
        next(HttpApi(f"{other}/{status}", "", PATIENCE).events("audit", None))


def test_what_is_no_url_and_who_does_not_answer_are_errors(tmp_path: Path) -> None:
    for url in ("127.0.0.1:7780", f"file://{tmp_path}"):
        with pytest.raises(LocalError, match="no URL of http"):
            HttpApi(url, "", PATIENCE).statuses()
        with pytest.raises(LocalError, match="no URL of http"):
            next(HttpApi(url, "", PATIENCE).events("audit", None))
    nobody = HttpApi("http://127.0.0.1:9", "", PATIENCE)
    with pytest.raises(Unreachable, match="does not answer"):
        nobody.statuses()
    with pytest.raises(Unreachable, match="does not answer"):
        next(nobody.events("audit", None))
