"""A reader who pastes the examples of a page one after the other, into one program, sees them work.

Elsewhere each example is run alone. Here the names and the keys of one example are still there
when the next one runs.
"""

import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs
from dibs.testing import Server
from tests.docs.test_docs import DOCS, Example, examples

ROOT = Path(__file__).parents[2]
TAB = re.compile(r"^\*\*(Threads|asyncio)\*\*\n+```python\n", re.MULTILINE)
PASTED = ["quickstart.md", "hold.md", "once.md", "cached.md"]


def of_one_kind(page: Path, kind: str) -> list[Example]:
    """The examples of *page*, without those in tabs of the other kind."""
    text = page.read_text("utf-8")
    tabs = {text.count("\n", 0, found.end()): found[1] for found in TAB.finditer(text)}
    return [each for each in examples(page) if tabs.get(each.line, kind) == kind]


@pytest.mark.parametrize("kind", ["Threads", "asyncio"])
@pytest.mark.parametrize("name", PASTED)
def test_examples_can_be_pasted_one_after_the_other(name: str, kind: str, valkey: Server) -> None:
    """No example needs what an earlier one has closed, or a key that an earlier one has left."""
    [page] = [each for each in DOCS if each.relative_to(ROOT / "docs") == Path(name)]
    asyncio.run(_paste(of_one_kind(page, kind), kind, valkey.url))


async def _paste(pasted: list[Example], kind: str, url: str) -> None:
    made = AsyncDibs(url) if kind == "asyncio" else Dibs(url)
    names: dict[str, Any] = {"__name__": "__example__", "url": url, "dibs": made}
    try:
        for each in pasted:
            await _run(each, names, kind)
    finally:
        await _close(names)


async def _run(each: Example, names: dict[str, Any], kind: str) -> None:
    code = each.compiled(names["url"])
    awaits = bool(code.co_flags & inspect.CO_COROUTINE)
    if each.mark == "no-run" or awaits != (kind == "asyncio"):
        return
    if awaits:
        await eval(code, names)
    else:
        await asyncio.to_thread(exec, code, names)


async def _close(names: dict[str, Any]) -> None:
    for thing in list(names.values()):
        if isinstance(thing, AsyncDibs):
            await thing.aclose()
        elif isinstance(thing, Dibs):
            thing.close()
