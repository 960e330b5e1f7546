"""Who may call what: each route, without a token and with too little."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.http_api.api import Api
from tests.product.network import PATIENCE, run_hbroker
from tests.waiting import until

OPEN = {"/healthz", "/readyz"}
FOR_ALL = {
    "/v1/caller",
    "/v1/messages",
    "/v1/retained",
    "/v1/retained/clear",
    "/v1/sessions",
    "/v1/tokens/attenuate",
    "/v1/tokens/inspect",
}
"""Routes that any token opens: what they do is decided by the owners of topics, or needs no right."""


def routes(api: Api) -> list[tuple[str, str, dict[str, Any]]]:
    document = api.get("/openapi.json", None)
    return [
        (method.upper(), path, operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


def test_without_a_token_every_route_but_those_of_health_is_401(api: Api) -> None:
    found = routes(api)
    assert len(found) > 20
    for method, path, operation in found:
        if path in OPEN:
            assert operation["security"] == [{}]
            continue
        problem = api.request(method, path, None, 401)
        assert problem["title"] == "Unauthorized", path
        assert "401" in operation["responses"], path


def test_with_a_token_for_other_topics_every_route_of_operators_is_403(api: Api) -> None:
    token = api.token(read=("home/#",), write=("home/#",))
    for method, path, operation in routes(api):
        if path in OPEN or (path in FOR_ALL and (path, method) != ("/v1/sessions", "GET")):
            continue
        problem = api.request(method, path, token, 403, json={} if method == "POST" else None)
        assert "$SYS/#" in problem["detail"], path
        assert "403" in operation["responses"], path


def test_who_may_only_see_the_network_cannot_change_it(api: Api) -> None:
    token = api.token(read=("$SYS/#",))
    assert api.get("/v1/network", token)["nodes"] == 3
    api.post("/v1/moves", {"subtree": "home/attic", "node": "kitchen"}, token, 403)
    api.post("/v1/nodes/attic/leave", {}, token, 403)
    api.post("/v1/clients/disconnect", {"client": "oven"}, token, 403)
    api.post("/v1/tokens", {"read": ["home/#"]}, token, 403)


@pytest.mark.parametrize("header", ["Basic dXNlcjpwYXNz", "Bearer", "Bearer not-a-token", "Bearer ü"])
def test_a_credential_that_is_no_token_is_401(api: Api, header: str) -> None:
    headers = httpx.Headers([(b"Authorization", header.encode())])
    answer = httpx.get(f"{api.url}/v1/network", headers=headers, timeout=PATIENCE)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_an_expired_and_a_revoked_token_are_401(api: Api) -> None:
    assert "expired" in api.get("/v1/network", api.token(read=("$SYS/#",), valid_s=-1), 401)["detail"]
    token = api.token(read=("$SYS/#",), write=("never/used",))
    api.get("/v1/network", token)
    file = api.state / "revoked.token"
    file.write_text(token)
    state = ("--state-dir", str(api.network.directory))
    assert run_hbroker("token", "revoke", "--token", str(file), *state).returncode == 0

    def is_refused() -> bool:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{api.url}/v1/network", headers=headers, timeout=PATIENCE).status_code == 401

    until(is_refused, "the token is refused", PATIENCE)


def test_topics_are_decided_by_their_owners(api: Api) -> None:
    token = api.token(read=("home/kitchen/#",), write=("home/kitchen/oven",))
    api.post("/v1/messages", {"topic": "home/kitchen/oven", "payload": "1"}, token)
    refused = api.post("/v1/messages", {"topic": "home/kitchen/sink", "payload": "1"}, token, 403)
    assert refused["reason"] == "NOT_AUTHORIZED"
    api.post("/v1/messages", {"topic": "home/kitchen/oven", "payload": "1", "retain": True}, token, 403)
    api.get("/v1/retained", token, 403, filter="home/#")
    assert api.get("/v1/retained", token, filter="home/kitchen/never/#")["items"] == []


def test_a_caller_can_give_no_more_than_he_has(api: Api) -> None:
    mine = api.token(read=("$SYS/#", "home/#"), write=("$SYS/#", "home/kitchen/#"), valid_s=600)
    less = {"read": ["home/attic/#"], "write": ["home/kitchen/oven"], "valid_s": 60}
    made = api.post("/v1/tokens", less, mine)["token"]
    api.post("/v1/messages", {"topic": "home/kitchen/oven", "payload": "1"}, made)
    for more in (
        {"read": ["#"]},
        {"write": ["home/attic/x"]},
        {"write": ["home/kitchen/oven"], "retain": True},
        {"read": ["home/#"], "share": True},
        {"read": ["home/#"], "valid_s": 86_400},
        {"read": ["home/#"], "workspace": "acme"},
    ):
        api.post("/v1/tokens", {"valid_s": 60, **more}, mine, 403)


def test_a_request_that_is_sent_again_has_no_second_effect(api: Api) -> None:
    once = {"Idempotency-Key": "6f1d"}
    body = {"topic": "home/attic/once", "payload": "1"}

    def post(body: dict[str, str], token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}", **once}
        return httpx.post(f"{api.url}/v1/messages", json=body, headers=headers, timeout=PATIENCE)

    with api.events("/v1/messages", filter="home/attic/once") as events:
        first, second = post(body, api.operator), post(body, api.operator)
        assert (first.status_code, second.status_code) == (201, 201)
        assert (first.json(), "idempotency-replayed" in first.headers) == (second.json(), False)
        assert second.headers["idempotency-replayed"] == "true"
        assert post({**body, "payload": "2"}, api.operator).status_code == 422
        assert post({**body, "payload": "3"}, api.token(write=("home/#",))).status_code == 201
        assert [next(events)[1]["payload"] for _ in range(2)] == ["1", "3"]
