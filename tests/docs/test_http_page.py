"""The reference of HTTP is true to the code: options, defaults, statuses, headers."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from dibs._http import problems
from dibs._http.policy import GuardOptions, Policy
from dibs.integrations.fastapi import once

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference/http.md").read_text("utf-8")
DJANGO = (DOCS / "frameworks/django.md").read_text("utf-8")


@pytest.mark.parametrize("option", dataclasses.fields(Policy), ids=lambda option: option.name)
def test_every_option_has_a_row_with_its_true_default(option: "dataclasses.Field[object]") -> None:
    """What a reader relies on is what the code does."""
    [row] = re.findall(rf"^\| `{option.name}` \| (.*?) \|", PAGE, re.MULTILINE)
    if option.name == "route" or option.default is dataclasses.MISSING:
        assert row == "required"
    elif isinstance(option.default, str):
        assert row == f'`"{option.default}"`'
    elif isinstance(option.default, int | float):
        assert float(row) == option.default
    elif option.default in (None, ()):
        assert row in ("none", "all", "all final ones") or row.startswith(("that of", "the window"))


def test_every_option_of_the_decorator_has_a_row() -> None:
    """Also what is no option of a policy."""
    for name in inspect.signature(once).parameters:
        assert name in ("policy", "options") or f"\n| `{name}` |" in PAGE, name


@pytest.mark.parametrize("option", dataclasses.fields(GuardOptions), ids=lambda option: option.name)
def test_every_option_of_an_application_is_explained(option: "dataclasses.Field[object]") -> None:
    """Those that every `install` and every middleware takes, and their Django settings."""
    assert re.search(rf"`{option.name}=(True)?`", PAGE), option.name
    if option.name != "secret":  # Django has SECRET_KEY
        assert f"`DIBS_{option.name.upper()}`" in DJANGO


def test_every_refusal_has_a_row() -> None:
    """Each kind of problem that can be answered is explained, with its status."""
    source = Path(problems.__file__).read_text("utf-8")
    others = {
        "key-missing", "key-malformed", "incomplete", "too-large", "ambiguous", "timeout",
        "overloaded", "unreadable",
    }  # fmt: skip
    kinds = set(re.findall(r'_problem\(policy, \d+, "([\w-]+)"', source)) | others
    assert len(kinds) >= 7
    for kind in kinds:
        assert f"`urn:dibs:{kind}`" in PAGE, kind


def test_what_is_not_kept_is_named() -> None:
    """The statuses below 500 that are no final answer, all of them and no other."""
    policy = Policy(window=1, after="replay")
    mine = [str(status) for status in range(100, 500) if policy.outcome(status) != "returned"]
    [listed] = re.findall(r"Not final are\n(.*?)^- A middleware", PAGE, re.MULTILINE | re.DOTALL)
    assert sorted(re.findall(r"\b4\d\d\b", listed)) == mine
    at_a_route = Policy("POST /orders", window=1, after="replay")
    more = [str(status) for status in range(100, 500) if at_a_route.outcome(status) != "returned"]
    [listed] = re.findall(r"A middleware does not store ([\d, and]+) either", PAGE)
    assert sorted(re.findall(r"\d+", listed)) == sorted(set(more) - set(mine))
