"""Count the words of the documentation, as `wc -w` does: all pages, each page, two of the root.

    python tools/count_words.py            the words of each page, the longest last
    python tools/count_words.py --check    what is too long, with the figure that it has

What is generated is not counted: docs/internals, and what stands between marks of its program. A
page that needs more words gets them from another one: say a thing once, and link to it.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

MOST = 60_100
MOST_OF_A_PAGE = 1_850
LONGER = {
    "docs/reference/api.md": 3_450,  # a row for each option, error and extra
    "docs/reference/protocol.md": 2_700,
    "docs/troubleshooting.md": 2_200,
    "docs/jobs.md": 2_000,  # five frameworks
    "docs/guarantees.md": 2_100,
}
"""What is looked up, not read."""
MOST_OF_THE_ARCHITECTURE = 12_000
"""Bytes."""
MOST_OF_A_RELEASE = 45
"""Lines of the change log."""


def main(arguments: list[str]) -> int:
    """Print the words; with `--check` what is too long. Returns 1 if something is."""
    root = Path(__file__).parents[1]
    if "--check" in arguments:
        wrong = [*too_long(root)]
        print(*wrong, sep="\n", end="\n" if wrong else "")
        return 1 if wrong else 0
    counted = words(root)
    for page, count in sorted(counted.items(), key=lambda each: each[1]):
        print(f"{count:6} {page}")
    print(f"{sum(counted.values()):6} in all")
    return 0


_GENERATED = re.compile(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", re.DOTALL)


def words(root: Path) -> dict[str, int]:
    """The words of each page."""
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    return {
        str(page.relative_to(root)): len(_GENERATED.sub("", page.read_text("utf-8")).split())
        for page in pages
        if page.parent.name != "internals"
    }


def too_long(root: Path) -> Iterator[str]:
    """A line for each limit that is exceeded."""
    counted = words(root)
    if (count := sum(counted.values())) > MOST:
        yield f"all pages have {count} words, more than {MOST}: shorten a page you touch"
    for page, count in counted.items():
        if count > (most := LONGER.get(page, MOST_OF_A_PAGE)):
            yield f"{page} has {count} words, more than {most}"
    if (size := (root / "ARCHITECTURE.md").stat().st_size) > MOST_OF_THE_ARCHITECTURE:
        yield f"ARCHITECTURE.md has {size} bytes, more than {MOST_OF_THE_ARCHITECTURE}"
    for release in (root / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]:
        if (lines := len(release.splitlines())) > MOST_OF_A_RELEASE:
            title = release.splitlines()[0]
            yield f"CHANGELOG.md, {title}: {lines} lines, more than {MOST_OF_A_RELEASE}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
