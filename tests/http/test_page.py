"""The page about HTTP is true to the code: options, defaults, statuses, headers."""

import dataclasses
import re
from pathlib import Path

import pytest

from dibs._http import answers
from dibs._http.policy import Policy
from dibs._http.recording import verdict_on

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")


@pytest.mark.parametrize("option", dataclasses.fields(Policy), ids=lambda option: option.name)
def test_every_option_has_a_row_with_its_true_default(option: "dataclasses.Field[object]") -> None:
    """What a reader relies on is what the code does."""
    [row] = re.findall(rf"^\| `{option.name}` \| (.*?) \|", PAGE, re.MULTILINE)
    if option.name == "route" or option.default is dataclasses.MISSING:
        assert row == "required"
    elif isinstance(option.default, str):
        assert row == f'`"{option.default}"`'
    elif isinstance(option.default, int):
        assert int(row) == option.default


def test_every_refusal_has_a_row() -> None:
    """Each kind of problem that can be answered is explained, with its status."""
    source = Path(answers.__file__).read_text("utf-8")
    kinds = set(re.findall(r'_problem\(\d+, "([\w-]+)"', source)) | {"key-missing", "key-malformed"}
    assert len(kinds) >= 7
    for kind in kinds:
        assert f"`urn:dibs:{kind}`" in PAGE, kind


def test_what_is_not_kept_is_named() -> None:
    """The statuses below 500 that are no final answer, all of them and no other."""
    policy = Policy(window=1, after="replay")
    mine = [str(status) for status in range(100, 500) if verdict_on(policy, status) != "finish"]
    [listed] = re.findall(r"Kept are answers below 500\. ([\d, and]+) are not", PAGE)
    assert re.findall(r"\d+", listed) == mine
