"""What a user does with the dashboard, on a real network."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from tests.http_api.api import FILE, Api
from tests.http_api.dashboard.browser import PHONE, go, page_at, sign_in
from tests.needs import need_mosquitto
from tests.product.network import PATIENCE
from tests.waiting import until

VIEWS = (
    *("Overview", "Tree", "Topics", "Sessions", "Clients", "Gateways", "Retained", "Console"),
    *("Plans", "Events", "Tokens"),
)
EVIL = "<img src=x onerror=alert(1)><b>bold</b>"
NOT_SERIOUS = ("minor", "moderate")


@contextmanager
def signed_in(browser: Browser, api: Api, token: str = "") -> Iterator[Page]:
    with page_at(browser, api.url, reduced_motion="reduce") as page:
        sign_in(page, token or api.operator)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        yield page


@pytest.fixture(scope="module")
def operator(browser: Browser, api: Api) -> Iterator[Page]:
    """The page of an operator, which the tests share."""
    with signed_in(browser, api) as page:
        yield page


@pytest.fixture
def page(operator: Page) -> Page:
    """As at the beginning, however the test before ended."""
    operator.reload()
    return operator


def test_who_has_a_token_signs_in_and_out(browser: Browser, api: Api) -> None:
    with page_at(browser, api.url) as page:
        expect(page.get_by_role("alert")).to_be_hidden()
        for wrong in ("nonsense", "Grüße", api.operator[:-8] + "AAAAAAA="):
            sign_in(page, wrong)
            expect(page.get_by_role("alert")).to_contain_text("token")
            expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        sign_in(page, f"  {api.operator}\n")
        expect(page.locator(".tile").filter(has_text="Nodes")).to_contain_text("3")
        expect(page.locator("#connection")).to_contain_text(api.root)
        page.reload()
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_token_that_is_not_taken_any_more_leads_back_to_the_sign_in(browser: Browser, api: Api) -> None:
    with signed_in(browser, api) as page:
        expired = api.token(read=("$SYS/#",), valid_s=-1)
        page.evaluate("token => sessionStorage.setItem('hbroker.token', token)", expired)
        page.get_by_role("link", name="Sessions").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("expired")


def test_the_page_offers_what_the_token_allows(browser: Browser, api: Api) -> None:
    with signed_in(browser, api, api.token(read=("$SYS/#",))) as page:
        go(page, "Tree")
        node_row(page, "attic").click()
        expect(page.get_by_role("dialog")).to_contain_text("home/attic")
        expect(page.get_by_role("button", name="Leave…")).to_have_count(0)
        page.keyboard.press("Escape")
        go(page, "Tokens")
        expect(page.get_by_role("form")).to_have_count(2)
    with signed_in(browser, api, api.token(write=("home/attic/#",))) as page:
        expect(page.get_by_text("cannot read $SYS/#")).to_be_visible()
        go(page, "Console")
        page.get_by_label("Topic", exact=True).fill("home/kitchen/oven")
        page.get_by_role("button", name="Publish").click()
        expect(page.get_by_role("alert")).to_contain_text("NOT_AUTHORIZED")


def test_the_tree_is_used_with_the_keyboard(page: Page) -> None:
    go(page, "Tree")
    grid = page.get_by_role("treegrid")
    expect(page.locator(".space .name")).to_have_text(["root", "attic", "kitchen"])
    grid.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    chosen = page.locator("[aria-selected=true]")
    expect(chosen).to_contain_text("kitchen")
    expect(grid).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    expect(chosen).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowLeft")
    expect(chosen).to_contain_text("root")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".space .name")).to_have_text(["root and 2 below"])
    page.keyboard.press("ArrowRight")
    expect(page.locator(".space .row")).to_have_count(3)
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="root")).to_contain_text("home/attic, home/kitchen")
    page.keyboard.press("Escape")
    expect(grid).to_be_focused()


def test_a_subtree_is_moved_and_the_move_is_shown(page: Page, api: Api) -> None:
    go(page, "Tree")
    node_row(page, "kitchen").click()
    page.get_by_role("button", name="Move a subtree…").click()
    dialog = page.get_by_role("dialog", name="Move from kitchen")
    dialog.get_by_label("Subtree").fill("home/kitchen/shelf")
    dialog.get_by_label("To the node").fill("attic")
    dialog.get_by_role("button", name="Move").click()
    expect(page.locator("#status")).to_contain_text("has begun")
    expect(dialog).to_have_count(0)
    go(page, "Overview")
    expect(
        page.get_by_role("region", name="Moves").get_by_role("row", name="home/kitchen/shelf")
    ).to_contain_text("done")
    assert api.get("/v1/owner", topic="home/kitchen/shelf/x")["node"] == "attic"
    go(page, "Events")
    expect(page.get_by_role("row").filter(has_text="order: claim").first).to_contain_text("attic")
    page.get_by_label("Filter").fill("nothing like this")
    expect(page.get_by_text("none that matches")).to_be_visible()
    back = api.post("/v1/moves", {"subtree": "home/kitchen/shelf", "node": "kitchen"}, status=202)
    until(lambda: api.get(f"/v1/moves/{back['id']}")["state"] == "done", "it is back", PATIENCE)


def test_an_order_that_is_refused_says_why(page: Page) -> None:
    go(page, "Tree")
    node_row(page, "kitchen").click()
    page.get_by_role("button", name="Move a subtree…").click()
    dialog = page.get_by_role("dialog", name="Move from kitchen")
    dialog.get_by_label("Subtree").fill("home/+")
    dialog.get_by_label("To the node").fill("attic")
    dialog.get_by_role("button", name="Move").click()
    expect(dialog.get_by_role("alert")).to_contain_text("home/+")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    node_row(page, "kitchen").click()
    page.get_by_role("button", name="Leave…").click()
    leave = page.get_by_role("dialog", name="Have kitchen leave?")
    expect(leave).to_contain_text("home/kitchen")
    leave.get_by_role("button", name="Cancel").click()
    expect(leave).to_have_count(0)


def test_messages_are_published_and_followed_as_text(page: Page) -> None:
    go(page, "Console")
    follow = page.get_by_role("region", name="Follow")
    follow.get_by_label("Topic filter").fill("home/attic/page/#")
    follow.get_by_role("button", name="Follow").click()
    expect(page.locator("#status")).to_contain_text("Following home/attic/page/#")
    publish = page.get_by_role("form", name="Publish")
    publish.get_by_label("Topic").fill("home/attic/page/<i>x</i>")
    publish.get_by_label("Payload").fill(EVIL)
    publish.get_by_role("button", name="Publish").click()
    row = follow.get_by_role("row").filter(has_text="page/<i>x</i>")
    expect(row).to_contain_text(EVIL)
    expect(page.locator("#status")).to_contain_text("Somebody is subscribed")
    assert row.locator("img, b, i").count() == 0
    follow.get_by_role("button", name="Pause").click()
    publish.get_by_label("Payload").fill("later")
    publish.get_by_role("button", name="Publish").click()
    expect(follow.get_by_text("paused; 1 wait")).to_be_visible()
    expect(follow.get_by_text("later")).to_have_count(0)
    follow.get_by_role("button", name="Pause").click()
    expect(follow.locator("tbody tr").first).to_contain_text("later")
    follow.get_by_role("button", name="Stop").click()
    expect(follow.get_by_role("button", name="Follow")).to_be_visible()
    publish.get_by_label("Topic").fill("home/#")
    publish.get_by_role("button", name="Publish").click()
    expect(publish.get_by_role("alert")).to_contain_text("home/#")


def test_the_console_keeps_the_newest_messages(page: Page, api: Api) -> None:
    go(page, "Console")
    follow = page.get_by_role("region", name="Follow")
    follow.get_by_label("Topic filter").fill("home/attic/many")
    follow.get_by_role("button", name="Follow").click()
    expect(page.locator("#status")).to_contain_text("Following home/attic/many")
    flags = ("-p", port(api), "-t", "home/attic/many", "-q", "1", "-l")
    need_mosquitto()
    numbers = "".join(f"{number}\n" for number in range(600))
    subprocess.run(["mosquitto_pub", *flags], input=numbers, text=True, check=True, timeout=PATIENCE)
    expect(follow.get_by_text("600 received")).to_be_visible()
    expect(follow.locator("tbody tr")).to_have_count(500)
    expect(follow.locator("tbody tr").first).to_contain_text("599")
    follow.get_by_role("button", name="Clear").click()
    expect(follow.locator("tbody tr")).to_have_text(["None yet."])


def test_retained_messages_are_found_and_deleted(page: Page, api: Api) -> None:
    topic = "loft/<b>hall"
    api.post("/v1/messages", {"topic": topic, "payload": EVIL, "retain": True})
    go(page, "Retained")
    page.get_by_label("Topic filter").fill("loft/+")
    row = page.get_by_role("row").filter(has_text=topic)

    def is_shown() -> bool:
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        return row.count() == 1

    # The API waits 0.3 s for each message. On a busy machine, one may come later.
    until(is_shown, "the message is listed", PATIENCE)
    expect(row).to_contain_text(EVIL)
    assert row.locator("img, b").count() == 0
    row.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete the retained message?")
    expect(dialog).to_contain_text(topic)
    dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    assert api.get("/v1/retained", filter="loft/+")["items"] == []


def test_an_mqtt_client_is_disconnected(page: Page, api: Api) -> None:
    need_mosquitto()
    go(page, "Gateways")
    expect(page.get_by_role("row", name="gateway")).to_contain_text(port(api))
    flags = ("-p", port(api), "-V", "5", "-i", "<b>lamp</b>", "-t", "home/#")
    with subprocess.Popen(["mosquitto_sub", *flags], stderr=subprocess.DEVNULL) as lamp:

        def is_connected() -> bool:
            found = api.get("/v1/clients", in_state="connected")["items"]
            return "<b>lamp</b>" in [each["client"] for each in found]

        until(is_connected, "the client is connected", PATIENCE)
        go(page, "Clients")
        row = page.get_by_role("row").filter(has_text="<b>lamp</b>")
        expect(row).to_contain_text("connected")
        row.get_by_role("button", name="Disconnect").click()
        page.get_by_role("dialog").get_by_role("button", name="Disconnect").click()
        expect(page.locator("#status")).to_contain_text("<b>lamp</b> was disconnected")
        lamp.kill()


def test_the_session_of_an_mqtt_client_is_purged_and_ended(page: Page, api: Api) -> None:
    session = {"client": "oven-9", "subscriptions": [{"filter": "home/attic/oven-9"}]}
    api.post("/v1/clients", session)
    go(page, "Clients")
    page.get_by_label("State").select_option("offline")
    row = page.get_by_role("row").filter(has_text="oven-9")
    row.get_by_role("button", name="Purge queue of oven-9").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge queue").click()
    expect(page.locator("#status")).to_contain_text("Nothing waits for oven-9 any more")
    row.get_by_role("button", name="End session of oven-9").click()
    page.get_by_role("dialog").get_by_role("button", name="End session").click()
    expect(page.locator("#status")).to_contain_text("The session of oven-9 has ended")
    expect(row).to_have_count(0)


def test_hot_topics_are_shown(page: Page, api: Api) -> None:
    for _ in range(20):
        api.post("/v1/messages", {"topic": "home/attic/hot", "payload": "1"})
    until(lambda: "home/attic/hot" in _topics(api), "the node says so", PATIENCE)
    go(page, "Topics")
    expect(page.get_by_role("row").filter(has_text="home/attic/hot")).to_contain_text("attic")
    page.get_by_label("At most").fill("1")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("row").filter(has_text="(all others of the node)")).not_to_have_count(0)


def _topics(api: Api) -> list[str]:
    return [each["topic"] for each in api.get("/v1/topics", limit=1000)["items"]]


def test_a_plan_is_tried_and_carried_out(page: Page, api: Api) -> None:
    before = "subtree: home/attic,"
    wanted = FILE.replace(before, f"{before} also: [plans/only],")
    predicted = "plan: {in_us: 10, out_us: 5, predicted: {attic: 0.25}}"
    go(page, "Plans")
    page.get_by_label("Topology").fill("nodes: []")
    page.get_by_role("button", name="Try").click()
    expect(page.get_by_role("alert")).to_contain_text("nodes is an empty list")
    page.get_by_label("Topology").fill(wanted + predicted)
    page.get_by_role("button", name="Try").click()
    expect(page.get_by_role("row").filter(has_text="plans/only")).to_contain_text("waiting")
    expect(page.get_by_role("region", name="Loads").get_by_role("row", name="attic")).to_contain_text("25%")
    page.get_by_role("button", name="Carry out").click()
    page.get_by_role("dialog").get_by_role("button", name="Move").click()
    expect(page.get_by_role("heading", name="Done")).to_be_visible()
    assert api.get("/v1/owner", topic="plans/only")["node"] == "attic"


def test_sessions_are_shown_with_their_queues(page: Page, api: Api) -> None:
    subscriptions = [{"filter": "home/attic/queue", "qos": 1}]
    api.post("/v1/sessions", {"client_id": EVIL, "session_expiry": 600, "subscriptions": subscriptions})
    api.post("/v1/messages", {"topic": "home/attic/queue", "payload": "1"})

    def is_listed() -> bool:
        return [each["queued"] for each in api.get("/v1/sessions", client=EVIL)["items"]] == [1]

    until(is_listed, "the status of the node lists it", PATIENCE)
    go(page, "Sessions")
    row = page.locator("tbody tr").first
    expect(row).to_contain_text(EVIL)
    expect(row).to_contain_text("offline")
    page.get_by_label("State").select_option("connected")
    expect(page.get_by_text(EVIL)).to_have_count(0)


def test_tokens_are_made_and_looked_at(page: Page, api: Api) -> None:
    go(page, "Tokens")
    make = page.get_by_role("form", name="Make a token")
    make.get_by_label("May read").fill("flat/#\nhome/#")
    make.get_by_label("Days valid").fill("1")
    make.get_by_role("button", name="Make").click()
    made = make.get_by_label("The token").input_value()
    assert api.get("/v1/retained", made, filter="flat/never")["items"] == []
    look = page.get_by_role("form", name="Look at a token")
    look.get_by_label("The token", exact=True).fill(made)
    look.get_by_role("button", name="Look").click()
    expect(look.get_by_text("It is valid.", exact=True)).to_be_visible()
    expect(look.get_by_role("row").nth(1)).to_contain_text("flat/#, home/#")
    look.get_by_label("The token", exact=True).fill(api.token(read=("home/#",), valid_s=-1))
    look.get_by_role("button", name="Look").click()
    expect(look.get_by_text("It is not valid: ")).to_contain_text("expired")


def test_every_view_is_accessible_in_light_and_dark(page: Page) -> None:
    for view in VIEWS:
        go(page, view)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        if view == "Events":
            page.get_by_label("Filter").fill("child_joined")  # A few are enough.
        require_accessible(page, view)
        page.emulate_media(color_scheme="dark")
        require_accessible(page, f"{view}, dark", runOnly=["color-contrast"])
        page.emulate_media(color_scheme="light")
    go(page, "Tree")
    node_row(page, "attic").click()
    expect(page.get_by_role("dialog")).to_contain_text("Memory")
    require_accessible(page, "dialog")
    page.keyboard.press("Escape")


def test_every_view_fits_a_phone(page: Page, browser: Browser, api: Api) -> None:
    page.set_viewport_size(ViewportSize(width=PHONE["width"], height=PHONE["height"]))
    for view in VIEWS:
        go(page, view)
        expect(page.locator("[aria-busy=true]")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        smallest = page.evaluate(
            "Math.min(...[...document.querySelectorAll('main button, main input:not([type=checkbox])')]"
            ".map((each) => each.getBoundingClientRect().height).filter((height) => height > 0))"
        )
        assert smallest >= 24, view  # WCAG 2.2, 2.5.8


def test_the_sign_in_is_accessible(browser: Browser, api: Api) -> None:
    with page_at(browser, api.url, viewport=PHONE, reduced_motion="reduce") as page:
        expect(page.get_by_label("Token", exact=True)).to_be_focused()
        sign_in(page, "nonsense")
        expect(page.get_by_role("alert")).to_be_visible()
        require_accessible(page, "light")
        page.emulate_media(color_scheme="dark")
        require_accessible(page, "dark")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def node_row(page: Page, name: str) -> Locator:
    """The row of a node in the tree."""
    return page.get_by_role("row", name=re.compile(rf"^{name}\b"))


def port(api: Api) -> str:
    """That of the gateway."""
    listener: str = api.network.state()["gateways"][0]["listeners"][0]
    return listener.rpartition(":")[2]


def require_accessible(page: Page, where: str, **options: object) -> None:
    """axe finds nothing that is serious or critical."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    answer = page.evaluate("options => axe.run(options)", {"resultTypes": ["violations"], **options})
    found = [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in answer["violations"]
        if each["impact"] not in NOT_SERIOUS
    ]
    assert found == [], where
