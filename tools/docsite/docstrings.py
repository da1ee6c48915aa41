"""What a docstring says, in the parts that a reference shows.

The docstrings of dibs are in Google style: prose, then `Args:`, `Attributes:`, `Returns:` and
`Raises:`.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, is_dataclass
from typing import Any

import dibs
from dibs import DibsError

ERRORS = sorted(
    name
    for name in dibs.__all__
    if isinstance(getattr(dibs, name), type) and issubclass(getattr(dibs, name), DibsError)
)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises):\n", re.MULTILINE)
_ITEM = re.compile(r"^ {4}\*{0,2}(\w+): ", re.MULTILINE)
_CODE = re.compile(r"(`[^`]*`)")
_ERROR = re.compile(rf"(?<![\w.])({'|'.join(ERRORS)})\b")


@dataclass
class Text:
    """The parts of a docstring."""

    prose: list[str]
    """Paragraphs."""
    parameters: dict[str, str]
    returns: str
    raises: dict[str, str]


def read(thing: Any) -> Text:
    """The docstring of *thing*."""
    prose, *parts = _SECTION.split(inspect.getdoc(thing) or "")
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return Text(
        [_line(paragraph) for paragraph in prose.split("\n\n") if paragraph.strip()],
        _items(sections.get("Args", "") or sections.get("Attributes", "")),
        _line(sections.get("Returns", "")),
        _items(sections.get("Raises", "")),
    )


def _items(section: str) -> dict[str, str]:
    _, *parts = _ITEM.split(section)
    return dict(zip(parts[::2], map(_line, parts[1::2]), strict=True))


def _line(text: str) -> str:
    return " ".join(text.split())


def as_markdown(text: str) -> str:
    """*text* with links to the errors that it names."""
    parts = _CODE.split(text)
    parts[::2] = [_ERROR.sub(r"{py:exc}`~dibs.\1`", part) for part in parts[::2]]
    return "".join(parts)


def fields(declared: Any) -> dict[str, str]:
    """What is written below each field of a class, a TypedDict too, and of those it extends."""
    names = [ast.unparse(base).partition("[")[0] for base in _declaration(declared).bases]
    bases = [getattr(sys.modules[declared.__module__], name, None) for name in names]
    texts: dict[str, str] = {}
    for base in bases:
        if getattr(base, "__module__", "").startswith("dibs"):
            texts |= fields(base)
    return texts | dict(_own_fields(declared))


def _own_fields(declared: Any) -> Iterator[tuple[str, str]]:
    for node, text in _explained(declared):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, text


def attributes(declared: Any) -> dict[str, tuple[str, str]]:
    """The type and the text of each attribute that `__init__` sets and explains."""
    found: dict[str, tuple[str, str]] = {}
    if "__init__" in vars(declared) and not is_dataclass(declared):
        for node, text in _explained(declared.__init__):
            if isinstance(node, ast.AnnAssign | ast.Assign) and text:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                found[ast.unparse(target).removeprefix("self.")] = annotation, text
    return {name: said for name, said in found.items() if not name.startswith("_")}


def _explained(thing: Any) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a class or function, each with the string below it."""
    body: list[ast.stmt] = _declaration(thing).body
    for node, below in zip(body, [*body[1:], None], strict=True):
        yield node, _string(below)


def _declaration(thing: Any) -> Any:
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    return tree


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return _line(str(node.value.value))
    return ""
