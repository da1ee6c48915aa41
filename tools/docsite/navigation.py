"""The menu of the site: the lists of links in docs/index.md."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_SECTION = re.compile(r"^## +(?P<title>.+)$", re.MULTILINE)
_BULLET = re.compile(r"^(?P<indent> *)- +(?P<text>.*)$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<title>[^\]]+)\]\((?P<path>[^)#\s]+\.md)\)")


@dataclass
class Entry:
    """A page in the menu, and the pages below it."""

    title: str
    document: str
    children: "list[Entry]" = field(default_factory=list["Entry"])


@dataclass(frozen=True)
class Section:
    """A heading of the menu, and its pages."""

    title: str
    entries: list[Entry]


def sections(index: str) -> list[Section]:
    """The sections of *index* that begin with a list of links.

    The links of a bullet up to its first colon are entries. Links behind the colon, and bullets
    that are indented below it, are children of the last one.
    """
    parts = _SECTION.split(index)
    read = [
        Section(title, _entries(body)) for title, body in zip(parts[1::2], parts[2::2], strict=True)
    ]
    return [section for section in read if section.entries]


def _entries(body: str) -> list[Entry]:
    entries: list[Entry] = []
    for bullet in _BULLET.finditer(body):
        head, _, rest = bullet["text"].partition(": ")
        if not bullet["indent"]:
            entries += _links(head)
            head = ""
        if entries:
            entries[-1].children += _links(head + rest)
    return entries


def _links(text: str) -> list[Entry]:
    found = _LINK.finditer(text)
    return [Entry(link["title"].replace("`", ""), _document(link["path"])) for link in found]


def _document(path: str) -> str:
    return path.removesuffix(".md")


def with_menu(index: str) -> str:
    """Return *index* with a menu in the place of its lists: the site shows it beside each page."""
    first, *rest = _SECTION.split(index)
    shown = [first.rstrip()]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        entries = _entries(body)
        shown.append(_toctree(entries, title) if entries else f"## {title}\n{body.rstrip()}")
    return "\n\n".join([*shown, ""])


def with_children(page: str, entry: Entry) -> str:
    """*page* with the pages below it."""
    return f"{page.rstrip()}\n\n{_toctree(entry.children)}\n"


def parents(index: str) -> Iterator[Entry]:
    """The entries that have pages below them."""
    for section in sections(index):
        yield from (entry for entry in section.entries if entry.children)


def _toctree(entries: list[Entry], caption: str = "") -> str:
    lines = [f"{entry.title} </{entry.document}>" for entry in entries]
    options = [":hidden:", ":titlesonly:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["```{toctree}", *options, "", *lines, "```"])
