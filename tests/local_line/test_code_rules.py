"""The rules of CONTRIBUTING.md that hold for packages/local-line."""

from __future__ import annotations

import ast
from pathlib import Path

import local_line
import pytest

SRC = Path(local_line.__file__).parent
MODULES = sorted(SRC.glob("*.py"))


def functions() -> list[int]:
    """How many lines each has, without its docstring."""
    lengths: list[int] = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                first, last = (body[0].lineno, body[-1].end_lineno or 0) if body else (0, 0)
                lengths.append(last - first + 1)
    return sorted(lengths)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_short_and_says_what_it_is(path: Path) -> None:
    """Under 400 lines, with a docstring, and one on every public class."""
    tree = ast.parse(path.read_text())
    assert len(path.read_text().splitlines()) < 400
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


def test_functions_are_short() -> None:
    """8 lines at the median, 25 at the ninetieth percentile."""
    lengths = functions()
    assert lengths[len(lengths) // 2] <= 8
    assert lengths[len(lengths) * 9 // 10] <= 25


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_it_knows_neither_dibs_nor_the_applications(path: Path) -> None:
    """It can be installed alone; LINE's SDK is read by `coverage` alone, if asked."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] not in ("dibs", "apps", "linebot", "httpx", "tests")


def test_all_names_at_the_front_are_there() -> None:
    """And no other."""
    for name in local_line.__all__:
        assert getattr(local_line, name) is not None
    with pytest.raises(AttributeError):
        local_line.nothing_of_the_kind  # noqa: B018
