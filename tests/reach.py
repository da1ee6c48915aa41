"""`--map`: remember which functions of the sources each test enters, for `make quick`.

The map is in pytest's cache, beside how long each test lasted; a test that runs again replaces what
was known of it. What a test starts as another process is not seen.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
REACH = "dibs/reach"
"""In the cache: {"tests": [node ids], "functions": {"path::name": [numbers of tests]}}."""

ENTERED = "entered"
SOURCES = tuple(f"{ROOT / folder}/" for folder in ("src", "packages", "apps"))


@contextmanager
def entered() -> Iterator[set[CodeType]]:
    """The functions that any thread enters meanwhile, and more that are of no interest."""
    codes: set[CodeType] = set()
    if sys.version_info >= (3, 12):
        yield from _monitored(codes)
        return

    def call(frame: Any, *_: object) -> None:
        codes.add(frame.f_code)

    threading.settrace(call)
    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield codes
    finally:
        sys.settrace(before)
        threading.settrace(None)  # pyright: ignore[reportArgumentType]


def _monitored(codes: set[CodeType]) -> Iterator[set[CodeType]]:
    monitoring: Any = sys.monitoring  # pyright: ignore[reportAttributeAccessIssue]

    def start(code: CodeType, _: int) -> object:
        codes.add(code)
        return monitoring.DISABLE  # until the next test

    tool, event = monitoring.COVERAGE_ID, monitoring.events.PY_START
    monitoring.use_tool_id(tool, "reach")
    monitoring.restart_events()
    monitoring.register_callback(tool, event, start)
    monitoring.set_events(tool, event)
    try:
        yield codes
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    if not item.config.getoption("--map"):
        return (yield)
    codes: set[CodeType] = set()
    try:
        with entered() as codes:
            return (yield)
    finally:
        item.user_properties.append((ENTERED, sorted(named(codes))))


def named(codes: set[CodeType]) -> set[str]:
    """The functions of the sources among them, as the map names them."""
    return {_name(code) for code in list(codes) if code.co_filename.startswith(SOURCES)}


def _name(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(ROOT)}::{code.co_qualname.split('.<locals>')[0]}"


class Map:
    """In the process that shows the reports."""

    def __init__(self) -> None:
        self._entered: dict[str, list[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        names: Any
        for name, names in report.user_properties:
            if name == ENTERED and report.when == "call" and report.passed:
                self._entered[report.nodeid] = [sys.intern(each) for each in names]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        cache: Any = getattr(session.config, "cache", None)  # not with -p no:cacheprovider
        if cache and self._entered:
            known = cache.get(REACH, {"tests": [], "functions": {}})
            cache.set(REACH, _as_stored(_by_test(known) | self._entered))


def _by_test(stored: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {test: [] for test in stored["tests"]}
    for function, numbers in stored["functions"].items():
        for number in numbers:
            found[stored["tests"][number]].append(function)
    return found


def _as_stored(by_test: dict[str, list[str]]) -> dict[str, Any]:
    functions: dict[str, list[int]] = defaultdict(list)
    for number, names in enumerate(by_test.values()):
        for name in names:
            functions[name].append(number)
    return {"tests": list(by_test), "functions": functions}
