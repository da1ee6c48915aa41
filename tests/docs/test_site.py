"""The documentation as a site: it builds without a warning, is complete, and uses no other host."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from tests.apps.browser import CONTRAST, TIMEOUT, launched
from tests.docs.site import ROOT, Page, pages, served
from tools.docsite import navigation

pytestmark = [
    pytest.mark.long,  # the site is built
    pytest.mark.timeout(600),
    pytest.mark.only_on("linux", "darwin"),
]


@pytest.fixture(scope="module")
def built(site: Path) -> dict[Path, Page]:
    return pages(site)


def test_every_page_of_the_documentation_is_in_the_menu(site: Path) -> None:
    """Nothing can only be found by search; the menu is made of the lists in the index."""
    index = (ROOT / "docs/index.md").read_text("utf-8")
    entries = [entry for part in navigation.sections(index) for entry in part.entries]
    listed = {each.document for entry in entries for each in [entry, *entry.children]}
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs").with_suffix(""))
        assert name == "index" or name in listed, name
        assert (site / f"{name}.html").exists()


def test_every_link_of_the_site_leads_somewhere(built: dict[Path, Page]) -> None:
    """Pages, headings, files to download: every target of a link is on the site."""
    broken = [
        f"{page.path.name} links to {link}"
        for page in built.values()
        if page.path.name != "404.html"  # its links begin where the site is published
        for link in page.links
        if not urlsplit(link).scheme and not _is_there(page, link, built)
    ]
    assert not broken


def _is_there(page: Page, link: str, built: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    there = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if not parts.fragment or there.suffix != ".html":
        return there.is_file()
    return there in built and unquote(parts.fragment) in built[there].ids


def test_links_to_other_places_are_complete(built: dict[Path, Page]) -> None:
    """The address is not opened; but it is well-formed."""
    links = {link for page in built.values() for link in page.links if urlsplit(link).scheme}
    for link in links:
        parts = urlsplit(link)
        assert parts.scheme in ("https", "http", "mailto"), link
        assert parts.scheme == "mailto" or re.fullmatch(r"[\w.-]+(:\d+)?", parts.netloc), link


def test_the_site_loads_nothing_from_elsewhere(site: Path, built: dict[Path, Page]) -> None:
    """It works without a network: no font, script, style or picture of another server."""
    for page in built.values():
        for resource in page.resources:
            parts = urlsplit(resource)
            assert not parts.scheme and not parts.netloc, f"{page.path.name} loads {resource}"
            assert not parts.path or _is_there(page, resource, built), resource
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text("utf-8"))


def test_sync_and_async_are_pairs(site: Path) -> None:
    """Code for threads and for asyncio is one pair, each half with its label."""
    text = (site / "quickstart.html").read_text("utf-8")
    assert text.count('class="pair ') >= 3
    assert text.count('class="half-label"') == 2 * text.count('class="pair ')
    assert "<strong>asyncio</strong>" not in text


def test_an_option_stays_on_one_line(site: Path) -> None:
    """A browser would break `--url` after its hyphens; a cell with a sentence stays wide."""
    text = (site / "command-line.html").read_text("utf-8")
    assert re.search(r'<code class="[^"]*\bshort\b[^"]*"><span class="pre">--url', text)
    assert '<td class="long">' in text


def test_headings_have_levels_and_pages_a_title(site: Path) -> None:
    """What screen readers go by: one title, a main part, and captions of the menu with a level."""
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        if "http-equiv=" in text and "<article" not in text and "<main" not in text:
            continue
        assert len(re.findall(r"<h1\b", text)) == 1, page
        assert 'role="main"' in text or "<main" in text, page
        assert not re.search(r'role="heading"(?! aria-level)', text), page


def test_what_a_page_hides_is_not_on_the_site(site: Path) -> None:
    """What examples need to run, and readers do not, stays in the repository."""
    for page in site.rglob("*.html"):
        assert "<!-- given" not in page.read_text("utf-8"), page


# ---------------------------------------------------------------------------------- in a browser

PAGES = [
    "index.html",
    "quickstart.html",
    "reference/api/client.html",
    "http.html",
    "architecture.html",
    "hold.html",
    "404.html",
]
OUT_OF_LINE = """() => {
  const left = (node) => Math.round(node.getBoundingClientRect().left);
  const edge = document.querySelector("article p");
  const wrong = [...document.querySelectorAll("section > .table-wrapper > table")]
    .filter((table) => left(table) !== left(edge));
  const title = document.querySelector("article h1"), link = title?.querySelector(".headerlink");
  const words = document.createRange();
  if (link) words.setStart(title, 0), words.setEndBefore(link);
  const end = [...words.getClientRects()].at(-1)?.bottom;
  if (link && link.getBoundingClientRect().top >= end) wrong.push(title);
  return wrong.map((node) => node.outerHTML.slice(0, 80));
}"""
"""Tables that do not begin where the text does; a title whose link has its own line."""
LIGHT_AND_DARK = [("light", 390), ("dark", 390), ("light", 1280), ("dark", 1280)]


def test_pages_are_in_order_in_a_browser(site: Path) -> None:
    """No mistake, no request to others, no page wider than the screen, no text that is too faint.

    Tabs are in step, and are reached and used with the keyboard alone; so is the menu of a phone.
    """
    with served(site) as url, launched() as browser:
        page = browser.new_page(reduced_motion="reduce")
        page.set_default_timeout(TIMEOUT * 1000)
        mistakes = _mistakes(page, url)
        for name in PAGES:
            page.goto(url + name)
            for scheme, width in LIGHT_AND_DARK:  # without loading it again
                page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
                page.set_viewport_size({"width": width, "height": 800})
                seen = f"{name}, {scheme}, {width} px"
                assert page.evaluate(CONTRAST)["poor"] == [], seen
                assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, seen
                assert page.evaluate(OUT_OF_LINE) == [], seen
            assert page.locator("label[role]").count() == 0, name
        _search(page, url)
        _tabs(page, url)
        _drawers(page, url)
    assert not mistakes


def _mistakes(page: Any, url: str) -> list[str]:
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    page.on("request", lambda asked: None if asked.url.startswith(url) else found.append(asked.url))
    return found


SEARCHED = {
    "mutex": "hold.html",
    "retry after": "reference/api.html",
    "cron": "scheduled.html",
    "pytest": "testing.html",
    "docker": "docker.html",
    "slack": "how-to/chat-bots.html",
    "sqlalchemy": "how-to/transactions.html",
    "pandas": "caching/types.html",
    "upgrade": "versions.html",
}
"""What newcomers type, and the page that they should read."""


def _search(page: Any, url: str) -> None:
    """Search answers in the browser, and the right page comes first."""
    for words, expected in SEARCHED.items():
        page.goto(f"{url}search.html?q={words}")
        first = page.locator("#search-results li a").first
        first.wait_for()
        page.locator(".search-summary", has_text="found").wait_for()
        assert str(first.get_attribute("href")).startswith(expected), words
    page.locator(".sidebar-search").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def _tabs(page: Any, url: str) -> None:
    page.goto(f"{url}quickstart.html")
    tab = page.locator(".pair-tabs button[aria-selected=true]").first
    page.evaluate("document.querySelector('article a').focus()")
    while not tab.evaluate("it => it === document.activeElement"):
        page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"  # the focus is seen
    page.keyboard.press("ArrowRight")
    shown = page.locator(".half:visible")
    labels = {half.locator(".half-label").text_content() for half in shown.all()}
    assert labels == {"asyncio"}  # all pairs of the page, not only this one
    page.goto(f"{url}reference/api/client.html#dibs.Dibs.hold")
    assert page.locator("[id='dibs.Dibs.hold']").is_visible()  # a link shows the half it leads to


def _drawers(page: Any, url: str) -> None:
    """On a phone, or with large letters: Enter opens the menu, Escape closes it, and Tab never
    reaches what is out of sight."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{url}hold.html")
    menu, link = (
        page.get_by_role("button", name="Menu", exact=True),
        page.locator(".sidebar-drawer a").first,
    )
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.getBoundingClientRect().right") >= 0
    menu.focus()
    page.keyboard.press("Enter")
    assert menu.get_attribute("aria-expanded") == "true"
    assert link.evaluate("it => it === document.activeElement")
    page.keyboard.press("Escape")
    assert menu.evaluate("it => it === document.activeElement")
    assert page.locator(".sidebar-drawer").evaluate("it => it.inert")
