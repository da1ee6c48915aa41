"""The house rules: which room may know which, how big a room may be, what it costs to enter."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dibs

SRC = Path(dibs.__file__).parent
APPS = Path(__file__).parents[1] / "apps"
ROOMS = ["_core", "_http", "_transport", "_tasks", "_threads", "_forks", "_async", "_sync"]

PUBLIC = {"errors", "events", "claims", *dibs.__all__}
"""The public API: names of the package, and its public modules."""

# Who may import whom: apps → integrations → front door → shells → links → core.
MAY_KNOW: dict[str, set[str]] = {
    "errors": set(),
    "events": set(),
    "claims": set(),
    "_core": {"_core", "errors"},
    "_transport": {"_transport", "_core", "errors"},
    "_http": {"_http", "_core", "errors"},
    "_interface": {"_async", "_sync", "_core"},
    "integrations": {"integrations", "_http", "_interface", *PUBLIC},
    "testing": {"testing", *PUBLIC},
    "_forks": set(),
    "_outages": {"errors"},
    "_tasks": {"_transport", "_core", "errors"},
    "_threads": {"_transport", "_core", "errors"},
    "_async": {
        "_async",
        "_tasks",
        "_transport",
        "_core",
        "_forks",
        "_outages",
        "errors",
        "events",
        "claims",
    },
    "_sync": {
        "_sync",
        "_threads",
        "_transport",
        "_core",
        "_forks",
        "_outages",
        "errors",
        "events",
        "claims",
    },
}


def modules() -> list[Path]:
    return sorted(path for path in SRC.rglob("*.py") if "__pycache__" not in path.parts)


def room_of(path: Path) -> str:
    first = path.relative_to(SRC).parts[0]
    return first.removesuffix(".py")


def apps() -> list[Path]:
    return sorted(path for path in APPS.rglob("*.py") if "__pycache__" not in path.parts)


def imported_rooms(path: Path, package: list[str] | None = None) -> set[str]:
    """The rooms of dibs that a module imports, wherever in the file it does so."""
    package = package or ["dibs", *path.relative_to(SRC).parts[:-1]]
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            full = [*base, *(node.module.split(".") if node.module else [])]
            names = [full] if len(full) > 1 else [[*full, alias.name] for alias in node.names]
            rooms |= {parts[1] for parts in names if parts[0] == "dibs" and len(parts) > 1}
        elif isinstance(node, ast.Import):
            parts = [alias.name.split(".") for alias in node.names]
            rooms |= {part[1] for part in parts if part[0] == "dibs" and len(part) > 1}
    return rooms


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SRC)))
def test_imports_go_one_way(path: Path) -> None:
    """A room knows only the rooms below it."""
    room = room_of(path)
    if room in MAY_KNOW:
        assert imported_rooms(path) <= MAY_KNOW[room]


@pytest.mark.parametrize("path", apps(), ids=lambda path: str(path.relative_to(APPS)))
def test_applications_use_the_public_api(path: Path) -> None:
    """What our applications need, every application can have."""
    assert imported_rooms(path, ["apps"]) <= {"integrations", "testing", *PUBLIC}


def test_no_file_may_use_private_names_of_others_everywhere() -> None:
    """An exception from that rule is made for a line, not for a whole file."""
    for path in (SRC / "integrations").glob("*.py"):
        assert "reportPrivateUsage=false" not in path.read_text(), path


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


def test_the_front_door_has_a_dozen_names() -> None:
    """At most twelve, all of them there, and no framework behind the door."""
    assert len(dibs.__all__) <= 12
    assert dibs.__all__ == sorted(dibs.__all__)
    for name in dibs.__all__:
        assert getattr(dibs, name) is not None
    with pytest.raises(AttributeError):
        dibs.nothing_of_the_kind  # noqa: B018


def test_modules_and_functions_are_short() -> None:
    """Modules under 400 lines; functions 8 lines at the median, 25 at the ninetieth percentile."""
    lengths: list[int] = []
    for path in modules():
        text = path.read_text()
        assert len(text.splitlines()) < 400, path
        if room_of(path) == "_sync":
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
