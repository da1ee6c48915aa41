"""How pages of the repository become pages of the site: links, menu, docstrings, diagrams."""

import re
from pathlib import Path, PurePosixPath

import jinja2
import pytest

from dibs import Dibs
from dibs.integrations.asgi import DibsMiddleware
from dibs.integrations.fastapi import Policy, install
from tools.docsite import docstrings, navigation, signatures, sources


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("docs/reference/api.md", "reference/api.md"),
        ("ARCHITECTURE.md", "architecture.md"),
        ("README.md", "index.md"),
        ("deploy/alerts.yml", "files/deploy/alerts.yml"),
    ],
)
def test_every_file_has_one_place_on_the_site(path: str, place: str) -> None:
    """Pages of docs/ lie at its root; other pages get a short name, other files a folder."""
    assert sources.place(PurePosixPath(path)) == PurePosixPath(place)
    assert sources.place(PurePosixPath("apps/orders/README.md")).parts == ("apps", "orders.md")


def test_links_are_moved_and_code_is_not() -> None:
    """A link leads to the same file as in the repository; what only looks like one is left."""
    text = "[a](../ARCHITECTURE.md#x) [b](hold.md) `[c](../no.md)`\n```text\n[d](../no.md)\n```\n"
    page = PurePosixPath("docs/http.md")
    moved = sources.with_links_of_the_site(text, page)
    assert moved == text.replace("../ARCHITECTURE.md", "architecture.md")
    assert sources.linked(text, page) == [
        PurePosixPath("ARCHITECTURE.md"),
        PurePosixPath("docs/hold.md"),
    ]


def test_comments_leave_and_lines_stay() -> None:
    """A warning names the line of the page as it is in the repository."""
    text = "a\n<!-- given\nx = 1\n-->\n```html\n<!-- shown -->\n```\nb\n"
    assert sources.without_comments(text) == "a\n\n\n\n```html\n<!-- shown -->\n```\nb\n"


def test_keywords_become_entries_of_the_index() -> None:
    """Lines keep their number; what is in code stays as it is."""
    page = "# Lock\n\n<!-- search: lock, mutex -->\n\ntext\n"
    made = sources.without_comments(page)
    assert made == "# Lock\n\n```{search} lock, mutex\n```\ntext\n"
    code = f"```text\n{page}```\n"
    assert sources.without_comments(code) == code


def test_a_keyword_belongs_to_one_page() -> None:
    """Or none of them would come first."""
    found = [
        word.strip().lower()
        for page in sorted((Path(__file__).parents[2] / "docs").rglob("*.md"))
        for line in re.findall(r"^<!-- search: (.+) -->$", page.read_text("utf-8"), re.MULTILINE)
        for word in line.split(",")
    ]
    assert len(found) > 50 and len(found) == len(set(found))


def test_the_menu_is_made_of_lists_of_links() -> None:
    """Links before a colon are entries; behind it, and indented, are children of the last one."""
    listed = (
        "- From [`Zero`](zero.md), [One](one.md): and [two](two.md).\n  - [Three](a/three.md)\n"
    )
    index = f"# x\n\n[no](no.md)\n\n## Do\n\n{listed}\n## Text\n\nwords\n"
    [section] = navigation.sections(index)
    first, entry = section.entries
    assert (section.title, entry.title, entry.document) == ("Do", "One", "one")
    assert (first.title, first.children) == ("Zero", [])
    assert [child.document for child in entry.children] == ["two", "a/three"]


def _documented() -> None:
    """Hold *key*.

    More about
    it.

    Args:
        ttl: How long, for ever:
            never.
        **options: As usual.

    Returns:
        False if the store is out.

    Raises:
        Busy: Another holder
            has it.
    """


def test_a_docstring_is_read_in_parts() -> None:
    """Prose, parameters, results and errors, wherever lines end."""
    text = docstrings.read(_documented)
    assert text.prose == ["Hold *key*.", "More about it."]
    assert text.parameters == {"ttl": "How long, for ever: never.", "options": "As usual."}
    assert text.returns == "False if the store is out."
    assert text.raises == {"Busy": "Another holder has it."}
    assert docstrings.as_markdown("Busy `Busy`") == "{py:exc}`~dibs.Busy` `Busy`"


def test_the_options_of_a_dataclass_have_their_meaning() -> None:
    """What is written below each field of a policy is in its table of parameters."""
    listed = signatures.parameters(Policy, docstrings.read(Policy))
    assert "window" in [each.name for each in listed]
    assert [each.name for each in listed if not each.meaning] == []


def test_inherited_options_have_their_meaning() -> None:
    """A verb whose options extend those of another one explains all of them."""
    listed = signatures.parameters(Dibs.hold, docstrings.read(Dibs.hold))
    assert "ttl" in [each.name for each in listed]
    assert [each.name for each in listed if not each.meaning] == []


def test_options_of_an_integration_have_their_meaning() -> None:
    """That of all frameworks, and what this one adds to it."""
    for thing, own in ((install, "Default: the title of the app."), (DibsMiddleware, "")):
        listed = signatures.parameters(thing, docstrings.read(thing))
        meanings = {each.name: each.meaning for each in listed}
        assert meanings["service"].endswith(own) and meanings["session_cookie"]


def test_types_are_short() -> None:
    """Without modules; a time is called Seconds."""
    assert signatures.short_type("float | datetime.timedelta | None") == "Seconds | None"
    assert signatures.short_type("Literal['open', 'closed']") == '"open" | "closed"'


@pytest.mark.parametrize("url", ["", "https://code.example/dibs"])
def test_the_head_of_each_page_names_version_and_repository(url: str) -> None:
    """The repository, where PROJECT_URL says it: `make docs` in a checkout does not know it."""
    source = Path(__file__).parents[2] / "docs/_templates/sidebar/brand.html"
    facts = {"project": "dibs", "version": "1.2", "master_doc": "index", "project_url": url}
    text = jinja2.Template(source.read_text("utf-8")).render(pathto=lambda name: name, **facts)
    assert '<a href="changes">1.2</a>' in text
    assert (f'<a href="{url}">Repository</a>' in text) == bool(url)
