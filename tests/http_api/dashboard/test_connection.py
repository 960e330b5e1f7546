"""An API that goes away while the page is open, and comes back."""

from __future__ import annotations

from contextlib import ExitStack

from playwright.sync_api import Browser, expect

from tests.http_api.dashboard.browser import go, page_at
from tests.http_api.dashboard.stand_in import stand_in, status


def test_the_page_says_that_it_is_not_live_and_goes_on_by_itself(browser: Browser) -> None:
    with ExitStack() as open_page:
        with stand_in() as api:
            page = open_page.enter_context(page_at(browser, api.url))
            api.say([status("root", None)])
            nodes = page.locator(".tile").filter(has_text="Nodes")
            expect(nodes).to_contain_text("1")
            connection = page.locator("#connection")
            expect(connection).to_have_text("live, root 127.0.0.1:9")
        expect(connection).to_contain_text("not live")
        expect(nodes).to_contain_text("1")
        go(page, "Retained")
        expect(page.get_by_role("alert")).to_have_text("The API does not answer.")
        with stand_in(api.port) as api:
            api.say([status("root", None), status("attic", "root")])
            expect(connection).to_have_text("live, root 127.0.0.1:9")
            go(page, "Tree")
            expect(page.locator(".space .name")).to_have_text(["root", "attic"])
