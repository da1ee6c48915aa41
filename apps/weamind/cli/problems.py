"""What went wrong, on stderr: one line for each problem, and the exit code."""

import sys
from collections.abc import Iterable

FAILED = 1
MISTAKEN = 2


def report_problems(problems: Iterable[str], code: int) -> int:
    """Each of *problems* on a line of its own; returns *code*."""
    for problem in problems:
        print(f"weamind: {problem}", file=sys.stderr)
    return code
