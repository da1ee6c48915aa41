"""What ``import dibs`` adds to a program that already imports redis-py, in milliseconds.

Each figure comes from its own interpreter and is timed inside it, so that starting Python is not
part of it. The byte code is compiled beforehand: one run is thrown away.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from . import measure
from .worker import Bench

STATEMENTS = {
    "import redis": ("pass", "import redis"),
    "import dibs": ("pass", "import dibs"),
    "import dibs after redis": ("import redis", "import dibs"),
}
TIMES = 15
PROGRAM = (
    "{before}\nfrom time import perf_counter as now\nt = now()\n{timed}\nprint((now() - t) * 1e3)"
)


def run(plan: measure.Plan, _: Bench) -> dict[str, Any]:
    """Milliseconds of each statement, in fifteen fresh interpreters, in turns."""
    rows: dict[str, dict[str, Any]] = {name: {"ms": []} for name in STATEMENTS if plan.wants(name)}
    for name in plan.in_rounds(list(rows), rounds=1 if plan.quick else TIMES + 1):
        _once(name, rows[name])
    for row in rows.values():
        row["ms"] = row["ms"][1:] or row["ms"]
    return {"rows": rows}


def _once(name: str, row: dict[str, Any]) -> None:
    before, timed = STATEMENTS[name]
    program = PROGRAM.format(before=before, timed=timed)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        row["broken"] = done.stderr.strip().splitlines()[-1]
    else:
        row["ms"].append(float(done.stdout))
