"""`python -m tools.diagrams`: draw the pictures, and with `--record` have their runs first."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from . import pictures
from .recording import RUNS, record
from .svg import Drawing
from .timelines import Run, draw_timeline

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "images"
RECORDED = Path(__file__).with_name("runs.json")


def drawings() -> dict[str, Callable[[], Drawing]]:
    """Return what is drawn, by the name of its file."""
    runs: dict[str, Run] = json.loads(RECORDED.read_text("utf-8"))
    timelines = {f"timeline-{name}": partial(draw_timeline, run) for name, run in runs.items()}
    return {**timelines, **pictures.BARS}


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.diagrams", description=__doc__)
    parser.add_argument("--record", action="store_true", help="have the runs again first")
    if parser.parse_args().record:
        runs = {name: record(name) for name in RUNS}
        RECORDED.write_text(json.dumps(runs, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, draw in drawings().items():
        file = FOLDER / f"{name}.svg"
        file.write_text(str(draw()), "utf-8")
        print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
