"""What is drawn and what is measured: pictures and tables say what their sources say."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.rivals import cases, catalogue, environments, page
from benchmarks.rivals.__main__ import RESULTS
from benchmarks.rivals.processes import Broken, Caller, Subject
from dibs.testing import Server
from tools.diagrams.__main__ import FOLDER, drawings
from tools.diagrams.recording import RUNS, record

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", drawings())
def test_a_picture_shows_what_its_table_says(name: str) -> None:
    """After a change of a figure: `make pictures`."""
    assert str(drawings()[name]()) == (FOLDER / f"{name}.svg").read_text("utf-8")


def test_every_picture_is_on_a_page() -> None:
    """None is drawn, or taken, that nobody sees."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    pages += [*(ROOT / "packages").rglob("*.md"), *(ROOT / "apps").rglob("*.md")]
    text = "".join(page.read_text("utf-8") for page in pages)
    assert [file.name for file in FOLDER.iterdir() if f"images/{file.name}" not in text] == []


def test_the_comparison_has_what_was_measured() -> None:
    """The table stands on the page as `make rivals` writes it, from the facts that are filed."""
    results = json.loads(RESULTS.read_text("utf-8"))
    assert page.table(results) in page.PAGE.read_text("utf-8")
    assert not [name for name, found in results["cells"].items() if "broken" in str(found)]


def test_each_library_has_pins_of_its_own() -> None:
    """Nothing of it gets into the environment of the tests."""
    libraries = {entry.library for entry in catalogue.ENTRIES} - {"dibs"}
    assert {path.stem for path in environments.PINS.glob("*.txt")} == libraries
    for library in libraries:
        assert environments.oldest_python(library)


@pytest.mark.only_on("linux")
def test_a_library_is_tried_in_its_process() -> None:
    """A duplicate is refused while the first runs, and gets its result later; both were dibs."""
    facts = cases.duplicate(Subject("dibs", "", sys.executable))
    assert facts["during"]["outcome"] == "Duplicate" and facts["during"]["retry_after"] > 0
    assert facts["after"]["outcome"] == "ok" and facts["effects"] == 1
    assert page.WRITERS["duplicate"](facts) == "refused, told when; the result"


def test_a_library_that_does_not_start_says_why() -> None:
    """Its own words, not a time-out."""
    with Server.start("valkey") as server:
        caller = Caller(Subject("flightlock", "", sys.executable), server.url)
        with pytest.raises(Broken, match="No module named 'flightlock'"):
            caller.wait_until_ready()


@pytest.mark.only_on("linux")
@pytest.mark.parametrize("name", RUNS)
def test_what_a_timeline_shows_happens(name: str) -> None:
    """Each run with real processes: one works, and the last one is answered or rejected."""
    run = record(name)
    works = [span for span in run["spans"] if span["kind"] == "works"]
    assert len(works) == (2 if name == "fence" else 1)
    assert len(run["lanes"]) == 3
    last = max(run["marks"], key=lambda mark: mark["at"])
    assert last["kind"] == ("refused" if name == "fence" else "answer")
