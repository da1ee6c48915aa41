"""Run the other libraries' half of docs/migration.

    .venv-bench/bin/python tools/run_migrations.py

On these pages a ```python no-run block is the code that a reader has today. It needs the library
that it is about, which `make bench` installs (django-idempotency-key, aws-lambda-powertools and
boto3 are to be added: a program without its library is not run); tests/docs runs the half with
dibs. Each block is a program, on an empty Valkey; `url` is its address. A program that
raises is a failure.
"""

import ast
import asyncio
import inspect
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from dibs.testing import Server

PAGES = sorted((Path(__file__).parents[1] / "docs" / "migration").glob("*.md"))
EVERYWHERE = "redis://localhost:6379"
BLOCK = re.compile(
    r"(?:^<!-- given\n(?P<given>.*?)^-->\n+)?"
    r"^```python(?P<mark>[^\n]*)\n(?P<code>.*?)^```$"
    r"(?:\n+<!-- then\n(?P<then>.*?)^-->$)?",
    re.MULTILINE | re.DOTALL,
)


PARTS = ("given", "code", "then")


def programs(page: Path) -> list[tuple[int, str]]:
    """The line of each program on *page*, and its source."""
    text = page.read_text("utf-8")
    return [
        (text.count("\n", 0, found.start("code")), "".join(found[part] or "" for part in PARTS))
        for found in BLOCK.finditer(text)
        if found["mark"].strip() == "no-run"
    ]


def run(source: str, url: str) -> None:
    """Raise what the program raises."""
    names: dict[str, Any] = {"__name__": "__migration__", "url": url}
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source.replace(EVERYWHERE, url), "<page>", "exec", flags)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def main() -> int:
    """Print one line for each program; return the number of those that failed."""
    failed = 0
    with Server.start() as server:
        for page in PAGES:
            for line, source in programs(page):
                server.flush()
                try:
                    run(source, server.url)
                except ModuleNotFoundError as error:
                    print(f"NOT RUN {page.name}:{line}: {error.name} is not installed")
                except Exception:
                    traceback.print_exc()
                    failed += 1
                    print(f"FAILED {page.name}:{line}")
                else:
                    print(f"ok     {page.name}:{line}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 1))
