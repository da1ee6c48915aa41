"""What type checkers say about 40 right and 120 wrong programs: `make type-checkers`.

Their users have one each. In `wrong`, a line with a mistake ends with `# wrong: …`, and says which
checkers do not see it; in `right`, a line that some reject ends with `# rejected by …`. The command
runs every checker that is installed and prints who sees how much. It fails where one says another
thing; `--write` changes the comments to what they say.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
COMMANDS = {
    "pyright": ("--pythonpath", "{python}"),
    "basedpyright": ("--pythonpath", "{python}"),
    "mypy": ("--python-executable", "{python}", "--no-error-summary"),
    "zuban": ("check", "--python-executable", "{python}"),
    "ty": ("check", "--python", "{python}", "--output-format", "concise"),
    "pyrefly": (
        "check",
        "--python-interpreter-path",
        "{python}",
        "--preset",
        "default",
        "--output-format",
        "min-text",
    ),  # as after `pyrefly init`
}
"""The checkers, with the settings that they have where nobody sets any."""
_ERROR = re.compile(r"^(?P<first>ERROR )?\s*(?P<path>\S+\.py):(?P<line>\d+)(?P<rest>.*)")
_SAYS_ERROR = re.compile(r"^[\d:-]*:? (?:- )?error\b")
_MARK = re.compile(
    r"  # (?P<kind>wrong: [^;\n]*|rejected)(?:(?:; unseen)? by (?P<names>[\w, ]+))?$"
)


@dataclass
class Marked:
    """A line with a mistake, or one that some checkers reject."""

    path: Path
    line: int
    names: frozenset[str]
    """Who does not see the mistake, or rejects what is right."""
    is_wrong: bool


def marked(path: Path) -> Iterator[Marked]:
    """The lines of *path* of which something is expected."""
    for number, text in enumerate(path.read_text("utf-8").splitlines(), 1):
        if match := _MARK.search(text):
            names = frozenset((match["names"] or "").split(", ")) - {""}
            names = frozenset(COMMANDS) if "all" in names else names
            yield Marked(path, number, names, match["kind"] != "rejected")


def programs() -> list[Path]:
    """The files with all of them."""
    return sorted([*FOLDER.glob("right/*.py"), *FOLDER.glob("wrong/*.py")])


def program_of(checker: str) -> Path | None:
    """Where *checker* is installed, beside this Python; None: it is not."""
    path = Path(sys.executable).with_name(checker)
    return path if path.exists() else None


def errors_of(checker: str, python: str) -> set[tuple[Path, int]]:
    """The lines in which *checker* finds an error, for the packages of *python*."""
    program = program_of(checker)
    assert program is not None, f"{checker} is not installed"
    arguments = [each.format(python=python) for each in COMMANDS[checker]]
    # Elsewhere, so that no checker finds the settings of this repository.
    with tempfile.TemporaryDirectory() as folder:
        names = [str(path.relative_to(FOLDER)) for path in programs()]
        for name in names:
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            shutil.copy(FOLDER / name, Path(folder) / name)
        done = subprocess.run(
            [program, *arguments, *names], cwd=folder, capture_output=True, text=True
        )
        return set(_errors_in(done.stdout, Path(folder).resolve()))


def _errors_in(said: str, folder: Path) -> Iterator[tuple[Path, int]]:
    for line in said.splitlines():
        match = _ERROR.match(line)
        if match and (match["first"] or _SAYS_ERROR.match(match["rest"])):
            path = (folder / match["path"]).resolve()
            yield FOLDER / path.relative_to(folder), int(match["line"])


def differences(checker: str, found: set[tuple[Path, int]]) -> list[str]:
    """Where *checker*, which has *found* errors, says another thing than the comments do."""
    left, said = set(found), list[str]()
    for path in programs():
        lines = path.read_text("utf-8").splitlines()
        for each in marked(path):
            place = {(path, number) for number in _lines_of(each, lines)}
            is_seen, left = bool(place & found), left - place
            if is_seen is (checker in each.names) and each.is_wrong:
                what = "now sees" if is_seen else "does not see"
                said.append(f"{checker} {what} {path.name}:{each.line}")
            elif is_seen is not (checker in each.names) and not each.is_wrong:
                what = "rejects" if is_seen else "now accepts"
                said.append(f"{checker} {what} {path.name}:{each.line}")
    return said + [f"{checker} rejects {path.name}:{line}" for path, line in sorted(left)]


def _lines_of(each: Marked, lines: list[str]) -> range:
    """Some checkers report a decorator, others the function below it."""
    is_decorator = lines[each.line - 1].lstrip().startswith("@")
    return range(each.line, each.line + 1 + is_decorator)


def write(found: dict[str, set[tuple[Path, int]]]) -> None:
    """Change the comments to what the checkers have *found*."""
    for path in programs():
        lines = path.read_text("utf-8").splitlines()
        for each in marked(path):
            here = {(path, number) for number in _lines_of(each, lines)}
            names = {name for name in found if bool(here & found[name]) is not each.is_wrong}
            names |= each.names - found.keys()  # not installed here
            line = lines[each.line - 1]
            head = line[: _match(line).start("kind")] + _match(line)["kind"]
            by = "; unseen by " if each.is_wrong else " by "
            listed = ["all"] if names == COMMANDS.keys() else sorted(names)
            lines[each.line - 1] = head + (by + ", ".join(listed) if names else "")
        path.write_text("\n".join(lines) + "\n", "utf-8")


def _match(line: str) -> re.Match[str]:
    match = _MARK.search(line)
    assert match is not None
    return match


def table(names: list[str]) -> str:
    """How many mistakes each of *names* sees, and how many right lines it rejects."""
    all_marked = [each for path in programs() for each in marked(path)]
    wrong = [each for each in all_marked if each.is_wrong]
    lines = [f"{'':14}{'sees':>10}{'rejects':>9}"]
    for name in names:
        seen = sum(name not in each.names for each in wrong)
        rejected = sum(name in each.names for each in all_marked if not each.is_wrong)
        lines.append(f"{name:14}{f'{seen} of {len(wrong)}':>10}{rejected:>9}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make type-checkers", description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="with the packages to look at")
    parser.add_argument("--write", action="store_true", help="change what is expected")
    options = parser.parse_args()
    python = str(Path(options.python).absolute())
    names = [name for name in COMMANDS if program_of(name)]
    found = {name: errors_of(name, python) for name in names}
    if options.write:
        write(found)
    said = [line for name in names for line in differences(name, found[name])]
    print(table(names))
    print("\n".join(said))
    return bool(said)


if __name__ == "__main__":
    sys.exit(main())
