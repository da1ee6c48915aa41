"""`make docs`: builds the site and prints where it is. 1: there was a warning."""

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from sphinx.cmd.build import build_main

from . import api, navigation, sources

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CONFIGURATION = ROOT / "docs" / "conf.py"
INDEX = PurePosixPath("index.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the site. 1: a page has a broken link, or Sphinx warned."""
    parser = argparse.ArgumentParser(prog="python -m tools.docsite", description=__doc__)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "docs")
    folder: Path = parser.parse_args(arguments).folder
    try:
        files = site_files(ROOT)
    except sources.BrokenLink as error:
        print(error, file=sys.stderr)
        return 1
    write(folder / "source", files)
    if not built(folder):
        _forget(folder)  # or the next build would not warn of what it need not read again
        return 1
    print(f"the site is in {folder / 'html'}: open {folder / 'html' / 'index.html'}")
    return 0


def site_files(root: Path) -> dict[PurePosixPath, bytes]:
    """Every source file of the site: the repository's pages, the menu, and the API pages."""
    files = sources.collected(root)
    index = files[INDEX].decode("utf-8")
    for entry in navigation.parents(index):
        _change(
            files, entry.document, lambda page, entry=entry: navigation.with_children(page, entry)
        )
    _change(files, "index", navigation.with_menu)
    made = api.pages(files[PurePosixPath(f"{api.PARENT}.md")].decode("utf-8"))
    _change(files, api.PARENT, lambda page: api.with_list(page, made))
    return files | {api.path_of(page): str(page).encode("utf-8") for page in made}


def _change(files: dict[PurePosixPath, bytes], document: str, change: Callable[[str], str]) -> None:
    path = PurePosixPath(f"{document}.md")
    files[path] = change(files[path].decode("utf-8")).encode("utf-8")


def write(folder: Path, files: Mapping[PurePosixPath, bytes]) -> None:
    """Make *folder* hold *files* and nothing else; what did not change is not touched."""
    for old in [path for path in folder.rglob("*") if path.is_file()]:
        if PurePosixPath(old.relative_to(folder).as_posix()) not in files:
            old.unlink()
    for path, data in files.items():
        target = folder / path
        if not target.exists() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def built(folder: Path) -> bool:
    """Run Sphinx; False: it warned. All pages are written: each shows the menu."""
    shutil.rmtree(folder / "html", ignore_errors=True)
    _forget_what_other_tools_read(folder)
    options = ["-q", "-W", "--keep-going", "-n", "-a", "-j", "auto", "-b", "html"]
    where = [
        "-c",
        CONFIGURATION.parent,
        "-d",
        folder / "doctrees",
        folder / "source",
        folder / "html",
    ]
    return build_main([*options, *map(str, where)]) == 0


def _forget_what_other_tools_read(folder: Path) -> None:
    """What was read before is used again only if this package and conf.py are the same."""
    code = b"".join(path.read_bytes() for path in [*sorted(HERE.glob("*.py")), CONFIGURATION])
    mark = folder / "tools"
    if not mark.exists() or mark.read_text() != hashlib.sha256(code).hexdigest():
        _forget(folder)
        mark.write_text(hashlib.sha256(code).hexdigest())


def _forget(folder: Path) -> None:
    shutil.rmtree(folder / "doctrees", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
