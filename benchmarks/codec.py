"""What a value costs on its way from and to JSON: microseconds of CPU for one decode and encode.

A menu of 70 dishes as a dataclass, the same as a pydantic model and a msgspec struct, beside JSON
alone. Each measurement is a separate process and counts its CPU time, which a busy machine does not
change. ``DIBS_BEFORE=<folder>/src`` measures another version of dibs in the same run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import measure
from .worker import Bench

SUBJECTS = ("JSON alone", "dataclass", "union of dataclasses", "pydantic", "msgspec")
OTHER = "DIBS_BEFORE"
ITEMS = 70


@dataclass
class Dish:
    id: str
    name: str
    price: int
    sold_out: bool


@dataclass
class Closed:
    until: str


@dataclass
class Menu:
    version: str
    items: list[Dish]


@dataclass
class Mixed:
    items: list[Dish | Closed]


PLAIN = [
    {"id": f"i{n}", "name": f"Number {n} of the house", "price": 120 + n, "sold_out": n % 7 == 0}
    for n in range(ITEMS)
]


def run(plan: measure.Plan, _: Bench) -> dict[str, Any]:
    """Microseconds of each subject, in turns; of another version too, where one is named."""
    versions = {"": None} | ({"before: ": os.environ[OTHER]} if OTHER in os.environ else {})
    jobs = {f"{name}{each}": (each, path) for name, path in versions.items() for each in SUBJECTS}
    rows: dict[str, dict[str, Any]] = {
        label: {"decode": [], "encode": []} for label in jobs if plan.wants(label)
    }
    for label in plan.in_rounds(list(rows)):
        _measure(*jobs[label], 20 if plan.quick else 400, rows[label])
    return {"rows": rows}


def _measure(subject: str, path: str | None, times: int, row: dict[str, Any]) -> None:
    environment = os.environ | ({} if path is None else {"PYTHONPATH": path})
    command = [sys.executable, "-m", __name__, subject, str(times)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        row["broken"] = done.stderr.strip().splitlines()[-1]
        return
    for name, microseconds in json.loads(done.stdout).items():
        row[name].append(microseconds)


# What runs in its own process.


def _value(subject: str) -> tuple[Any, Any]:
    """The type and a value of it."""
    if subject == "JSON alone":
        return None, {"version": "v1", "items": PLAIN}
    if subject == "dataclass":
        return Menu, Menu("v1", [Dish(**each) for each in PLAIN])
    if subject == "union of dataclasses":
        return Mixed, Mixed([Dish(**each) for each in PLAIN])
    if subject == "pydantic":
        import pydantic

        model = pydantic.create_model("Model", version=(str, ...), items=(list[Dish], ...))
        return model, model(version="v1", items=PLAIN)
    import msgspec

    struct = msgspec.defstruct("Struct", [("version", str), ("items", list[Dish])])
    return struct, struct("v1", [Dish(**each) for each in PLAIN])


def _microseconds(work: Callable[[], object], times: int) -> float:
    started = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - started) / times * 1e6


def main(subject: str, times: int) -> None:
    from dibs._core.codec import make_codec

    of, value = _value(subject)
    codec = make_codec("json", of)
    data = codec.encode(value)
    codec.decode(data)
    decode = _microseconds(lambda: codec.decode(data), times)
    encode = _microseconds(lambda: codec.encode(value), times)
    print(json.dumps({"decode": decode, "encode": encode}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
