"""Which package may import which; tests/test_imports.py fails on any other import and on cycles.

Every import counts: those inside of functions and those for type checkers as well. What may import
what is declared here, in `LAYERS` and `MAY_IMPORT`; `problems` names every import that goes another
way, every cycle of modules, and every exception that is no longer needed.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

PACKAGES = ("dibs", "apps", "dibs_torture", "local_line")

Imports = dict[str, set[str]]
"""The modules that each module imports."""

LAYERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("playground", ("apps.playground",)),
    ("applications", ("apps.weamind", "apps.orders", "apps.menu")),
    ("databases", ("apps.databases", "apps.postgresql", "apps.deadlines", "apps")),
    ("other distributions", ("dibs_torture", "local_line")),
    ("integrations", ("dibs.integrations", "dibs.testing")),
    ("commands", ("dibs.__main__", "dibs.cli", "dibs.scheduler", "dibs.doctor")),
    ("console", ("dibs.console",)),
    ("public API", ("dibs",)),
    (
        "internal interfaces",
        ("dibs._key_texts", "dibs._internal_api", "dibs._doctor_api", "dibs._event_counting"),
    ),
    ("HTTP engine", ("dibs._http",)),
    ("clients", ("dibs._async", "dibs._sync")),
    ("events, identity", ("dibs._events", "dibs._process_state")),
    ("tasks and threads", ("dibs._tasks", "dibs._threads")),
    ("transport", ("dibs._transport", "dibs._databases")),
    ("server launcher", ("dibs._server",)),
    ("pure core", ("dibs._core",)),
    (
        "for every layer",
        ("dibs.claims", "dibs.events", "dibs.errors", "dibs._forks", "dibs._locks", "dibs._system"),
    ),
)
"""From the top. An import goes down, or stays in its package."""

FACTS = {"dibs.errors", "dibs.events", "dibs.claims"}
PUBLIC = {"dibs", *FACTS}
INTERFACES = {
    *(
        "dibs._internal_api",
        "dibs._process_state",
        "dibs._key_texts",
        "dibs._doctor_api",
        "dibs._event_counting",
    ),
    "dibs._http",
}
"""What integrations and commands may use of dibs beside its public API."""
USERS = {*PUBLIC, "dibs.integrations", "dibs.testing"}
"""What an application may import."""
CLIENTS = {
    *("dibs._events", "dibs._transport", "dibs._databases", "dibs._server"),
    "dibs._core",
    *("dibs._forks", "dibs._process_state", "dibs._system", *FACTS),
}
THREADS = {"dibs._locks", "dibs._system"}
MAY_IMPORT: dict[str, set[str]] = {
    "apps.playground": {*USERS, "apps.weamind", "apps.orders", "apps.menu", "local_line"},
    "apps.weamind": {*USERS, "local_line"},
    "apps.orders": {*USERS, "apps.databases", "apps.postgresql"},
    "apps.menu": {*USERS, "apps.databases", "apps.postgresql"},
    "apps.databases": {"apps.postgresql", "apps.deadlines"},
    "apps.postgresql": {"apps.deadlines"},
    "apps.deadlines": set(),
    "apps": set(),
    "dibs_torture": USERS,
    "local_line": set(),
    "dibs.integrations": {
        *(*PUBLIC, "dibs._internal_api", "dibs._event_counting", "dibs._http", "dibs.testing")
    },
    "dibs.testing": {*PUBLIC, "dibs._server"},
    "dibs.__main__": {"dibs.cli"},
    "dibs.cli": {*PUBLIC, "dibs._internal_api", "dibs._process_state", "dibs._key_texts"},
    "dibs.scheduler": PUBLIC,
    "dibs.doctor": {*FACTS, "dibs._doctor_api"},
    "dibs.console": {
        *PUBLIC,
        "dibs._internal_api",
        "dibs._process_state",
        "dibs._key_texts",
        "dibs._event_counting",
    },
    "dibs": {*FACTS, "dibs._async", "dibs._sync", "dibs._core"},
    "dibs._key_texts": {"dibs._internal_api"},
    "dibs._internal_api": {
        "dibs.errors",
        "dibs._async",
        "dibs._sync",
        "dibs._databases",
        "dibs._server",
        "dibs._core",
        "dibs._forks",
        "dibs._locks",
    },
    "dibs._process_state": {"dibs._core", "dibs.events", "dibs._system"},
    "dibs._event_counting": {"dibs.events", "dibs.errors", "dibs._forks"},
    "dibs._doctor_api": {"dibs._transport", "dibs._server", "dibs._core"},
    "dibs._http": {"dibs._core", "dibs._locks", "dibs.errors"},
    "dibs._async": {*CLIENTS, "dibs._tasks"},
    "dibs._sync": {*CLIENTS, "dibs._threads"},
    "dibs._events": {"dibs._core", "dibs.errors", "dibs.events", *THREADS},
    "dibs._tasks": {"dibs._transport", "dibs._core", "dibs.errors", *THREADS},
    "dibs._threads": {"dibs._transport", "dibs._core", "dibs.errors", *THREADS},
    "dibs._transport": {"dibs._server", "dibs._core", "dibs._forks", "dibs.errors", *THREADS},
    "dibs._databases": {"dibs._core", "dibs.errors"},
    "dibs._server": {"dibs._core", "dibs._locks", "dibs.errors"},
    "dibs._core": {"dibs.errors"},
    "dibs.claims": set(),
    "dibs.events": {"dibs.errors"},
    "dibs.errors": set(),
    "dibs._forks": {"dibs._locks"},
    "dibs._locks": {"dibs._system"},
    "dibs._system": set(),
}
"""Which packages a package may import, beside itself."""

EXCEPTIONS: dict[str, set[str]] = {}
"""Imports that are there and should not be. One that is gone has to go from here."""

CYCLES: tuple[set[str], ...] = ()
"""Modules that import each other and should not. Exactly these."""


# ---- reading


def read_imports(root: Path) -> Imports:
    """The imports of all modules below *root* that belong to a package of `PACKAGES`."""
    files = dict(_modules(root))
    return {name: set(_imported(name, path, files)) for name, path in files.items()}


def _modules(root: Path) -> Iterator[tuple[str, Path]]:
    for folder in (root, root / "src", *sorted(root.glob("packages/*/src"))):
        for package in PACKAGES:
            for path in sorted((folder / package).rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for full in _names(node, package):
            found = _longest(full, known)
            if found is not None and found != name:
                yield found


def _names(node: ast.AST, package: str) -> Iterator[str]:
    """What a statement imports, in full; of `from a import b` it is not known what b is."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: len(package.split(".")) - node.level + 1]
        base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
        yield from (f"{base}.{alias.name}" for alias in node.names)


def _longest(full: str, known: Mapping[str, Path]) -> str | None:
    """The module of a name: the name itself, or what stands before a dot in it."""
    while full and full not in known:
        full = full.rpartition(".")[0]
    return full or None


# ---- judging


def group_of(module: str) -> str:
    """The package of `LAYERS` to which a module belongs. KeyError: it belongs to none."""
    parts = module.split(".")
    group = ".".join(parts[: 2 if parts[0] in ("dibs", "apps") else 1])
    if group not in MAY_IMPORT:
        raise KeyError(f"{module} belongs to no layer")
    return group


def problems(
    imports: Imports,
    exceptions: Mapping[str, set[str]] = EXCEPTIONS,
    cycles: Iterable[set[str]] = CYCLES,
) -> list[str]:
    """What is wrong with these imports, a sentence each."""
    return [*_without_layer(imports), *_forbidden(imports, exceptions), *_circles(imports, cycles)]


def _without_layer(imports: Imports) -> Iterator[str]:
    for module in sorted(imports):
        if _group(module) is None:
            yield f"{module} belongs to no layer: LAYERS in tools/import_rules.py"


def _group(module: str) -> str | None:
    try:
        return group_of(module)
    except KeyError:
        return None


def _forbidden(imports: Imports, exceptions: Mapping[str, set[str]]) -> Iterator[str]:
    for module in sorted(imports):
        allowed = exceptions.get(module, set())
        wrong = {other for other in imports[module] if not may_import(module, other)}
        yield from (f"{module} may not import {other}" for other in sorted(wrong - allowed))
        yield from (f"{module} no longer imports {other}" for other in sorted(allowed - wrong))
    for module in sorted(exceptions.keys() - imports.keys()):
        yield f"{module} is an exception, and is not there"


def may_import(module: str, other: str) -> bool:
    """Whether `MAY_IMPORT` lets *module* import *other*."""
    mine, theirs = _group(module), _group(other)
    return mine is None or mine == theirs or theirs in MAY_IMPORT[mine]


def _circles(imports: Imports, known: Iterable[set[str]]) -> Iterator[str]:
    found, expected = cycles_of(imports), [set(cycle) for cycle in known]
    for cycle in found:
        if cycle not in expected:
            yield f"they import each other: {', '.join(sorted(cycle))}"
    for cycle in expected:
        if cycle not in found:
            yield f"they are no longer that cycle: {', '.join(sorted(cycle))}"


def cycles_of(imports: Imports) -> list[set[str]]:
    """Sets of modules of which each leads to each other, by way of imports."""
    reached = {module: _reached(module, imports) for module in imports}
    found: list[set[str]] = []
    for module in sorted(imports):
        circle = {other for other in reached[module] if module in reached[other]}
        if circle and circle not in found:
            found.append(circle)
    return found


def _reached(module: str, imports: Imports) -> set[str]:
    seen: set[str] = set()
    ahead = [*imports[module]]
    while ahead:
        each = ahead.pop()
        if each not in seen:
            seen.add(each)
            ahead += imports[each]
    return seen
