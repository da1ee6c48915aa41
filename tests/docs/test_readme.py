"""The README: short, and its examples work when they are pasted one after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_it_is_a_screen_and_a_half() -> None:
    """Readers get to its end; figures are in the documentation."""
    assert 60 <= len(README.splitlines()) <= 110
    assert "| " not in README
    assert "<!--" not in README  # nothing that a reader does not see is needed


@pytest.mark.only_on("linux", "darwin")
def test_its_examples_work_when_pasted_in_order() -> None:
    """Three programs in one interpreter, with nothing before, between or after them."""
    assert len(EXAMPLES) == 3
    shell = [sys.executable, "-i", "-q"]
    text = "".join(f"{example}\n" for example in EXAMPLES)
    done = subprocess.run(shell, input=text, capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert "Traceback" not in done.stderr, done.stderr
    assert said[0] == "looking up the weather, for 5 s at most"
    assert [line for line in said if line in ("charging the card", "asking the database")] == [
        "charging the card",
        "asking the database",
    ]
