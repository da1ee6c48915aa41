"""What went wrong, on stderr: one line for each problem, and the exit code."""

import sys
from collections.abc import Iterable

FAILED = 1
MISTAKEN = 2


def report_problems(problems: Iterable[str], code: int) -> int:
    """Print each of *problems* on its own line; return *code*."""
    for problem in problems:
        print(f"weamind: {problem}", file=sys.stderr)
    return code
