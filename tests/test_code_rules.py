"""The rules of CONTRIBUTING.md that can be checked: modules, scripts, and where tests lie."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dibs

SRC = Path(dibs.__file__).parent
ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"


def modules() -> list[Path]:
    return sorted(path for path in SRC.rglob("*.py") if "__pycache__" not in path.parts)


def test_the_core_does_no_io_and_has_no_clock() -> None:
    """The core gets time, randomness and replies as arguments: it imports nothing that has them."""
    forbidden = {"time", "random", "socket", "asyncio", "threading", "redis", "os", "secrets"}
    for path in (SRC / "_core").rglob("*.py"):
        names: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
            assert not isinstance(node, ast.AsyncFunctionDef | ast.Await), path
        assert not names & forbidden, path


def test_only_one_module_asks_for_the_time_and_for_randomness() -> None:
    """Clients and transports import them from `_system`, where a simulation puts its own."""
    taken = {"getpid", "gethostname", "monotonic", "random", "secrets", "time", "urandom"}
    parts = ("_async", "_sync", "_transport")
    alone = {"_events.py", "_process_state.py", "_tasks.py", "_threads.py"}
    for path in modules():
        relative = path.relative_to(SRC)
        if relative.parts[0] not in parts and relative.name not in alone:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not {alias.name for alias in node.names} & taken, path
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module != "random", path
                assert not {alias.name for alias in node.names} & taken, path


def test_locks_and_threads_are_made_by_one_module() -> None:
    """A signal handler that raises can leave those of `threading` taken, or never begun."""
    made = {"Barrier", "Condition", "Event", "Lock", "RLock", "Semaphore", "Thread", "Timer"}
    try_locked = {"_forks.py", "_threads.py"}  # their plain locks are taken by `try_lock`
    for path in modules():
        if path.name == "_locks.py" or {"doctor", "testing"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(name := node.func, ast.Attribute):
                is_made = isinstance(name.value, ast.Name) and name.value.id == "threading"
                allowed = {"Lock"} if path.name in try_locked else set[str]()
                assert not (is_made and name.attr in made - allowed), (path, name.attr)


def test_the_public_api_is_small() -> None:
    """At most seventeen names, in order, all of them there."""
    assert len(dibs.__all__) <= 17
    assert dibs.__all__ == sorted(dibs.__all__)
    for name in dibs.__all__:
        assert getattr(dibs, name) is not None


def test_modules_and_functions_are_short() -> None:
    """Modules under 700 lines; functions 8 lines at the median, 25 at the ninetieth percentile."""
    lengths: list[int] = []
    for path in modules():
        text = path.read_text()
        assert len(text.splitlines()) < 700, path
        if "_sync" in path.relative_to(SRC).parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 1  # type: ignore[operator]
                lengths.append(lines)
    lengths.sort()
    assert lengths[len(lengths) // 2] <= 8
    assert lengths[len(lengths) * 9 // 10] <= 25


@pytest.mark.parametrize(
    "path", sorted((SRC / "_core" / "lua").glob("*.lua")), ids=lambda p: p.stem
)
def test_a_script_opens_with_its_contract(path: Path) -> None:
    """Every script says its keys, its arguments, its answers, and what it never touches."""
    head = [line for line in path.read_text().splitlines() if line.startswith("--")]
    text = "\n".join(head)
    assert text.startswith(f"-- {path.stem}.lua: ")
    for word in ("KEYS[1]", "ARGV[1]", "=>", "Never"):
        assert word in text


def test_importing_dibs_is_cheap_and_pulls_in_no_framework() -> None:
    """`import dibs` loads neither half, no framework, and none of the optional parts."""
    code = (
        "import sys, redis; before = set(sys.modules); import dibs; "
        "print(*sorted(set(sys.modules) - before))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = said.stdout.split()
    assert set(loaded) <= {"dibs", "dibs.errors"}


@pytest.mark.parametrize(("integration", "half"), [("asgi", "dibs._sync"), ("wsgi", "dibs._async")])
def test_an_integration_loads_the_half_that_it_needs(integration: str, half: str) -> None:
    """An ASGI application does not load the client for threads, nor a WSGI one that for asyncio."""
    code = f"import sys, dibs.integrations.{integration}; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert half not in said.stdout.split()


def test_every_public_thing_has_a_docstring() -> None:
    """A public class or function says what it promises."""
    for path in modules():
        if path.name == "__main__.py":
            continue
        tree = ast.parse(path.read_text())
        assert ast.get_docstring(tree), path
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"


# ---- tests are found where a reader looks for them

SAYS_NOTHING = re.compile(r"test_(review\w*|rough_edges|others?|around|misc|more|various|page)$")
UNCLEAR: set[str] = set()
"""Files whose name does not say what they test. One that is gone has to go from here."""

OF_THE_REPOSITORY = {
    "test_conditions",
    "test_dependencies",
    "test_dist",
    "test_generated",
    "test_code_rules",
    "test_imports",
    "test_packages",
    "test_public_api",
}
FOLDERS = {"core", "behaviour", "http", "integrations", "integrations/prometheus", "embedded"}

TESTED_ELSEWHERE = {
    "cache_options": "options",
    "codec_converters": "codec_types",
    "codec_classes": "codec_types",
    "unions": "codec_types",
    "engine": "capabilities",
    "entries": "inspection",
    "multiplexer": "connection",
    "plain_text": "keys",
}
"""Modules of the core whose tests bear the name of another module, through which they are used."""


PATH = re.compile(
    r"(?<![\w/.-])(?:src|tests|docs|apps|tools|benchmarks|deploy)/[\w/.-]*\.(?:py|lua|md)\b"
)
NAME = re.compile(r"`([\w-]+\.(?:py|lua))`")


def files_of_tests() -> list[Path]:
    """Those that are written by hand."""
    return [path for path in sorted(TESTS.rglob("test_*.py")) if "_sync" not in path.parts]


def promises_in(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [each for each in functions if each.name.startswith("test_")]


def test_a_test_file_is_named_after_what_it_tests() -> None:
    """No file for leftovers."""
    unclear = {path for path in files_of_tests() if SAYS_NOTHING.match(path.stem)}
    assert {str(path.relative_to(TESTS)) for path in unclear} == UNCLEAR


def test_every_part_has_a_folder_of_tests() -> None:
    """Beside the folders lies only what is about the repository itself."""
    assert all((TESTS / folder / "__init__.py").exists() for folder in FOLDERS)
    assert {path.stem for path in TESTS.glob("test_*.py")} <= OF_THE_REPOSITORY


@pytest.mark.parametrize("path", sorted((SRC / "_core").glob("[a-z]*.py")), ids=lambda p: p.stem)
def test_every_module_of_the_core_has_a_file_of_tests(path: Path) -> None:
    """`_core/cache.py` is tested in `core/test_cache.py`: without a server, without a clock."""
    name = TESTED_ELSEWHERE.get(path.stem, path.stem)
    assert (TESTS / "core" / f"test_{name}.py").exists()
    own = TESTS / "core" / f"test_{path.stem}.py"
    assert path.stem not in TESTED_ELSEWHERE or not own.exists(), "it has tests of its own"


@pytest.mark.parametrize("path", files_of_tests(), ids=lambda p: str(p.relative_to(TESTS)))
def test_a_test_states_a_promise_in_words(path: Path) -> None:
    """A file and each of its tests have a docstring, and names are words, not numbers of a list."""
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))
    for test in promises_in(path):
        assert ast.get_docstring(test), test.name
        assert not re.match(r"test_\d{1,2}_", test.name), test.name


def written() -> list[Path]:
    """Every page, and every Python file but those that make up file names."""
    made_up = {"test_generated.py", "test_code_rules.py", "test_quick.py"}
    folders = [SRC, TESTS, *(ROOT / name for name in ("docs", "apps", "tools", "deploy"))]
    found = [
        path for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".md")
    ]
    return sorted(path for path in {*found, *ROOT.glob("*.md")} if path.name not in made_up)


def test_no_file_is_named_that_is_not_there() -> None:
    """A path in a page, a comment or a test leads somewhere, and so does a name in backticks."""
    known = {path.name for folder in (SRC, ROOT / "tools", TESTS) for path in folder.rglob("*.*")}
    known |= {path.name for name in ("apps", "benchmarks") for path in (ROOT / name).rglob("*.py")}
    lost: list[str] = []
    for path in written():
        text = path.read_text("utf-8")
        lost += [
            f"{path.name}: {each}" for each in PATH.findall(text) if not (ROOT / each).exists()
        ]
        lost += [f"{path.name}: {each}" for each in NAME.findall(text) if each not in known]
    assert lost == []


def test_no_file_may_use_private_names_of_others_everywhere() -> None:
    """An exception from that rule is made for a line, not for a whole file."""
    for path in (SRC / "integrations").glob("*.py"):
        assert "reportPrivateUsage=false" not in path.read_text(), path


def test_replies_are_read_in_one_place() -> None:
    """No verb calls a reader itself: what a reader raises would come out of the verb."""
    total = {"read_versions", "read_begun", "read_validity", "read_record", "read_watch"}
    for path in (SRC / "_async").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                name = node.func.id
                is_reader = name.startswith("read_") and name not in total
                assert not is_reader, f"{path.name}:{node.lineno}: {name}"


def test_signatures_are_read_by_one_module() -> None:
    """From Python 3.14 on, `inspect.signature` fails at a name that is only for type checkers."""
    asked = {"signature", "getfullargspec", "get_annotations"}
    alone = {"signatures.py", "starlette.py"}  # the latter as FastAPI does
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in asked and path.name not in alone:
                is_asked = isinstance(node.value, ast.Name) and node.value.id == "inspect"
                assert not is_asked, f"{path.name}:{node.lineno}"
