"""Type checkers accept right programs and see mistakes. All six of them: `make type-checkers`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import checkers


@pytest.mark.long
@pytest.mark.parametrize("checker", ["pyright", "mypy"])
def test_checkers_say_what_is_expected_of_them(checker: str) -> None:
    """Of each mistake in `wrong`, that it is one; of `right`, nothing but what its comments say."""
    assert checkers.differences(checker, checkers.errors_of(checker, sys.executable)) == []


def test_a_checker_that_says_another_thing_is_a_difference() -> None:
    """A mistake that it no longer sees, a right line that it rejects, and the other way around."""
    expected = [each for path in checkers.programs() for each in checkers.marked(path)]
    seen = {(each.path, each.line) for each in expected if ("ty" in each.names) != each.is_wrong}
    assert checkers.differences("ty", seen) == []
    first = next(each for each in expected if each.is_wrong and not each.names)
    unseen = next(each for each in expected if each.is_wrong and "ty" in each.names)
    refused = next(each for each in expected if not each.is_wrong and "ty" in each.names)
    changed = seen - {(first.path, first.line), (refused.path, refused.line)}
    changed |= {(unseen.path, unseen.line), (refused.path, 1)}
    assert {re.sub(r"\d+", "N", line) for line in checkers.differences("ty", changed)} == {
        f"ty does not see {first.path.name}:N",
        f"ty now sees {unseen.path.name}:N",
        f"ty now accepts {refused.path.name}:N",
        f"ty rejects {refused.path.name}:N",
    }


def test_there_are_enough_programs() -> None:
    """Forty that are right, and one hundred and twenty mistakes, nearly all of which are seen."""
    right = [path.read_text() for path in checkers.programs() if path.parent.name == "right"]
    assert sum(text.count("\n# ---- ") for text in right) >= 40
    mistakes = [x for path in checkers.programs() for x in checkers.marked(path) if x.is_wrong]
    assert len(mistakes) >= 120
    for name in checkers.COMMANDS:
        assert sum(name in each.names for each in mistakes) < len(mistakes) / 20


@pytest.mark.long
def test_mypy_reads_the_typed_examples() -> None:
    """mypy --strict; pyright reads the same files in `make check`."""
    folder = Path(__file__).parent
    pages = [str(folder / name) for name in ("within.py", "guard.py", "api.py")]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *pages]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder.parents[1])
    assert done.returncode == 0, done.stdout
