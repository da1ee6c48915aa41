"""The built site: made once for all tests of a run, read without a browser."""

import fcntl
import functools
import html.parser
import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "docs"
"""Kept from run to run: pages that did not change are not read again."""

RESOURCES = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src"}


def build(mark: Path) -> str:
    """Build the site, unless *mark* says that this run has; what the build printed as errors.

    Several test processes may ask at the same time: one builds, the others wait for it.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            command = [sys.executable, "-m", "tools.docsite"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            problems = done.stderr.strip() or f"exit code {done.returncode}"
            mark.write_text(problems if done.returncode else "", "utf-8")
        return mark.read_text("utf-8")


@dataclass
class Page(html.parser.HTMLParser):
    """What a page links to, what it loads, and what can be linked to."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found["id"]} if "id" in found else set()
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        where = RESOURCES.get(tag)
        if where in found and found.get("rel") != "canonical":
            self.resources.append(found[where])


def pages(folder: Path) -> dict[Path, Page]:
    """Every page below *folder*, by its path."""
    return {path: Page(path) for path in sorted(folder.rglob("*.html"))}


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address at which *folder* is served."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
