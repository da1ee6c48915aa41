"""Generate the sync half of dibs from the async half: `_async/` → `_sync/`.

    python tools/unasync.py            write the generated files, remove those without a source
    python tools/unasync.py --check    name each file that is out of date; exit 1 if there is one

A source is cut into pieces by `tokenize` and changed only where a piece says so: layout and
comments stay. Strings and comments are changed word by word, and an f-string is one piece on every
Python (before 3.12 it is one token, since then many), so that all Pythons generate the same bytes.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from itertools import accumulate, groupby
from pathlib import Path
from typing import NamedTuple

FOLDERS = {
    "src/dibs/_async": "src/dibs/_sync",
    "src/dibs/integrations/_async": "src/dibs/integrations/_sync",
    "tests/behaviour/_async": "tests/behaviour/_sync",
}
HEADER = "# Generated from {} by unasync.py – do not edit.\n"
RENAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "_tasks": "_threads",
    "aclose": "close",
    "aclosing": "closing",
    "aiter": "iter",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "enter_async_context": "enter_context",
    "isasyncgenfunction": "isgeneratorfunction",
    "push_async_callback": "callback",
    "StopAsyncIteration": "StopIteration",
}
WRAPPERS = {"Awaitable": 1, "Coroutine": 3}  # how many arguments; the last is what stays
# A backslash and its letter come first: in "\nAsyncLease" the word is not nAsyncLease.
WORDS = re.compile(r"\\.|(?P<gone>await|async(?= +(?:with|for|def)\b)) +|\w+", re.DOTALL)


class Refused(Exception):
    """This source cannot be translated; says where and why."""


class Piece(NamedTuple):
    """What the generator looks at – NAME, OP, STRING, COMMENT, NEWLINE – and where it stands."""

    kind: str
    text: str
    start: int
    end: int
    line: int


Edit = tuple[int, int, str]


def generated(source: str, name: str) -> str:
    """The sync text of an async module. Refused: there is none, or it does not compile."""
    try:
        compile(source, name, "exec", dont_inherit=True)
        text = HEADER.format(name) + edited(source)
        compile(text, f"{name}, generated", "exec", dont_inherit=True)
    except SyntaxError as error:
        raise Refused(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except Refused as error:
        raise Refused(f"{name}:{error}") from None
    return text


def edited(source: str) -> str:
    """The source with all its edits made; an edit inside a dropped stretch goes with it."""
    edits = [edit for statement in statements(source) for edit in edits_of(statement, source)]
    parts, done = list[str](), 0
    for start, end, text in sorted(edits, key=lambda edit: (edit[0], -edit[1])):
        if start >= done:
            parts += source[done:start], text
            done = end
    return "".join([*parts, source[done:]])


def statements(source: str) -> Iterator[list[Piece]]:
    """The pieces, up to each NEWLINE; after the last one there may be comments."""
    statement = list[Piece]()
    for piece in pieces(source):
        statement.append(piece)
        if piece.kind == "NEWLINE":
            yield statement
            statement = []
    yield statement


def pieces(source: str) -> Iterator[Piece]:
    """What `tokenize` finds, an f-string in one; offsets count from the start of the source."""
    lines = [0, 0, *accumulate(len(line) for line in io.StringIO(source))]
    opened = list[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        start, end = (lines[row] + column for row, column in (token.start, token.end))
        if kind.endswith("STRING_START"):
            opened.append(start)
        elif kind.endswith("STRING_END"):
            start, kind = opened.pop(), "STRING"
        if not opened and kind in ("NAME", "OP", "STRING", "COMMENT", "NEWLINE"):
            yield Piece(kind, source[start:end], start, end, token.start[0])


def edits_of(statement: list[Piece], source: str) -> Iterator[Edit]:
    """Every change that the pieces of one statement ask for."""
    for piece in statement:
        if piece.kind in ("STRING", "COMMENT"):
            yield piece.start, piece.end, WORDS.sub(reworded, piece.text)
    code = [piece for piece in statement if piece.kind != "COMMENT"]
    listed = next((at for at, piece in enumerate(code) if piece.text == "import"), len(code))
    yield from thinned(code, listed, source)
    for at, piece in enumerate(code):
        if piece.text in ("async", "await"):
            yield piece.start, code[at + 1].start, ""
        elif piece.text in WRAPPERS and at < listed:
            yield from unwrapped(code, at)
        elif piece.kind == "NAME":
            yield piece.start, piece.end, renamed(piece.text)


def renamed(word: str) -> str:
    """The sync name: from the list, or without its `Async`."""
    bare = word.lstrip("_")
    if bare.startswith("Async") and bare[5:6].isupper():
        return word.replace("Async", "", 1)
    return RENAMES.get(word, word)


def reworded(word: re.Match[str]) -> str:
    """The same for a word in a string or a comment."""
    return "" if word["gone"] else renamed(word[0])


def unwrapped(code: list[Piece], at: int) -> Iterator[Edit]:
    """Leave T of `Awaitable[T]`. Refused: the wrapper stands alone or behind a dot."""
    wrapper, texts = code[at], [piece.text for piece in code]
    if texts[at + 1] != "[" or texts[at - 1] == ".":
        raise Refused(f"{wrapper.line}: {wrapper.text} can be translated only as {wrapper.text}[…]")
    end, firsts, depth = at + 1, [at + 2], 1
    while depth:
        end += 1
        depth += (texts[end] in ("(", "[", "{")) - (texts[end] in (")", "]", "}"))
        if depth == 1 and texts[end] == "," and texts[end + 1] != "]":
            firsts.append(end + 1)
    if len(firsts) != WRAPPERS[wrapper.text]:
        raise Refused(f"{wrapper.line}: {wrapper.text}[…] takes {WRAPPERS[wrapper.text]}")
    yield wrapper.start, code[firsts[-1]].start, ""
    yield code[end - 1 - (texts[end - 1] == ",")].end, code[end].end, ""


def thinned(code: list[Piece], listed: int, source: str) -> Iterator[Edit]:
    """Drop imported wrappers, and names that became equal; with the last name, the line."""
    words = [piece for piece in code[listed + 1 :] if piece.kind == "NAME" or piece.text == ","]
    by_comma = groupby(words, key=lambda piece: piece.text == ",")
    names = [list(name) for is_comma, name in by_comma if not is_comma]
    seen, stays = set(WRAPPERS), False
    for at, name in enumerate(names):
        text = " ".join(renamed(piece.text) for piece in name)
        if text not in seen:
            seen.add(text)
            stays = True
        elif stays:
            yield names[at - 1][-1].end, name[-1].end, ""
        elif at + 1 < len(names):
            yield name[0].start, names[at + 1][0].start, ""
        else:
            yield source.rfind("\n", 0, code[0].start) + 1, code[-1].end, ""


def plan(root: Path) -> dict[Path, bytes]:
    """What each generated file has to contain. Refused: one of the sources cannot be translated."""
    return {
        root / sync / path.relative_to(root / source): generated(
            path.read_text("utf-8"), path.relative_to(root).as_posix()
        ).encode()
        for source, sync in FOLDERS.items()
        for path in sorted((root / source).rglob("*.py"))
    }


def leftovers(root: Path, wanted: dict[Path, bytes]) -> list[Path]:
    """Files in a generated folder that no source accounts for."""
    there = {path for sync in FOLDERS.values() for path in (root / sync).rglob("*.py")}
    return sorted(there - wanted.keys())


def problems(root: Path) -> list[str]:
    """One line for each generated file that is missing, differs by a byte, or has no source."""
    wanted = plan(root)
    stale = [path for path, text in wanted.items() if path.exists() and path.read_bytes() != text]
    return [
        *(f"{path.relative_to(root)}: missing" for path in wanted if not path.exists()),
        *(f"{path.relative_to(root)}: out of date" for path in stale),
        *(f"{path.relative_to(root)}: stray, it has no source" for path in leftovers(root, wanted)),
    ]


def write(root: Path) -> int:
    """Write every generated file; return their number. A stray file written by hand is refused."""
    wanted = plan(root)
    for path in leftovers(root, wanted):
        if not path.read_text("utf-8").startswith(HEADER.partition("{")[0]):
            raise Refused(f"{path.relative_to(root)}: written by hand, in a generated folder")
        path.unlink()
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    return len(wanted)


def main(arguments: list[str]) -> int:
    """Generate, or with `--check` compare; the exit code."""
    root = Path(__file__).resolve().parents[1]
    try:
        if arguments == ["--check"]:
            found = problems(root)
            lines = [*found, "run `make generate`"] if found else ["generated files are up to date"]
            print("\n".join(lines))
            return 1 if found else 0
        if not arguments:
            print(f"generated {write(root)} files")
            return 0
    except Refused as error:
        print(error)
        return 1
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
