"""What must be true of a wheel and an sdist before they are published."""

import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

from .projects import Project, relative_links

_URLS = ("Changelog", "Documentation", "Homepage", "Issues", "Source")


def wheel_problems(project: Project, wheel: Path, *, published: bool) -> list[str]:
    """What is wrong with a wheel; nothing, if it can be published."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = next(name for name in names if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode("utf-8"))
    found = [*_content_problems(project, names), *_metadata_problems(metadata, published=published)]
    return [f"{wheel.name}: {each}" for each in found]


def sdist_problems(project: Project, sdist: Path) -> list[str]:
    """What is wrong with an sdist."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "pyproject.toml", "PKG-INFO", *_shipped(project)}
    return [f"{sdist.name}: {name} is missing" for name in sorted(wanted - names)]


def _shipped(project: Project) -> set[str]:
    """The files of the packages, as git knows them."""
    return {
        name
        for name in project.files()
        if name.startswith(tuple(f"{package}/" for package in project.packages))
    }


def _content_problems(project: Project, names: set[str]) -> Iterator[str]:
    wanted = {name.removeprefix("src/") for name in _shipped(project)}
    got = {name for name in names if ".dist-info/" not in name}
    yield from (f"{name} is missing" for name in sorted(wanted - got))
    yield from (f"{name} does not belong there" for name in sorted(got - wanted))
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        yield "the licence is missing"
    if not any(name.endswith("/py.typed") for name in got):
        yield "py.typed is missing: its types are not seen"


def _metadata_problems(metadata: Message, *, published: bool) -> Iterator[str]:
    for field in ("Name", "Version", "Summary", "License-Expression", "Requires-Python"):
        if not metadata[field]:
            yield f"the metadata has no {field}"
    if metadata["Description-Content-Type"] != "text/markdown":
        yield "the description is not said to be Markdown"
    if published:
        urls = {each.partition(",")[0] for each in metadata.get_all("Project-URL", [])}
        yield from (f"there is no URL for {name}" for name in sorted(set(_URLS) - urls))
        links = relative_links(str(metadata.get_payload()))
        yield from (f"the description links to {link}" for link in links)
