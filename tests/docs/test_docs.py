"""The documentation is true: its examples run, its links lead somewhere, nothing is left out.

Every ```python block of README.md and docs/ is a separate program, run against a real Valkey.
`redis://localhost:6379` in it is that server; `url` is its address and `dibs` a ready object: an
`AsyncDibs` where the program awaits at the top, else a `Dibs`. What a program needs and a reader
does not is in a comment before it, `<!-- given … -->`; what must be true at its end in one after
it, `<!-- then … -->`. A ```python no-run block is compiled only.
"""

import ast
import asyncio
import functools
import inspect
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import CodeType
from typing import Any, get_args

import pytest

import dibs
import dibs.testing
from dibs import AsyncDibs, AsyncLease, Dibs, DibsError, Event, Lease, UsageError, errors, events
from dibs._core.codec import CODECS
from dibs._core.keys import seconds
from dibs.testing import FaultProxy, Server
from tools import count_words

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
MANUALS = sorted((ROOT / "packages").glob("*/*.md"))
PAGES = [ROOT / "README.md", *DOCS, *(page for page in MANUALS if page.name == "MANUAL.md")]
LETTERS = sorted(page for page in ROOT.glob("*.md") if page.name != "README.md")
APPS = sorted((ROOT / "apps").rglob("*.md"))
EVERYWHERE = "redis://localhost:6379"

BLOCK = re.compile(
    r"(?:^<!-- given\n(?P<given>.*?)^-->\n+)?"
    r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$"
    r"(?:\n+<!-- then\n(?P<then>.*?)^-->$)?",
    re.MULTILINE | re.DOTALL,
)
FENCED = re.compile(r"^```.*?^```$|<!--.*?-->|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<file>[^)#\s]*)(?:#(?P<anchor>[^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """One program of the documentation, and where it stands."""

    page: Path
    line: int
    mark: str
    source: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def compiled(self, url: str) -> CodeType:
        # Empty lines in front, so that a traceback names the line of the page.
        program = "\n" * self.line + self.source.replace(EVERYWHERE, url)
        return compile(program, str(self.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def examples(page: Path) -> Iterator[Example]:
    text = page.read_text("utf-8")
    for found in BLOCK.finditer(text):
        start = found.start("given") if found["given"] else found.start("code")
        program = _in_place(found, text)
        yield Example(page, text.count("\n", 0, start), found["mark"].strip(), program)


def _in_place(found: re.Match[str], text: str) -> str:
    """The parts of a program, each on the line where the page has it."""
    start = found.start("given") if found["given"] else found.start("code")
    program = ""
    for part in ("given", "code", "then"):
        if found[part]:
            gap = text.count("\n", start, found.start(part)) - program.count("\n")
            program += "\n" * gap + found[part]
    return program


EXAMPLES = [example for page in PAGES for example in examples(page)]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that wait for a server for seconds, also if a page says less: on a busy machine it
    may be silent for longer than a budget, or a TLS connection take longer to open than
    `connect`."""
    for kind in (Dibs, AsyncDibs):
        monkeypatch.setattr(kind, "__init__", _patiently(kind.__init__))


def _patiently(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def made(self: object, *args: Any, budget: Any = 0, **options: Any) -> None:
        budget = max(seconds(budget, "budget", zero=True), 3)
        init(self, *args, **{**options, "budget": budget, "connect": 30})

    return made


def test_a_busy_server_does_not_disturb_an_example(valkey: Server, patient: None) -> None:
    """It is silent for longer than the default budget, and the example stays guarded."""
    with FaultProxy(valkey.port) as slow:
        slow.delay(replies=0.4)
        _run(compile("assert dibs.try_hold('order:1', ttl=60).guarded", "page", "exec"), slow.url)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_every_example_runs(example: Example, valkey: Server, patient: None) -> None:
    """What a reader copies works: every example runs to its end on a real server."""
    assert example.mark in ("", "no-run"), f"```python {example.mark} is not a mark we know"
    code = example.compiled(valkey.url)
    if example.mark == "no-run":
        return
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_run_awaiting(code, valkey.url))
    else:
        _run(code, valkey.url)


def _run(code: CodeType, url: str) -> None:
    names: dict[str, Any] = {"__name__": "__example__", "url": url, "dibs": Dibs(url)}
    try:
        exec(code, names)
    finally:
        for thing in _made(names, Dibs):
            thing.close()


async def _run_awaiting(code: CodeType, url: str) -> None:
    names: dict[str, Any] = {"__name__": "__example__", "url": url, "dibs": AsyncDibs(url)}
    try:
        await eval(code, names)
    finally:
        for thing in _made(names, AsyncDibs):
            await thing.aclose()
        for thing in _made(names, Dibs):
            thing.close()


def _made(names: dict[str, Any], kind: type) -> list[Any]:
    return [thing for thing in names.values() if isinstance(thing, kind)]


def test_a_page_shows_every_import_that_its_examples_need() -> None:
    """What stands for the reader's program may be hidden; what must be imported may not."""
    hidden: list[str] = []
    for page in PAGES:
        shown: set[str] = set()
        for found in BLOCK.finditer(page.read_text("utf-8")):
            shown |= _imported(found["code"])
            needed = _imported(found["given"] or "") & _names_in(found["code"])
            hidden += [f"{page.relative_to(ROOT)}: {name}" for name in needed - shown]
    assert not hidden


def _imported(code: str) -> set[str]:
    names = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.alias)]
    return {each.asname or each.name.partition(".")[0] for each in names}


def _names_in(code: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def test_the_blocks_about_payments_are_one_program(
    valkey: Server, patient: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pasted one after the other, without what is hidden, they run; so does the endpoint."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/how-to/payments.md").read_text("utf-8")
    blocks = [found["code"] for found in BLOCK.finditer(page)]
    assert len(blocks) == 3
    request = (
        "from fastapi.testclient import TestClient\n"
        "with TestClient(app) as client:\n"
        "    answer = client.post('/orders?amount=3', headers={'Idempotency-Key': 'c9'})\n"
        "assert answer.status_code == 201\n"
        "with sessions() as session:\n"
        "    assert session.query(Order).count() == 3\n"
        "engine.dispose()"
    )
    program = "\n".join([*blocks, request]).replace(EVERYWHERE, valkey.url)
    _run(compile(program, "payments", "exec"), valkey.url)


def test_the_stock_of_the_example_is_not_oversold_in_an_outage() -> None:
    """The page says that it is right as it stands: also if Redis is down."""
    page = (ROOT / "docs/how-to/transactions.md").read_text("utf-8")
    found = next(BLOCK.finditer(page))
    requests = (
        "from fastapi.testclient import TestClient\n"
        "with engine.begin() as connection:\n"
        "    connection.execute(text('CREATE TABLE stock (sku TEXT, n INTEGER)'))\n"
        "    connection.execute(text(\"INSERT INTO stock VALUES ('tea', 5)\"))\n"
        "with TestClient(app) as client:\n"
        "    assert client.post('/stock/tea/sell').status_code == 503\n"
        "with engine.begin() as connection:\n"
        "    assert connection.execute(text('SELECT n FROM stock')).scalar_one() == 5\n"
        "engine.dispose()"
    )
    program = "\n".join([found["given"], found["code"], requests])
    url = "redis://127.0.0.1:1"
    _run(compile(program.replace(EVERYWHERE, url), "transactions", "exec"), url)
    held = re.findall(r"\b(?:hold|held)\(f?\"(?:stock|account).*?\)", found.string)
    waiting = [each for each in held if "wait=" in each or "fence=" in each]
    assert len(waiting) == 4
    assert not [each for each in waiting if 'on_outage="closed"' not in each]


def test_there_are_examples() -> None:
    """The pattern that finds the examples still finds them, on every page that has one."""
    for page in PAGES:
        shown = page.read_text("utf-8").count("\n```python")
        assert shown == sum(example.page == page for example in EXAMPLES), page
    assert len(EXAMPLES) > 30


@pytest.mark.parametrize(
    "page", [*PAGES, *LETTERS, *APPS, *MANUALS], ids=lambda page: str(page.relative_to(ROOT))
)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Relative links name an existing file, and a heading that is in it."""
    for link in LINK.finditer(FENCED.sub("", page.read_text("utf-8"))):
        if "://" in link["file"]:
            continue
        there = (page.parent / link["file"]).resolve() if link["file"] else page
        assert there.exists(), f"{page.name} links to {link['file']}"
        if link["anchor"] and there.suffix == ".md":
            assert link["anchor"] in _anchors(there), f"{page.name} links to {link[0]}"


def _anchors(page: Path) -> set[str]:
    headings = HEADING.findall(
        re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    )
    kept = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_opens_with_its_essence(page: Path) -> None:
    """A title, then one line that says it all; and the index leads to every page."""
    title, nothing, essence = page.read_text("utf-8").split("\n")[:3]
    assert title.startswith("# ")
    assert not nothing
    assert essence.startswith("**Only one" if page.name == "index.md" else "**TL;DR:**")
    index = (ROOT / "docs/index.md").read_text("utf-8")
    assert page.name == "index.md" or f"]({page.relative_to(ROOT / 'docs')})" in index


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_column_has_a_name(page: Path) -> None:
    """A screen reader says it before each cell."""
    heads = re.findall(r"^(\|.*\|)\n\|(?:---\|)+$", page.read_text("utf-8"), re.MULTILINE)
    assert [head for head in heads if re.search(r"\|\s*\|", head)] == []


FOLDERS = ("how-to", "frameworks", "migration", "caching")
GUIDES = [page for page in DOCS if page.parent.name in FOLDERS]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_guide_ends_with_the_next_step(page: Path) -> None:
    """Its last paragraph links to the next page for a reader."""
    last = page.read_text("utf-8").rstrip().rpartition("\n\n")[2]
    assert LINK.search(last), last


def test_every_row_of_the_comparison_says_how_it_is_known() -> None:
    """Run, or read in the documentation: each row has a mark, or its table has."""
    text = (ROOT / "docs/comparison.md").read_text("utf-8").partition("## Locks")[2]
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 5
    for table in tables:
        header, _, *rows = table.splitlines()
        unmarked = [row for row in rows if not re.search(r"\((?:run|docs)", header + row)]
        assert not unmarked, unmarked


# ---------------------------------------------------------------------------------- completeness


def _reference(*names: str) -> str:
    return "\n".join((ROOT / "docs" / name).read_text("utf-8") for name in names)


API = "reference/api.md"
EVENTS = "reference/events.md"
PROTOCOL = "reference/protocol.md"


@pytest.mark.parametrize("name", dibs.__all__)
def test_every_public_name_is_in_the_reference(name: str) -> None:
    """Every name of the public API is explained."""
    assert re.search(rf"`{name}\b", _reference(API, EVENTS))


@pytest.mark.parametrize("name", dibs.testing.__all__)
def test_every_name_for_tests_is_explained(name: str) -> None:
    """Every name of dibs.testing is on its page."""
    assert re.search(rf"`{name}\b", _reference("testing.md"))


@pytest.mark.parametrize("name", CODECS)
def test_every_codec_is_explained(name: str) -> None:
    """Every name of `codec=` has its row, and is in the reference."""
    page = (ROOT / "docs/caching/types.md").read_text("utf-8")
    assert re.search(rf'^\| .*`"{name}"`.* \|', page.partition("## Codecs")[2], re.MULTILINE)
    assert f'`"{name}"`' in _reference(API)


@pytest.mark.parametrize("kind", get_args(events.Kind))
def test_every_event_is_in_the_reference(kind: str) -> None:
    """Every kind of event has its row."""
    assert re.search(rf"^\| `{kind}` \|", _reference(EVENTS), re.MULTILINE)


def test_every_fact_of_an_event_is_in_the_reference() -> None:
    """Every field of an Event is explained."""
    for field in fields(Event):
        assert f"`{field.name}`" in _reference(EVENTS), field.name


ALL_ERRORS = [
    thing
    for name, thing in vars(errors).items()
    if isinstance(thing, type) and issubclass(thing, DibsError) and name[0] != "_"
]


@pytest.mark.parametrize("error", ALL_ERRORS, ids=lambda error: error.__name__)
def test_every_error_and_its_facts_are_in_the_reference(error: type[DibsError]) -> None:
    """Every error has a section or a row, and every fact it carries is named."""
    text = _reference(API)
    assert f"`{error.__name__}`" in text
    facts = inspect.signature(error).parameters if "__init__" in vars(error) else ()
    for fact in facts:
        assert f"`{fact}`" in text, fact


VERBS = [
    *[Dibs, Dibs.hold, Dibs.try_hold, Dibs.exclusive, Dibs.leader],
    *[Dibs.scheduled, Dibs.scheduler],
    *[Dibs.cached, Dibs.cached_many, Dibs.get_or_load, Dibs.invalidate],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_option_is_in_the_reference(verb: Any) -> None:
    """Every keyword of every verb is explained."""
    options = {
        name
        for name, option in inspect.signature(verb).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }
    missing = {option for option in options if f"`{option}`" not in _reference(API)}
    assert not missing


@pytest.mark.parametrize(
    "verb", [Dibs.cached, Dibs.cached_many, Dibs.get_or_load], ids=lambda verb: verb.__name__
)
def test_every_option_of_a_cache_has_a_row_with_its_default(verb: Any) -> None:
    """The reference has a row for each option, with its true default."""
    table = _reference(API).partition("## Options of `cached`")[2].partition("\n## ")[0]
    for name, option in inspect.signature(verb).parameters.items():
        if option.kind is not option.KEYWORD_ONLY or name == "name":
            continue
        [row] = re.findall(rf"^\| `{name}` \| (.*?) \|", table, re.MULTILINE)
        shown = re.split("[,;] ", row)[-1].strip("`").strip('"')
        if isinstance(option.default, str):
            assert shown == option.default, name
        elif option.default not in (None, (), option.empty):
            assert shown == "False" if option.default is False else float(shown) == option.default


def test_every_verb_of_a_cached_function_is_in_the_reference() -> None:
    """Every method of a cached function is explained."""
    cached = Dibs("redis://127.0.0.1:1").cached("x:{x}", ttl=1)(lambda x: x)
    names = {name for name in dir(type(cached)) if not name.startswith("_")}
    assert names
    for name in names:
        assert f"`f.{name}(" in _reference(API), name


@pytest.mark.parametrize("lease", [Lease, AsyncLease])
def test_everything_on_a_lease_is_in_the_reference(lease: type) -> None:
    """Every attribute and method of a lease that users may touch is explained."""
    names = {name for name in dir(lease) if not name.startswith("_")}
    missing = {name for name in names if not re.search(rf"`{name}\b", _reference(API))}
    assert not missing


def test_every_target_is_in_the_reference() -> None:
    """Every scheme that dibs says it knows is explained."""
    with pytest.raises(UsageError) as caught:
        Dibs("nonsense://")
    known = str(caught.value).partition("known: ")[2].split()
    assert len(known) > 5
    for scheme in known:
        assert f"`{scheme}" in _reference("reference/targets.md"), scheme


def _known_files(folder: Path) -> list[Path]:
    """What git knows under *folder*: a file on its way in need not be documented yet."""
    command = ["git", "-C", str(folder), "ls-files", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        names = []
    else:
        names = listed.stdout.split("\0")[:-1]
    found = [folder / name for name in names] or list(folder.rglob("*"))
    return sorted(path for path in found if path.is_file())


PACKAGE = ROOT / "src/dibs"
SCRIPTS = [path for path in _known_files(PACKAGE) if path.suffix == ".lua"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_every_script_is_linked_in_the_protocol(script: Path) -> None:
    """Another language needs the very same bytes, or EVALSHA would not find them."""
    assert f"[{script.name}](../../{script.relative_to(ROOT)})" in _reference(PROTOCOL)


def test_the_architecture_names_every_package() -> None:
    """Those of the library, each with what it does; the modules are on a page that is written."""
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    folders = {path.parent for path in _known_files(PACKAGE) if path.suffix == ".py"}
    for folder in {path for path in folders if path.parent == PACKAGE}:
        assert f"`{folder.name}/`" in text, folder.name


def test_the_documentation_is_short(tmp_path: Path) -> None:
    """In all, on each page, and where it is read first; what is too long is named."""
    assert [*count_words.too_long(ROOT)] == []
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "ARCHITECTURE.md", "docs/index.md"):
        (tmp_path / page).write_text("word " * 60_000)
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n\n## 1\n" + "line\n" * 50)
    assert len([*count_words.too_long(tmp_path)]) == 5


def test_every_make_target_that_is_named_exists() -> None:
    """`make something` in the texts is something that make can do."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in [*PAGES, *LETTERS]:
        named = set(
            re.findall(r"(?:`|^)make ([a-z][a-z-]+)", page.read_text("utf-8"), re.MULTILINE)
        )
        assert named <= targets, page
