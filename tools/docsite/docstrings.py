"""What a docstring says, in the parts that a reference shows.

The docstrings of dibs have a form: prose; `*name*: …` about a parameter; `Busy: …` about an error;
`False: …` about a result. A part goes on to the next one, or to the end of its paragraph.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import dibs
from dibs import DibsError

ERRORS = sorted(
    name
    for name in dibs.__all__
    if isinstance(getattr(dibs, name), type) and issubclass(getattr(dibs, name), DibsError)
)
_PART = re.compile(
    r"(?:^|(?<=[.)] ))"
    rf"(?:\*(?P<parameter>\w+)\*|(?P<error>{'|'.join(ERRORS)})|(?P<value>True|False|None)): "
)
_CODE = re.compile(r"(`[^`]*`)")
_ERROR = re.compile(rf"(?<![\w.])({'|'.join(ERRORS)})\b")


@dataclass
class Text:
    """The parts of a docstring."""

    prose: list[str] = field(default_factory=list[str])
    """Paragraphs."""
    parameters: dict[str, str] = field(default_factory=dict[str, str])
    returns: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    raises: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def read(thing: Any) -> Text:
    """The docstring of *thing*."""
    text = Text()
    for paragraph in re.split(r"\n\s*\n", inspect.getdoc(thing) or ""):
        _read_paragraph(" ".join(paragraph.split()), text)
    return text


def _read_paragraph(paragraph: str, text: Text) -> None:
    marks = list(_PART.finditer(paragraph))
    prose = paragraph[: marks[0].start()] if marks else paragraph
    if prose.strip():
        text.prose.append(prose.strip())
    ends = [mark.start() for mark in marks[1:]] + [len(paragraph)]
    for mark, end in zip(marks, ends, strict=False):
        said = paragraph[mark.end() : end].strip()
        if mark["parameter"]:
            text.parameters[mark["parameter"]] = said
        elif mark["error"]:
            text.raises.append((mark["error"], said))
        else:
            text.returns.append((mark["value"], said))


def as_markdown(text: str) -> str:
    """*text* with links to the errors that it names."""
    parts = _CODE.split(text)
    parts[::2] = [_ERROR.sub(r"{py:exc}`~dibs.\1`", part) for part in parts[::2]]
    return "".join(parts)


def fields(declared: Any) -> dict[str, str]:
    """What is written below each field of a class, a TypedDict too, and of those it extends."""
    texts: dict[str, str] = {}
    for base in getattr(declared, "__orig_bases__", ()):
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
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    body: list[ast.stmt] = getattr(tree, "body", [])
    for node, below in zip(body, [*body[1:], None], strict=True):
        yield node, _string(below)


def _string(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
