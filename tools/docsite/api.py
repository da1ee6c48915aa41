"""Pages of the reference that are made from docstrings.

What exists for threads and for asyncio is one entry with two signatures; the text is that of the
half for threads.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, get_origin

import dibs
from dibs import AsyncClaim, AsyncDibs, AsyncLease, Claim, Dibs, Event, Holding, Lease

from . import docstrings, signatures
from .docstrings import as_markdown

PARENT = "reference/api"
"""The page above them."""
NOT_LINKED = [(r"py:.*", r"(?!dibs).*")]
"""Names of other packages: their documentation is not ours to link to."""
INTERNAL = {"leak"}
"""Methods for other modules of dibs."""
_IMPORTS = re.compile(r"^\| `(dibs\.[\w.]+)` \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A page of the reference."""

    name: str
    title: str
    essence: str
    text: str

    def __str__(self) -> str:
        return f"# {self.title}\n\n{self.essence}\n\n{self.text}\n"


def pages(parent: str) -> list[Page]:
    """Every page. *parent* is the page above, whose table says what is public."""
    return [_client(), _objects(), _errors(), *_modules(parent)]


def path_of(page: Page) -> PurePosixPath:
    """Where *page* lies."""
    return PurePosixPath(f"{PARENT}/{page.name}.md")


def with_list(parent: str, made: list[Page]) -> str:
    """The page above, with links to the others at its end."""
    links = "\n".join(f"{page.title} <api/{page.name}>" for page in made)
    return (
        f"{parent.rstrip()}\n\n## Signatures\n\n"
        "These pages are made from the docstrings: every signature, parameter and error.\n\n"
        f"```{{toctree}}\n{links}\n```\n"
    )


# ---- the pages


def _client() -> Page:
    cached: Any = Dibs("redis://127.0.0.1:1").cached("x", ttl=1)(_client)
    return Page(
        "client",
        "Dibs and AsyncDibs",
        "What a program creates once, and its methods. `Seconds` is a number or a `timedelta`.",
        "\n".join([*_pair(Dibs, AsyncDibs, "Dibs"), *_methods_of_cached(type(cached))]),
    )


def _methods_of_cached(cached: Any) -> Iterator[str]:
    """What a function has that `cached` decorates."""
    yield "## Cached functions\n"
    yield "A function that `cached` decorates is called as before. It also has:\n"
    for name, method in _methods(cached):
        yield f"### `f.{name}`\n"
        yield f"```{{py:method}} cached_function.{name}(…)\n:no-index:\n```\n"
        yield from _body(method, rows=[])


def _objects() -> Page:
    lines = [*_pair(Lease, AsyncLease, "Lease"), *_pair(Claim, AsyncClaim, "Claim")]
    return Page(
        "objects",
        "Leases, claims and holdings",
        "What the verbs return or pass to a block. You do not create these objects yourself.",
        "\n".join([*lines, *_record(Holding)]),
    )


def _errors() -> Page:
    lines: list[str] = []
    for name in docstrings.ERRORS:
        lines += [f"## `{name}`\n", *_single("py:exception", "dibs", name, getattr(dibs, name))]
    return Page(
        "errors-and-events",
        "Errors and events",
        "The exceptions with their attributes, and what a listener receives. "
        "[Errors](../api.md) and [events](../events.md) explain when each of them occurs.",
        "\n".join([*lines, *_record(Event)]),
    )


def _modules(parent: str) -> Iterator[Page]:
    public = {module: re.findall(r"`(\w+)`", names) for module, names in _IMPORTS.findall(parent)}
    _configure_django()
    for module, names in public.items():
        listed = [line for name in names for line in _member(module, name)]
        about = inspect.getdoc(importlib.import_module(module)) or ""
        essence = as_markdown(" ".join(about.split("\n\n")[0].split()))
        yield Page(module.removeprefix("dibs."), module, essence, "\n".join(listed))


def _configure_django() -> None:
    settings: Any = importlib.import_module("django.conf").settings
    if not settings.configured:
        settings.configure()


# ---- entries


def _pair(threads: Any, tasks: Any, name: str) -> Iterator[str]:
    """A class of both halves: what it is, its attributes, and each method with two signatures."""
    yield f"```{{py:currentmodule}} dibs\n```\n\n## `{name}`, `Async{name}`\n"
    yield from _signatures("py:class", (name, threads), (f"Async{name}", tasks))
    yield from _body(threads, rows=_rows(threads) if threads is Dibs else [])
    yield from _attributes(threads)
    for method, function in _methods(threads):
        other = "aclose" if method == "close" else method
        yield f"### `{method}`\n" if other == method else f"### `{method}`, `{other}`\n"
        both = (f"{name}.{method}", function), (f"Async{name}.{other}", getattr(tasks, other))
        yield from _signatures("py:method", *both)
        yield from _body(function, rows=_rows(function))


def _signatures(kind: str, *named: tuple[str, Any]) -> Iterator[str]:
    for label, (name, thing) in zip(("Threads", "asyncio"), named, strict=True):
        is_bare = kind == "py:class" and thing not in (Dibs, AsyncDibs)
        shown = name if is_bare else signatures.heading(name, thing)
        marks = ":async:\n" if inspect.iscoroutinefunction(thing) else ""
        yield f"**{label}**\n\n```{{{kind}}} {shown}\n{marks}```\n"


def _single(kind: str, module: str, name: str, thing: Any) -> Iterator[str]:
    """Something that exists once."""
    yield f"```{{{kind}}} {signatures.heading(name, thing)}\n:module: {module}\n```\n"
    yield from _body(thing, rows=_rows(thing))


def _member(module: str, name: str) -> Iterator[str]:
    """A public name of a module."""
    thing = getattr(importlib.import_module(module), name)
    yield f"## `{name}`\n"
    if not callable(thing) or get_origin(thing):
        value = signatures.short_type(thing) if get_origin(thing) else repr(thing)
        yield f"```{{py:data}} {name}\n:module: {module}\n:value: {_quoted(value)}\n```\n"
        return
    kind = "py:class" if isinstance(thing, type) else "py:function"
    if type(thing).__module__.startswith("dibs."):  # a decorator that is an object
        thing = thing.__call__
    yield from _single(kind, module, name, thing)
    if isinstance(thing, type):
        yield from _attributes(thing)
        for method, function in _methods(thing):
            yield f"### `{name}.{method}`\n"
            yield from _single("py:method", module, f"{name}.{method}", function)


def _quoted(value: str) -> str:
    """As the value of a directive's option, also if it begins with a quote."""
    return "'" + value.replace("'", "''") + "'"


def _record(declared: Any) -> Iterator[str]:
    """A class of which the fields are all there is to say."""
    name = declared.__name__
    yield f"## `{name}`\n\n```{{py:class}} {name}\n:module: dibs\n```\n"
    yield from _body(declared, rows=[])
    types = declared.__annotations__
    rows = [
        (f"`{key}`", _code(signatures.short_type(types[key])), as_markdown(text))
        for key, text in docstrings.fields(declared).items()
    ]
    yield from _table(("field", "type", "meaning"), rows)


def _methods(thing: Any) -> list[tuple[str, Any]]:
    """The public methods, in the order in which they are written."""
    found: dict[str, Any] = {}
    for base in inspect.getmro(thing):
        if base.__module__.startswith("dibs"):
            found |= {name: value for name, value in vars(base).items() if _is_method(name, value)}
    return [(name, getattr(thing, name)) for name in found]


def _is_method(name: str, value: object) -> bool:
    is_callable = inspect.isfunction(value) or isinstance(value, classmethod)
    return is_callable and not name.startswith("_") and name not in INTERNAL


def _attributes(thing: Any) -> Iterator[str]:
    rows = [
        (f"`{name}`", _code(annotation), as_markdown(text))
        for name, (annotation, text) in docstrings.attributes(thing).items()
    ]
    for name, value in inspect.getmembers(thing):
        if isinstance(value, property) and value.fget and not name.startswith("_"):
            returned = inspect.signature(value.fget).return_annotation
            rows.append((f"`{name}`", _code(signatures.short_type(returned)), _whole(value)))
    yield from _table(("attribute", "type", "meaning"), rows)


def _whole(thing: Any) -> str:
    return as_markdown(" ".join((inspect.getdoc(thing) or "").split()))


Row = tuple[str, ...]


def _rows(function: Any) -> list[Row]:
    listed = signatures.parameters(function, docstrings.read(function))
    return [
        (f"`{each.name}`", _code(each.type), _code(each.default), as_markdown(each.meaning))
        for each in listed
    ]


def _body(thing: Any, rows: list[Row]) -> Iterator[str]:
    """The text of *thing*, its parameters, what it returns and raises."""
    text = docstrings.read(thing)
    yield "".join(f"{as_markdown(paragraph)}\n\n" for paragraph in text.prose)
    yield from _table(("parameter", "type", "default", "meaning"), rows)
    if text.returns:
        yield f"Returns: {as_markdown(text.returns)}\n\n"
    if text.raises:
        lines = [f"- {_error(name)}: {as_markdown(said)}\n" for name, said in text.raises.items()]
        yield "".join(["Raises:\n\n", *lines])


def _error(name: str) -> str:
    return as_markdown(name) if name in docstrings.ERRORS else _code(name)


def _table(head: Row, rows: list[Row]) -> Iterator[str]:
    if rows:
        lines = [head, ("---",) * len(head), *rows]
        yield "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`" if text else ""
