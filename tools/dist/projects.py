"""The distributions of this repository, and the copy of each that is built.

A published page needs absolute links and project URLs, a checkout must not know its own address.
So the address is given when a release is built, and written into a copy.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$|<!--.*?-->)", re.MULTILINE | re.DOTALL)
_PAGES = {
    "Documentation": "tree/{tag}/docs",
    "Source": "tree/{tag}",
    "Changelog": "blob/{tag}/CHANGELOG.md",
    "Issues": "issues",
}


class Project(NamedTuple):
    """One distribution: where it is, and what its pyproject.toml says."""

    folder: Path
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """As it is called in a registry."""
        return self.settings["project"]["name"]

    @property
    def packages(self) -> list[str]:
        """The folders that the wheel carries, seen from its own."""
        return self.settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    @property
    def extras(self) -> dict[str, list[str]]:
        """What each extra requires."""
        return self.settings["project"].get("optional-dependencies", {})

    def files(self) -> list[str]:
        """What git knows below it; for dibs, without the other distributions."""
        command = ["git", "-C", str(self.folder), "ls-files", "-z"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        own = "" if self.folder == ROOT else "packages/"
        names = listed.split("\0")[:-1]
        return [n for n in names if own or not n.startswith("packages/")]


def version_of(project: Project) -> str:
    """Read the version of a project, from its pyproject.toml or the module that it names."""
    written = project.settings["project"].get("version")
    if written:
        return written
    place = project.settings["tool"]["hatch"]["version"]["path"]
    return re.findall(r'^__version__ = "(.+)"$', _read(project.folder / place), re.MULTILINE)[0]


def release_tag(project: Project) -> str:
    """Return the tag that publishes a project: `v1.2.0` the library, `NAME-v1.2.0` another."""
    prefix = "" if project.folder == ROOT else f"{project.name}-"
    return f"{prefix}v{version_of(project)}"


def files_of(project: Project) -> tuple[Path, Path]:
    """Return where the wheel and the sdist of a project are built."""
    stem = f"{project.name.replace('-', '_')}-{version_of(project)}"
    return DIST / f"{stem}-py3-none-any.whl", DIST / f"{stem}.tar.gz"


def projects() -> list[Project]:
    """dibs, then each of packages/."""
    folders = [ROOT, *sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))]
    return [Project(folder, tomllib.loads(_read(folder / "pyproject.toml"))) for folder in folders]


def copy_for_release(project: Project, target: Path, *, url: str, tag: str) -> None:
    """Copy what git knows of a project; with *url*, its pages name it. *tag*: what links show."""
    for name in project.files():
        if (project.folder / name).is_file():  # not, if it was deleted and that is not committed
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(project.folder / name, target / name)
    if url:
        _rewrite(target / "pyproject.toml", lambda text: with_urls(text, url, tag))
        below = project.folder.relative_to(ROOT).as_posix()
        base = f"{url}/{{kind}}/{tag}/" + ("" if below == "." else f"{below}/")
        _rewrite(target / "README.md", lambda text: with_absolute_links(text, base))


def with_urls(text: str, url: str, tag: str) -> str:
    """A pyproject.toml with `[project.urls]`."""
    lines = [f'{name} = "{url}/{page.format(tag=tag)}"' for name, page in _PAGES.items()]
    table = "\n".join(["[project.urls]", f'Homepage = "{url}"', *lines])
    return f"{text.rstrip()}\n\n{table}\n"


def with_absolute_links(text: str, base: str) -> str:
    """A page whose relative links lead to *base*, its pictures to the raw file."""

    def absolute(link: re.Match[str]) -> str:
        label, where = link[1], link[2]
        if "://" in where or where.startswith(("#", "mailto:")):
            return link[0]
        return f"{label}({base.format(kind='raw' if label.startswith('!') else 'blob')}{where})"

    parts = _FENCED.split(text)
    return "".join(
        part if _FENCED.fullmatch(part) else _LINK.sub(absolute, part) for part in parts
    )


def relative_links(text: str) -> list[str]:
    """Links of a page that lead nowhere outside of the repository."""
    found = [link[2] for link in _LINK.finditer(_FENCED.sub("", text))]
    return [where for where in found if "://" not in where and not where.startswith("#")]


def _read(path: Path) -> str:
    return path.read_text("utf-8")


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(_read(path)), "utf-8")
