"""The tests that reach what was changed, quickest first, for less than a minute: `make quick`.

python -m tests.quick [--against main] [--seconds 40] [--list]

Changed is what differs from a commit, by default from the last one. Which tests enter the changed
functions is in the map that `make map` makes; for what it does not know, tests are chosen by their
names and imports. A test that does not fit into the time is not run, and is counted.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tests.reach import REACH, ROOT
from tests.workers import DURATIONS, UNKNOWN, worker_count

CACHE = ROOT / ".pytest_cache" / "v"
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
AREAS = {
    "src/dibs/_http/": ("tests/http/", "tests/integrations/"),
    "src/dibs/integrations/_": ("tests/integrations/",),
    "src/dibs/_": ("tests/behaviour/_async/",),
}
"""What is used by everything: the first that fits has all tests in these folders."""
WORDLESS = {
    "", "init", "main", "test", "tests", "sync", "async", "core", "dibs", "src", "command", "lua",
    "behaviour", "integrations",
}  # fmt: skip
NONE_LEFT = 5
"""The exit code of pytest where no test is left."""
CALLED, IMPORTS, MENTIONS = 40, 20, 10
"""How near a test is that is called like the changed file, imports it, or names its function."""
OF_SCRIPTS = ("tests/behaviour/test_scripts.py", "tests/simulation/test_explorer.py")


def main() -> int:
    """The exit code of pytest, 0 if no test is concerned."""
    parser = argparse.ArgumentParser(description="the tests that reach what was changed")
    parser.add_argument("--against", default="HEAD", help="the commit to compare with")
    parser.add_argument("--seconds", type=float, default=40, help="how long tests may run")
    parser.add_argument("--workers", type=worker_count, default=4)
    parser.add_argument("--list", action="store_true", help="only print which tests it would run")
    options = parser.parse_args()
    changed = changes(options.against)
    if not changed:
        print(f"nothing differs from {options.against}")
        return 0
    chosen, rest = fitting(concerned(changed), options.seconds * options.workers)
    print(f"{len(chosen)} tests and modules reach the change in {len(changed)} files;", end=" ")
    print(f"{len(rest)} more would not fit into {options.seconds:g} s", flush=True)
    if options.list:
        print(*chosen, sep="\n")
        return 0
    pages = list(changed) if all(path.endswith(".md") for path in changed) else []
    return run(chosen, pages, options) if chosen else 0


def run(chosen: list[str], pages: list[str], options: argparse.Namespace) -> int:
    """Have pytest run them; of tests with a page, those of these pages."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(chosen))
        file.flush()
        command = [sys.executable, "-m", "pytest", "-q", "--engine", "valkey"]
        # Not by their ids: the map may know tests that have another name since.
        command += [
            "--chosen",
            file.name,
            *dict.fromkeys([each.partition("::")[0] for each in chosen]),
        ]
        command += [f"--page={page}" for page in pages]
        command += ["--workers", str(options.workers), "--for-seconds", str(options.seconds)]
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
        return 0 if code == NONE_LEFT else code


# ---------------------------------------------------------------------------- what was changed


def changes(commit: str) -> dict[str, list[int]]:
    """The changed lines of each file, by their new numbers; a new file has all of them."""
    found: dict[str, list[int]] = defaultdict(list)
    path = ""
    for line in git("diff", "--unified=0", "--no-color", "--no-ext-diff", commit).splitlines():
        if line.startswith("+++ "):
            path = line[6:]
        elif hunk := HUNK.match(line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            found[path] += range(first, first + max(count, 1))
    for path in git("ls-files", "--others", "--exclude-standard").splitlines():
        found[path] = list(range(1, len((ROOT / path).read_bytes().splitlines()) + 1))
    return {path: lines for path, lines in found.items() if (ROOT / path).is_file()}


def git(*words: str) -> str:
    command = ["git", "-c", "core.quotePath=false", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def functions(path: str, lines: list[int]) -> set[str] | None:
    """The names of the functions with these lines. None: some are in no function."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    spans = [(f"{path}::{name}", node) for name, node in _defined(tree, "")]
    found: set[str] = set()
    for line in lines:
        around = {name for name, node in spans if _first(node) <= line <= (node.end_lineno or 0)}
        if not around:
            return None
        found |= around
    return found


def _defined(node: ast.AST, prefix: str) -> Iterable[tuple[str, Any]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _defined(child, f"{prefix}{child.name}.")


def _first(node: Any) -> int:
    return min([node.lineno, *(each.lineno for each in node.decorator_list)])


# -------------------------------------------------------------------------- whom it concerns


def concerned(changed: dict[str, list[int]]) -> list[str]:
    """Node ids and test files: those that were changed, then the nearest, then the quickest."""
    own = [path for path in changed if re.fullmatch(r"tests/.*/?test_\w+\.py", path)]
    near: Counter[str] = Counter()
    for path, lines in changed.items():
        if path not in own:
            near |= by_map(path, lines) or by_name(path, lines)
    others = [each for each in near if each.partition("::")[0] not in own]
    return own + sorted(others, key=lambda test: (-near[test], seconds(test)))


def by_map(path: str, lines: list[int]) -> Counter[str]:
    """The tests that have entered the changed functions, or a function of a changed module."""
    stored = kept(REACH)
    if not (stored and path.endswith(".py")):
        return Counter()
    names = functions(path, lines)
    if names is None:
        names = {name for name in stored["functions"] if name.startswith(f"{path}::")}
    numbers = {number for name in names for number in stored["functions"].get(name, ())}
    tests = (stored["tests"][number] for number in sorted(numbers))
    there = [test for test in tests if (ROOT / test.partition("::")[0]).is_file()]
    return Counter({test: CALLED if _is_called(test, path) else 1 for test in there})


def by_name(path: str, lines: list[int]) -> Counter[str]:
    """How near each test file is: named like it, imports it, has its words, calls its functions."""
    if path.endswith(".md"):
        return Counter({test: 1 for test in test_files() if _reads(test, path)})
    words, near = _words(path), Counter[str]()
    for test in test_files():
        near[test] = _nearness(test, path, len(words & _words(test)))
    names = functions(path, lines) if path.endswith(".py") else None
    called = "|".join(re.escape(name.rpartition(".")[2].rpartition(":")[2]) for name in names or ())
    for test in +near:
        if called and re.search(rf"\.(?:{called})\(", (ROOT / test).read_text("utf-8")):
            near[test] += MENTIONS
    return +near


def _nearness(test: str, path: str, shared: int) -> int:
    if _is_called(test, path) or (path.endswith(".lua") and test in OF_SCRIPTS):
        return CALLED
    if _imports(test, path):
        return IMPORTS
    folders = next((tests for start, tests in AREAS.items() if path.startswith(start)), ())
    return shared + 1 if shared > 1 or test.startswith(tuple(folders)) else 0


def _is_called(test: str, path: str) -> bool:
    return Path(test.partition("::")[0]).stem.removeprefix("test_") == Path(path).stem.strip("_")


def _words(path: str) -> set[str]:
    return set(re.split(r"\W+|_", path.rpartition(".")[0])) - WORDLESS


def _reads(test: str, page: str) -> bool:
    if test == "tests/docs/test_docs.py":
        return True
    return test.startswith("tests/docs/") and page in (ROOT / test).read_text("utf-8")


def _imports(test: str, path: str) -> bool:
    folder, stem = os.path.split(path.removesuffix(".py"))
    if stem == "conftest":
        return test.startswith(f"{folder}/")
    package = folder.removeprefix("src/").replace("/", ".")
    if not package.startswith(("dibs", "apps", "local_line", "tests")):
        return False
    start = rf"^\s*from (?:{re.escape(package)}"
    start += r"|\.+[\w.]*)" if test.startswith(f"{folder}/") else ")"
    search = rf"{start}\.?\b{stem} import |{start} import .*\b{stem}\b"
    return bool(re.search(search, (ROOT / test).read_text("utf-8"), re.MULTILINE))


@cache
def test_files() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


# ------------------------------------------------------------------------------------ the time


def fitting(tests: list[str], budget: float) -> tuple[list[str], list[str]]:
    """Those that fit into so many seconds, in this order, and the others."""
    chosen: list[str] = []
    rest: list[str] = []
    for test in tests:
        budget -= seconds(test)
        (chosen if budget > 0 or not chosen else rest).append(test)
    return chosen, rest


@cache
def seconds(test: str) -> float:
    """How long a test, or all of a file, lasted the last time."""
    if "::" in test:
        return kept(DURATIONS).get(test, UNKNOWN)
    known = [time for name, time in kept(DURATIONS).items() if name.startswith(f"{test}::")]
    return sum(known) or 20 * UNKNOWN


@cache
def kept(name: str) -> dict[str, Any]:
    """What pytest's cache has under this name."""
    path = CACHE / name
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
