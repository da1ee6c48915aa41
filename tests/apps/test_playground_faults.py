"""The playground's fault buttons: what they do, how it is shown, and how it is undone."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx2 as httpx
import pytest
from fastapi import FastAPI, Request

from apps.playground.main import STATIC
from dibs import AsyncDibs
from dibs.integrations.fastapi import install, once
from dibs.testing import Server, eventually

from .playground_process import Playground
from .test_playground import hold
from .test_playground_menu import BRANCH, TIMEOUT
from .weamind.test_liff import CONTRAST

pytestmark = pytest.mark.only_on("linux", "darwin")


@pytest.fixture
def visitor(playground: Playground) -> Iterator[httpx.Client]:
    """A new visitor; their faults are undone when they leave."""
    with playground.visitor() as client:
        client.timeout = httpx.Timeout(TIMEOUT)
        yield client
        client.delete("/faults/")


@contextmanager
def faults_page(visitor: httpx.Client) -> Iterator[Iterator[dict[str, Any]]]:
    """What a page of this visitor receives about faults."""
    with visitor.stream("GET", "/faults/events") as stream:
        lines = stream.iter_lines()
        yield (json.loads(line[6:]) for line in lines if line.startswith("data: "))


def state(visitor: httpx.Client) -> dict[str, Any]:
    with faults_page(visitor) as page:
        return next(page)


# ------------------------------------------------------------------------------- the server


def test_a_fault_is_shown_to_everybody_and_can_be_undone(
    playground: Playground, visitor: httpx.Client
) -> None:
    """What is wrong, for how long, and whose it is; a second one is refused; any visitor can undo
    it."""
    made = visitor.post("/faults/switch")
    assert made.status_code == 202 and 0 < made.json()["left"] <= 15
    with playground.visitor() as other:
        seen = state(other)["fault"]
        assert (seen["kind"], seen["what"], seen["mine"]) == ("switch", "server A", False)
        assert state(visitor)["fault"]["mine"] is True
        refused = other.post("/faults/slow")
        assert refused.status_code == 409 and "One fault at a time" in refused.json()["error"]
        undone = other.delete("/faults/")
        assert undone.status_code == 200 and undone.json()["lasted"] < 15
    after = state(visitor)
    assert after["fault"] is None and after["last"]["kind"] == "switch"
    assert visitor.delete("/faults/").status_code == 404
    eventually(lambda: guarded(visitor), within=TIMEOUT)


def guarded(visitor: httpx.Client) -> bool:
    answer = hold(visitor, "ann", ttl=2)
    visitor.delete("/hold/ann")
    return answer.json()["guarded"]


def test_who_closes_the_page_leaves_nothing_broken(
    playground: Playground, visitor: httpx.Client
) -> None:
    """A fault is undone a moment after the visitor who caused it has closed the last page."""
    with playground.visitor() as maker:
        with faults_page(maker) as page, faults_page(visitor) as seen:
            next(page)
            assert maker.post("/faults/switch").status_code == 202
            assert next(each for each in seen if each["master"] == "B")["fault"]["left"] > 10
    with faults_page(visitor) as seen:
        after = next(each for each in seen if each["fault"] is None)
    assert after["master"] == "A" and after["last"]["lasted"] < 15


def test_a_slow_server_still_guards(visitor: httpx.Client) -> None:
    """It answers ten times a second: later than usual, and within the budget."""
    assert guarded(visitor)  # Ann's process runs
    assert visitor.post("/faults/slow").status_code == 202

    def slow_and_guarded() -> bool:
        answer = hold(visitor, "ann", ttl=5).json()
        visitor.delete("/hold/ann")
        return answer["guarded"] and answer["took"] > 0.02

    eventually(slow_and_guarded, within=9)
    assert state(visitor)["fault"]["kind"] == "slow"


def test_a_lease_outlives_a_switch_of_masters(visitor: httpx.Client) -> None:
    """The replica has it when it becomes the master: Ben is refused there, and Ann releases."""
    hold(visitor, "ann", ttl=10)
    switched = visitor.post("/faults/switch")
    assert switched.status_code == 202 and switched.json()["what"] == "server A"
    assert state(visitor)["master"] == "B"
    assert hold(visitor, "ben", ttl=5).json()["is"] == "refused"
    assert visitor.delete("/hold/ann").json()["how"] == "released"
    visitor.delete("/faults/")
    assert state(visitor)["master"] == "A" and guarded(visitor)


# ------------------------------------------------------------------------------- processes


def test_a_killed_holder_keeps_the_key_until_its_time_is_over(visitor: httpx.Client) -> None:
    """It cannot be released; Ben, who waits, gets it when the lease ends. Then Ann is back."""
    assert visitor.post("/hold/kill").status_code == 409
    hold(visitor, "ann", ttl=2)
    asked = time.monotonic()
    killed = visitor.post("/hold/kill")
    assert killed.status_code == 202 and killed.json()["what"] == "Ann’s process"
    assert hold(visitor, "ben", ttl=2).json()["is"] == "refused"
    assert hold(visitor, "ann", ttl=2).status_code == 503
    assert hold(visitor, "ben", ttl=2, wait=10).json()["guarded"] is True
    assert time.monotonic() - asked > 1  # not before the lease had ended
    visitor.delete("/faults/")
    visitor.delete("/hold/ben")
    assert guarded(visitor)


def test_a_killed_service_places_the_order_once(visitor: httpx.Client) -> None:
    """It dies at work: sent again with its key, the order waits for the claim's end, and is one."""
    report = visitor.post("/orders/kill", json={"items": {"soy-milk": 2}}).json()
    first, second = report["exchanges"]
    assert "status" not in first and first["key"]
    assert second["status"] == 201 and second["refused"] >= 1 and second["key"] == first["key"]
    assert report["placed"] == 1
    assert state(visitor)["last"]["what"] == "the orders service"


def test_a_killed_leader_has_one_successor(visitor: httpx.Client) -> None:
    """The BFF that loads the menu dies: its guests get nothing, one of the others loads it."""
    report = visitor.post("/menu/kill", json={"branch": BRANCH}).json()
    assert report["killed"] in (1, 2) and report["how"].count("miss") == 1
    assert report["reached"] <= 2  # the first load may not have got that far
    assert report["how"].count("none") == report["guests"] - report["served"] == 100
    after = visitor.post("/menu/rush", json={"branch": BRANCH, "algorithm": "dibs"}).json()
    assert (after["served"], after["reached"]) == (200, 1)


# ------------------------------------------------------------------------------- the line to write


LINES = re.compile(r'<p class="write"><span>[^<]*</span> <code>(.*?)</code></p>')
WAYS = {
    "async with dibs.hold": "async def run():\n    {line}\n        return 1",
    "@once": "@app.post('/')\n{line}\nasync def order(request: Request): return {{}}\n"
    "async def run(): return [(await http.post('/')).status_code for _ in range(2)] == [200, 429]",
    "@dibs.scheduled": "{line}\nasync def heartbeat(): ...\nasync def run():\n"
    "    async with dibs.scheduler(drain=0): return 1",
    "@dibs.cached": "{line}\nasync def menu(branch_id: str) -> str: return 'x'\n"
    "async def run(): return await menu('b1')",
}


async def test_the_line_of_each_panel_runs(valkey: Server) -> None:
    """What the page says to write is Python that works, in the place that it names."""
    html = (STATIC / "index.html").read_text("utf-8")
    lines = [unescape(line) for line in LINES.findall(html)]
    chat = re.search(r"const LINE = '(.*)';", (STATIC / "chat-bot.js").read_text("utf-8"))
    assert chat is not None and len(lines) == 4
    app = FastAPI()
    transport = httpx.ASGITransport(app)
    async with (
        AsyncDibs(valkey.url) as dibs,
        httpx.AsyncClient(transport=transport, base_url="http://shop") as http,
    ):
        install(app, dibs, user=lambda request: "ann", secret="a secret of sixteen")
        for line in (*lines, chat[1]):
            names: dict[str, Any] = {"dibs": dibs, "once": once, "app": app, "user_id": "42"}
            names |= {"Request": Request, "http": http}
            frame = next(way for word, way in WAYS.items() if line.startswith(word))
            exec(frame.format(line=line), names)
            assert await names["run"](), line


# ------------------------------------------------------------------------------- in a browser


def test_a_person_causes_faults_and_undoes_them(page: Any) -> None:
    """By keyboard, on each panel: what is broken is shown everywhere, and undone by a button."""
    from playwright.sync_api import expect

    hold_bar, once_bar = page.locator("#hold .faults"), page.locator("#once .faults")
    expect(hold_bar.locator(".fault-says")).not_to_be_empty()
    hold_bar.get_by_role("button", name="Freeze the server").focus()
    page.keyboard.press("Enter")
    expect(hold_bar.locator(".fault-says")).to_have_text(
        "Server A is frozen (SIGSTOP). It resumes on its own."
    )
    expect(page.locator("#note")).to_have_text(re.compile("^Try Ann or Ben now"))  # said once
    page.get_by_role("link", name="once").click()
    expect(once_bar.locator(".fault-says")).to_contain_text("is frozen")
    for name in ("Freeze", "Slow", "Kill", "Switch"):
        button = once_bar.get_by_role("button", name=name)
        expect(button).to_have_attribute("aria-disabled", "true")
    once_bar.get_by_role("button", name="Undo now").focus()
    page.keyboard.press("Enter")
    expect(once_bar.locator(".fault-says")).to_contain_text("was frozen for")
    expect(page.locator("#note")).to_have_text("")
    expect(once_bar.get_by_role("button", name="Freeze the server")).to_be_focused()
    page.get_by_role("link", name="cached").click()
    for name in ("Freeze the server", "Slow it down", "Kill the leader", "Switch masters"):
        expect(page.locator("#cached .faults").get_by_role("button", name=name)).to_be_visible()
    expect(page.locator("#cached .write").get_by_role("button", name="Copy")).to_be_visible()


def test_the_bar_and_the_line_can_be_read(page: Any) -> None:
    """By day and by night, also while something is broken; and buttons are as high as a thumb."""
    from playwright.sync_api import expect

    bar, line = page.locator("#hold .faults"), page.locator("#hold .write")
    bar.get_by_role("button", name="Slow it down").click()
    expect(bar.locator(".fault-says")).to_contain_text("ten times a second")
    parts = [
        *bar.locator("h2, button, .fault-says").all(),
        *line.locator("span, code, button").all(),
    ]
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for part in parts:
            eventually(lambda part=part: part.evaluate(CONTRAST) >= 4.5)  # colours fade in
    heights = "all => all.map(each => each.offsetHeight)"
    assert min(bar.locator(".buttons button").evaluate_all(heights)) >= 44
    bar.get_by_role("button", name="Undo now").click()
    expect(bar.locator(".fault-says")).to_contain_text("was slow for")
