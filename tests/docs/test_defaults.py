"""What pages repeat of the code is as the code has it: defaults, cause codes, metrics, settings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from dibs import Dibs
from dibs._core.causes import SENTENCES
from dibs._core.connection import CONNECT, DEFAULT_BUDGET
from dibs.doctor.command import doctor_arguments
from tests.integrations.test_opentelemetry import Metrics
from tools.docsite import api

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
API = (ROOT / "docs/reference/api.md").read_text("utf-8")


def text_of(page: str) -> str:
    return (ROOT / "docs" / page).read_text("utf-8")


def section(text: str, heading: str) -> str:
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    assert found, heading
    return found[1]


def rows(text: str) -> dict[str, list[str]]:
    """The cells of each row of tables that begins with a code."""
    found = re.findall(r"^\| `(\w+)` \| (.*?) \|$", text, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in found}


def default_in(cell: str) -> object:
    """What a cell such as "seconds, 0" or "`"a"`, `"b"`; `"a"`" says; None: no default."""
    shown = cell.rpartition(";")[2] if ";" in cell else cell.rpartition(",")[2]
    shown = shown.strip().strip("`").strip('"')
    if ";" not in cell and '`"' in cell.rpartition(",")[0]:
        return None  # choices
    if cell.strip() == "bool" or shown == "False":
        return False
    if re.fullmatch(r"\d+(\.\d+)?", shown):
        return float(shown)
    return shown if '"' in cell.rpartition(";" if ";" in cell else ",")[2] else None


def same(default: Any, shown: object) -> bool:
    if default in (None, (), "", inspect.Parameter.empty):
        return shown is None
    return default is shown if isinstance(default, bool) else default == shown


def options_of(verb: Any) -> dict[str, Any]:
    return {
        name: option.default
        for name, option in inspect.signature(verb).parameters.items()
        if option.kind is option.KEYWORD_ONLY
    }


TABLES: list[tuple[str, Any]] = [
    ("Options of hold", Dibs.hold), ("Options of hold", Dibs.exclusive),
    ("Options of `claim` and `once`", Dibs.claim), ("Options of `claim` and `once`", Dibs.once),
    ("Options of `leader`", Dibs.leader),
    ("Options of `scheduled` and `scheduler`", Dibs.scheduled),
    ("Options of `scheduled` and `scheduler`", Dibs.scheduler),
    ("Options of `cached`, `cached_many` and `get_or_load`", Dibs.cached),
    ("Options of `cached`, `cached_many` and `get_or_load`", Dibs.get_or_load),
]  # fmt: skip


@pytest.mark.parametrize(("heading", "verb"), TABLES)
def test_the_defaults_of_a_verb_are_those_of_its_table(heading: str, verb: Any) -> None:
    """A default that changes in the code changes on the page."""
    table = rows(section(API, heading))
    for name, default in options_of(verb).items():
        shown = default_in(table[name][0])
        assert same(default, shown), f"{name}: {default!r}, and {shown!r} on the page"


def test_the_defaults_of_a_client_are_those_of_its_table() -> None:
    """Budget, connect, policy: as in the signature."""
    table = rows(section(API, "`Dibs`, `AsyncDibs`"))
    for name, default in options_of(Dibs).items():
        shown = table[name][0].strip("`").strip('"')
        expected = "none" if default == () else f"{default}"
        assert shown == expected, name
    assert f"`None`: {CONNECT:g}," in table["connect"][1]
    assert options_of(Dibs)["budget"] == DEFAULT_BUDGET


def test_every_option_has_a_meaning_in_the_api_pages() -> None:
    """Of decorators that are objects, too: what may be left out is explained."""
    rows = [
        (page.name, row)
        for page in api.pages(API)
        for function in re.findall(r"^```{py:function}.*?(?=^```{py:|\Z)", page.text, re.M | re.S)
        for row in re.findall(r"^\| (`\w+` \| .*) \|$", function, re.M)
    ]
    assert [row for row in rows if "`within`" in row[1]] and len(rows) > 100
    assert not [row for row in rows if re.search(r"\| `[^|]+` \| $", row[1])]


BUDGETS = re.compile(
    r"no answer within ([\d.]+) s|budget[^|\n]{0,40}?\b(\d[\d.]*) s by default"
    r"|budget` \(([\d.]+) s\)|`budget` is how long[^\n]*?The default is ([\d.]+\d)"
    r"|at most ([\d.]+) s \(\[budget\]|#the-budget\), ([\d.]+) s"
    r"|`--budget` \| the \[budget\][^|]*default: ([\d.]+)|`budget=([\d.]+)` s",
    re.IGNORECASE,
)


def test_the_default_budget_is_the_same_on_all_pages() -> None:
    """Wherever a page says how long a silent server is waited for by default."""
    found = {
        page.relative_to(ROOT).as_posix(): {
            float(value)
            for match in BUDGETS.findall(page.read_text("utf-8"))
            for value in match
            if value
        }
        for page in PAGES
    }
    wrong = {page: values for page, values in found.items() if values - {DEFAULT_BUDGET}}
    assert not wrong
    assert sum(bool(values) for values in found.values()) > 3


def test_the_doctor_judges_by_the_default_of_a_client() -> None:
    """Not by a separate number."""
    import argparse

    parser = argparse.ArgumentParser()
    doctor_arguments(parser)
    assert parser.parse_args([]).budget == options_of(Dibs)["budget"]


def test_every_cause_code_has_a_row() -> None:
    """And each row is a code: alerts are written with them."""
    table = section(text_of("reference/events.md"), "Causes")
    first = re.findall(r"^\| ((?:`\w+` ?)+)\|", table, re.MULTILINE)
    codes = [code for cell in first for code in re.findall(r"`(\w+)`", cell)]
    assert sorted(codes) == sorted(SENTENCES)


def test_every_metric_of_opentelemetry_has_a_row() -> None:
    """Those of Prometheus are compared beside their alerts."""
    metrics = Metrics()
    exported = {f"dibs.{each}.duration" for each in metrics.listener._histograms}
    table = text_of("logs-and-traces.md").partition("| metric | unit |")[2]
    listed = set(re.findall(r"^\| `(dibs\.[\w.]+)`", table, re.MULTILINE))
    assert listed == exported | {"dibs.events", "dibs.claim.open"}


TESTS_ONLY = {"DIBS_TEST_SERVER", "DIBS_TEST_URL", "DIBS_NO_SKIP", "DIBS_BEFORE"}


def test_every_setting_of_the_environment_is_on_a_page() -> None:
    """And what pages name is read somewhere."""
    named = re.compile(r"\bDIBS_[A-Z_]+\b")
    code = "".join(each.read_text("utf-8") for each in (ROOT / "src/dibs").rglob("*.py"))
    pages = "".join(page.read_text("utf-8") for page in PAGES)
    assert set(named.findall(code)) - TESTS_ONLY == set(named.findall(pages)) - TESTS_ONLY
