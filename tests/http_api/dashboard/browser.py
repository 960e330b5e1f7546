"""Chromium, and pages that notice errors and foreign requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from tests.needs import need_chromium
from tests.product.network import PATIENCE

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Faults:
    """What a page should not do: errors and warnings in its console, and requests to elsewhere."""

    messages: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Nothing is downloaded."""
    path = need_chromium()
    expect.set_options(timeout=PATIENCE * 1_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_at(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of a new profile at this address. Afterwards it must have had no error, and requested nothing
    from elsewhere."""
    context = browser.new_context(**{"viewport": DESKTOP, **options})
    context.set_default_timeout(PATIENCE * 1_000)
    page = context.new_page()
    faults = Faults()

    def on_console(message: ConsoleMessage) -> None:
        # The browser calls it an error, too, that the API refuses something, or does not answer.
        is_refusal = message.text.startswith("Failed to load resource")
        if message.type in ("error", "warning") and not is_refusal:
            faults.messages.append(message.text)

    def on_request(request: Request) -> None:
        if not request.url.startswith(url):
            faults.foreign.append(request.url)

    page.on("console", on_console)
    page.on("pageerror", lambda error: faults.messages.append(str(error)))
    page.on("request", on_request)
    page.goto(url)
    yield page
    context.close()
    assert faults == Faults(), faults


def sign_in(page: Page, token: str) -> None:
    """Signs in with a token."""
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Sign in").click()


def go(page: Page, view: str) -> None:
    """Opens a view by its link."""
    page.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()
    expect(page.get_by_role("heading", name=view, level=1, exact=True)).to_be_focused()
