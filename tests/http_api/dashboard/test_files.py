"""The files of the dashboard: how they are served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hbroker.http_api.application
from tests.http_api.dashboard.stand_in import StandIn, stand_in

FOLDER = Path(hbroker.http_api.application.__file__).parent / "dashboard"
MODULES = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.js")}


@pytest.fixture(scope="module")
def alone() -> Iterator[StandIn]:
    with stand_in() as running:
        yield running


def test_the_page_and_each_of_its_files_is_served(alone: StandIn) -> None:
    page = httpx.get(alone.url)
    assert page.headers["content-type"].startswith("text/html")
    named = set(re.findall(r'(?:href|src)="(/[^"]+)"', page.text))
    assert {f"/dashboard/{name}" for name in MODULES} <= named, "each module is loaded at once"
    for name in named:
        answer = httpx.get(alone.url + name)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff"), name


def test_the_browser_runs_scripts_of_the_dashboard_alone(alone: StandIn) -> None:
    page = httpx.get(alone.url)
    policy = page.headers["content-security-policy"].split("; ")
    assert {"default-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} <= set(
        policy
    )
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"<script>|<style| on[a-z]+=| style=", page.text)


def test_no_module_makes_html_of_text() -> None:
    for name in MODULES:
        text = (FOLDER / name).read_text("utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text
        ), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name


def test_a_file_that_the_browser_has_is_not_sent_again(alone: StandIn) -> None:
    first = httpx.get(f"{alone.url}/dashboard/main.js")
    again = httpx.get(f"{alone.url}/dashboard/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["../application.py", "..%2fapplication.py", "%2e%2e/application.py", "x.js", ""]
)
def test_nothing_else_is_served(alone: StandIn, path: str) -> None:
    answer = httpx.get(httpx.URL(f"{alone.url}/dashboard/", raw_path=f"/dashboard/{path}".encode()))
    assert answer.status_code == 404


def test_without_tokens_a_page_of_another_site_gives_no_orders(alone: StandIn) -> None:
    """Such a page can send a POST with a body that is text, without asking the API first (CORS)."""
    order = b'{"subtree": "home/kitchen", "node": "attic"}'
    for origin in ("https://evil.example", "http://127.0.0.1:9", "null"):
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        answer = httpx.post(f"{alone.url}/v1/moves", content=order, headers=headers)
        assert answer.status_code == 403, origin
    assert httpx.get(f"{alone.url}/v1/moves").json()["items"] == []
    ours = httpx.post(f"{alone.url}/v1/moves", content=b"{}", headers={"Origin": alone.url})
    assert ours.status_code == 400


def test_without_tokens_the_api_is_called_by_its_own_names(alone: StandIn) -> None:
    """A name of somebody else's may resolve to this host (DNS rebinding)."""
    port = alone.url.rpartition(":")[2]
    for host in (f"localhost:{port}", f"[::1]:{port}", "127.0.0.1", f"LOCALHOST:{port}"):
        assert httpx.get(alone.url, headers={"Host": host}).status_code == 200, host
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1.evil.example",
        "[",
        "localhost@evil.example",
    ):
        assert httpx.get(f"{alone.url}/v1/nodes", headers={"Host": host}).status_code == 400, host
