"""python -m tests.slow_machine COMMAND …: run it on one core, which other processes use as well.

What a slow machine breaks is a defect of a test, or of dibs: wait for an event, never for a time.
The last line says what the command has cost, in seconds of CPU.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time

NEIGHBOUR = """
import os
asked_by = os.getppid()
while os.getppid() == asked_by:
    for _ in range(1_000_000): pass
"""


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow_machine")
    parser.add_argument("--neighbours", type=int, default=2, help="processes that never rest")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # not on macOS
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    words = [sys.executable, "-I", "-S", "-c", NEIGHBOUR]
    neighbours = [subprocess.Popen(words) for _ in range(options.neighbours)]
    since = time.monotonic()
    try:
        code = subprocess.call(options.command)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)  # without the neighbours, who go on
    finally:
        for each in neighbours:
            each.kill()
            each.wait()
    took = time.monotonic() - since
    print(f"{used.ru_utime + used.ru_stime:.0f} s of CPU, {took:.0f} s on the clock")
    return code


if __name__ == "__main__":
    sys.exit(main())
