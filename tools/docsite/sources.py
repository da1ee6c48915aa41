"""Which files belong to the site, where each lies in it, and their links.

The pages are docs/ and the Markdown files that they link to in the rest of the repository. A link
to any other file brings that file along, to be downloaded.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from . import keywords

DOCS = PurePosixPath("docs")
PLACES = {
    PurePosixPath("README.md"): PurePosixPath("index.md"),
    PurePosixPath("ARCHITECTURE.md"): PurePosixPath("architecture.md"),
    PurePosixPath("CHANGELOG.md"): PurePosixPath("changes.md"),
    PurePosixPath("CONTRIBUTING.md"): PurePosixPath("contributing.md"),
    PurePosixPath("SECURITY.md"): PurePosixPath("security.md"),
    PurePosixPath("deploy/README.md"): PurePosixPath("containers.md"),  # docs/ has a deploy.md
}
"""Where pages outside docs/ lie on the site. The index stands for the README."""

_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^(?P<fence>```+|~~~+).*?^(?P=fence)\s*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")


class BrokenLink(Exception):
    """A page links to a file that is not there."""


def place(path: PurePosixPath) -> PurePosixPath:
    """Where the file at *path* of the repository lies on the site."""
    if path in PLACES:
        return PLACES[path]
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS)
    if path.name == "README.md":
        return path.parent.with_name(f"{path.parent.name}.md")
    if path.suffix == ".md":
        return path.with_name(path.name.lower())
    return PurePosixPath("files") / path


def collected(root: Path) -> dict[PurePosixPath, bytes]:
    """The files of the site by their place, pages with the links of the site."""
    files: dict[PurePosixPath, bytes] = {}
    waiting = sorted(_start(root))
    while waiting:
        path = waiting.pop()
        if place(path) in files:
            continue
        data = (root / path).read_bytes()
        if path.suffix == ".md":
            text = without_comments(data.decode("utf-8"))
            waiting += [each for each in linked(text, path) if _is_wanted(root, path, each)]
            data = with_links_of_the_site(text, path).encode("utf-8")
        files[place(path)] = data
    return files


def _start(root: Path) -> Iterator[PurePosixPath]:
    yield from (path for path in PLACES if path.name != "README.md")
    for path in (root / DOCS).rglob("*.md"):
        yield PurePosixPath(path.relative_to(root).as_posix())


def _is_wanted(root: Path, page: PurePosixPath, path: PurePosixPath) -> bool:
    if not (root / path).is_file():
        raise BrokenLink(f"{page} links to {path}, which is no file")
    return path != PurePosixPath("README.md")


def without_comments(text: str) -> str:
    """*text* without HTML comments, outside of code; every line keeps its number.

    What they name for the search is kept.
    """

    def hide(part: str) -> str:
        kept = keywords.as_directive(part)
        return _HIDDEN.sub(lambda match: "\n" * match[0].count("\n"), kept)

    return _outside_code(text, hide)


def linked(text: str, page: PurePosixPath) -> list[PurePosixPath]:
    """The files of the repository that *page* links to."""
    found: list[PurePosixPath] = []

    def note(match: re.Match[str]) -> str:
        if _is_relative(match["path"]):
            found.append(_target(page, match["path"]))
        return match[0]

    _outside_code(text, lambda part: _LINK.sub(note, part))
    return found


def with_links_of_the_site(text: str, page: PurePosixPath) -> str:
    """*text* with every link to a file of the repository as it is on the site."""

    def moved(match: re.Match[str]) -> str:
        if not _is_relative(match["path"]):
            return match[0]
        there = place(_target(page, match["path"]))
        return os.path.relpath(there, place(page).parent) + (match["anchor"] or "")

    return _outside_code(text, lambda part: _LINK.sub(moved, part))


def _is_relative(path: str) -> bool:
    return bool(path) and ":" not in path and not path.startswith("/")


def _target(page: PurePosixPath, path: str) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(page.parent / path))


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """*text* with each part that is no code changed."""
    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        parts += [change(text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])
