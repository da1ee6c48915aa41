"""Write the verdicts about other middlewares into packages/dibs-torture/MANUAL.md.

They are tried as `python -m dibs_torture` tries them; the table stands between two marks.
"""

import contextlib
import io
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dibs_torture.__main__ import main

from dibs.testing import Server

PAGE = Path(__file__).parents[1] / "packages/dibs-torture/MANUAL.md"
PEERS = ("idemkit", "asgi-idempotency-header")
MARKED = re.compile(r"(<!-- verdicts: begin -->\n).*?(<!-- verdicts: end -->)", re.DOTALL)


def verdicts() -> str:
    """The table, and below it what was seen where a promise was broken."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = main(PEERS)
    if status == 2:
        raise SystemExit("not every middleware could be tried; nothing was written")
    return said.getvalue().partition("\n\n")[0]


def versions() -> str:
    """What was tried, on what."""
    with Server.start("valkey") as server:
        client: Any = server.client()
        engine = client.info("server").get("valkey_version", "?")
    peers = ", ".join(f"{name} {version(name)}" for name in PEERS)
    python = platform.python_version()
    return f"({peers}, redis-py {version('redis')}, Valkey {engine}, Python {python})"


def written(page: str, table: str, about: str) -> str:
    """The page with another table. SystemExit: the marks are not there."""
    block = f"Tried with `tools/write_verdicts.py` {about}:\n\n```text\n{table}\n```\n"
    new, count = MARKED.subn(lambda found: f"{found[1]}{block}{found[2]}", page)
    if count != 1:
        raise SystemExit(f"{PAGE} has no place for the verdicts")
    return new


if __name__ == "__main__":
    text = written(PAGE.read_text("utf-8"), verdicts(), versions())
    PAGE.write_text(text, "utf-8")
    sys.stdout.write("packages/dibs-torture/MANUAL.md has the new table\n")
