"""Workspaces by HTTP, and all that a device needs with `curl` alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.http_api.api import Api
from tests.needs import need, need_mosquitto
from tests.product.network import PATIENCE
from tests.waiting import until

CURL = r"""
set -euo pipefail
post() {
  curl -sS --fail-with-body -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    "$API/v1/$1" -d "$2" > "$1.json"
}
post workspaces '{"name": "acme"}'
post tokens '{"workspace": "acme", "read": ["home/#"], "write": ["home/#"], "client": "display"}'
post clients '{"client": "oven-17", "workspace": "acme", "session_expiry": 604800,
               "subscriptions": [{"filter": "home/kitchen/oven/#", "qos": 1}]}'
for number in $(seq 20); do echo $number; done |
  mosquitto_pub -p $ACME -t home/kitchen/oven/set -q 1 -l
mosquitto_pub -p $OTHER -t home/kitchen/oven/set -q 1 -m 'of another workspace'
mosquitto_pub -p $DEFAULT -t home/kitchen/oven/set -q 1 -m 'of none'
mosquitto_sub -p $ACME -i oven-17 -c -V 5 -x 604800 -t 'home/kitchen/oven/#' -q 1 -C 20 -W 60
"""


def test_curl_alone_makes_all_that_a_new_device_needs(api: Api, tmp_path: Path) -> None:
    need_mosquitto()
    need(shutil.which("curl") is not None, "curl is not installed")
    variables = {
        "API": api.url,
        "TOKEN": api.operator,
        "ACME": api.port("acme"),
        "OTHER": api.port("other"),
        "DEFAULT": api.port(),
    }
    done = subprocess.run(
        ["bash", "-c", CURL],
        env={**os.environ, **variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [str(number) for number in range(1, 21)]
    token = json.loads((tmp_path / "workspaces.json").read_text())["token"]["token"]
    contents = api.post("/v1/tokens/inspect", {"token": token}, status=200)
    assert [(each["workspace"], each["read"]) for each in contents["blocks"]] == [("acme", ["#"])]


def test_a_workspace_is_listed_with_what_it_uses(api: Api) -> None:
    api.post(
        "/v1/clients",
        {
            "client": "lamp-1",
            "workspace": "acme",
            "subscriptions": [{"filter": "home/attic/lamp"}],
        },
    )

    def at_attic() -> tuple[int, int]:
        found = {each["name"]: each for each in api.get("/v1/workspaces")["items"]}
        (usage,) = [each for each in found["acme"]["usage"] if each["node"] == "root"]
        assert (usage["most_sessions"], usage["most_subscriptions"]) == (1000, None)
        assert usage["most_messages_per_second"] == 100_000
        return usage["sessions"], usage["subscriptions"]

    # All workspaces are the root's. Its status is up to ten seconds old.
    until(lambda: min(at_attic()) >= 1, "the root says so", PATIENCE, found=at_attic)


def test_a_caller_of_a_workspace_makes_no_tokens_of_another(api: Api) -> None:
    token = api.token(read=("#", "$SYS/#"), write=("#", "$SYS/#"), retain=True, share=True)
    assert "read" in api.post("/v1/workspaces", {"name": "acme"}, token, 403)["detail"]
    wide = api.token(
        read=("$workspace/acme/#",), write=("$workspace/acme/#", "$SYS/#"), retain=True, share=True
    )
    api.post("/v1/workspaces", {"name": "acme", "valid_s": 60}, wide)
    api.post("/v1/workspaces", {"name": "other", "valid_s": 60}, wide, 403)


@pytest.mark.parametrize("name", ["Acme", "a b", "$a", "ä"])
def test_a_wrong_name_is_refused(api: Api, name: str) -> None:
    assert "lower-case" in api.post("/v1/workspaces", {"name": name}, status=422)["detail"]
