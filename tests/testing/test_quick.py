"""`make quick`: which tests reach a change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import quick
from tests.reach import entered

SOURCE = """LIMIT = 1

class Lease:
    @property
    def lost(self):
        def inner():
            return True
        return inner()

def extend():
    pass
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A source file, test files that may concern it, and no map."""
    monkeypatch.setattr(quick, "ROOT", tmp_path)
    monkeypatch.setattr(quick, "CACHE", tmp_path / "cache")
    (tmp_path / "src/dibs/_core").mkdir(parents=True)
    (tmp_path / "src/dibs/_core/lease.py").write_text(SOURCE)
    for name, text in {
        "core/test_lease.py": "",
        "core/test_keys.py": "",
        "behaviour/test_twemproxy.py": "from dibs._core.lease import Lease",
        "behaviour/test_scripts.py": "",
        "behaviour/_async/test_cached.py": "from .loaders import Loader\nlease.extend(5)",
        "behaviour/_async/test_hold.py": "",
        "behaviour/_async/loaders.py": "",
        "behaviour/conftest.py": "",
        "docs/test_docs.py": "",
        "docs/test_readme.py": "PAGE = 'README.md'",
    }.items():
        path = tmp_path / "tests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    for cached in (quick.kept, quick.test_files, quick.seconds):
        cached.cache_clear()


def keep(checkout: Path, name: str, value: object) -> None:
    path = checkout / "cache" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


HOLD = "tests/behaviour/_async/test_hold.py"
CACHED = "tests/behaviour/_async/test_cached.py"
LEASE = "src/dibs/_core/lease.py"


def test_lines_belong_to_functions(checkout: Path) -> None:
    """A decorator and a function inside are part of it; what is outside is of the whole module."""
    assert quick.functions(LEASE, [4]) == quick.functions(LEASE, [7]) == {f"{LEASE}::Lease.lost"}
    assert quick.functions(LEASE, [8, 11]) == {f"{LEASE}::Lease.lost", f"{LEASE}::extend"}
    assert quick.functions(LEASE, [1, 8]) is None


def test_with_a_map_the_tests_that_enter_the_function_are_chosen(checkout: Path) -> None:
    """The quickest first, and those of the whole module for a line outside of functions."""
    slow, fast = "tests/core/test_keys.py::test_slow", "tests/core/test_keys.py::test_fast"
    functions = {
        f"{LEASE}::Lease.lost": [0, 1],
        f"{LEASE}::extend": [1],
        "src/dibs/errors.py::f": [2],
    }
    keep(checkout, "dibs/reach", {"tests": [slow, fast, "tests"], "functions": functions})
    keep(checkout, "dibs/durations", {slow: 3.0, fast: 0.1})
    assert quick.concerned({LEASE: [8]}) == [fast, slow]
    assert quick.concerned({LEASE: [11]}) == [fast]
    assert quick.concerned({LEASE: [1]}) == [fast, slow]


def test_without_a_map_names_and_imports_choose(checkout: Path) -> None:
    """And a test file that was changed is always first."""
    chosen = quick.concerned({LEASE: [1]})
    assert chosen[:2] == ["tests/core/test_lease.py", "tests/behaviour/test_twemproxy.py"]
    assert set(chosen[2:]) == {HOLD, CACHED}  # in any order
    own = "tests/core/test_keys.py"
    assert quick.concerned({LEASE: [1], own: [1]}) == [own, *chosen]


def test_the_nearest_is_first(checkout: Path) -> None:
    """There may be no time for the rest: the tests of scripts, and what has a word of its name."""
    chosen = quick.concerned({"src/dibs/_core/lua/hold_release.lua": [1]})
    assert chosen == ["tests/behaviour/test_scripts.py", HOLD, CACHED]
    near = quick.by_name(LEASE, [11])  # extend
    assert near[CACHED] > near[HOLD]


def test_a_page_concerns_the_tests_that_read_it(checkout: Path) -> None:
    """Not those of the verb that it explains."""
    assert quick.concerned({"docs/hold.md": [1]}) == ["tests/docs/test_docs.py"]
    readme = ["tests/docs/test_docs.py", "tests/docs/test_readme.py"]
    assert quick.concerned({"README.md": [1]}) == readme


def test_what_tests_share_concerns_those_that_import_it(checkout: Path) -> None:
    """Or all that lie beside it or deeper, for fixtures."""
    assert quick.concerned({"tests/behaviour/_async/loaders.py": [1]}) == [CACHED]
    below = quick.concerned({"tests/behaviour/conftest.py": [1]})
    assert set(below) == {path for path in quick.test_files() if "/behaviour/" in path}


def test_what_does_not_fit_is_left(checkout: Path) -> None:
    """At least one is run, and nothing is forgotten."""
    keep(checkout, "dibs/durations", {"a::1": 5.0, "b::1": 1.0, "c::1": 9.0})
    assert quick.fitting(["a::1", "b::1", "c::1"], 7) == (["a::1", "b::1"], ["c::1"])
    assert quick.fitting(["c::1"], 1) == (["c::1"], [])


def test_functions_that_are_entered_are_seen_in_every_thread() -> None:
    """Also those that a test has entered before."""
    import threading

    def work() -> None:
        pass

    for _ in range(2):
        with entered() as codes:
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        assert work.__code__ in codes
