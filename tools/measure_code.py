"""Measure the library, and another version of it: modules, lines, classes, functions.

`python tools/measure_code.py --before ../before` prints both side by side.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

GENERATED, FOR_TESTS = "_sync", "testing"

Figures = dict[str, str]
"""What was measured, in words, and the figure."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: list[str]) -> int:
    """Print the table. `--before PATH`: with the figures of that checkout beside it."""
    before = measured(Path(arguments[1])) if arguments[:1] == ["--before"] else {}
    print(table(before, measured(Path(__file__).parents[1])))
    return 0


# ---- measuring


def measured(root: Path) -> Figures:
    """The figures of `src/dibs` at *root*, without what is generated or for tests."""
    files = [path for path in sorted((root / "src/dibs").rglob("*.py")) if _is_ours(path, root)]
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if _is_class(node)]
    lengths = sorted(length for tree in trees.values() for length in _lengths(tree))
    return {
        "lines written by hand, without `testing`": f"{sum(lines.values()):,}".replace(",", " "),
        "modules": f"{len(files)}",
        "modules of more than 300 lines": f"{sum(count > 300 for count in lines.values())}",
        "classes with the most attributes": _largest(classes, attributes_of),
        "classes with the most methods": _largest(classes, methods_of),
        "lines of a function: median, 90 %, longest": _spread(lengths),
    }


def _is_ours(path: Path, root: Path) -> bool:
    return not {GENERATED, FOR_TESTS} & set(path.relative_to(root / "src/dibs").parts)


def _is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef)


def _largest(classes: list[ast.AST], count: Callable[[ast.ClassDef], set[str]]) -> str:
    sizes = [(len(count(each)), each.name) for each in classes if isinstance(each, ast.ClassDef)]
    three = sorted(sizes, key=lambda size: (-size[0], size[1]))[:3]
    return ", ".join(f"`{name}` {size}" for size, name in three)


def attributes_of(found: ast.ClassDef) -> set[str]:
    """What an instance holds: attributes that methods set, and fields that the class declares."""
    declared = {
        node.target.id
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return declared | {name for node in ast.walk(found) for name in _set_on_self(node)}


def _set_on_self(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
            yield name
        case _:
            pass


def methods_of(found: ast.ClassDef) -> set[str]:
    """The functions of a class; a property is one."""
    return {node.name for node in found.body if isinstance(node, Function)}


def _lengths(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, Function):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            yield (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 1


def _spread(lengths: list[int]) -> str:
    middle, most = lengths[len(lengths) // 2], lengths[len(lengths) * 9 // 10]
    return f"{middle}, {most}, {lengths[-1]}"


# ---- printing


def table(before: Figures, now: Figures) -> str:
    """Both versions side by side."""
    rows = [f"| {what} | {before.get(what, '')} | {figure} |" for what, figure in now.items()]
    return "\n".join(["| | before | now |", "|---|---|---|", *rows])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
