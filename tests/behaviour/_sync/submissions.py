# Generated from tests/behaviour/_async/submissions.py by unasync.py – do not edit.
"""Submissions as the tests of `once` and `claim` make them."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from dibs import Dibs, Duplicate

NOWHERE = "redis://127.0.0.1:1"
AFTER: list[Literal["release", "hold", "replay"]] = ["release", "hold", "replay"]


@dataclass
class Order:
    number: int
    items: tuple[str, ...]


def claimed(dibs: Dibs, key: str = "order:1", **options: Any) -> None:
    """Claim it, do nothing, end well."""
    options = {"window": 60, **options}
    with dibs.claim(key, **options) as claim:
        assert not claim.replayed


def refused(dibs: Dibs, key: str = "order:1", **options: Any) -> Duplicate:
    """How a duplicate is refused."""
    options = {"window": 60, **options}
    with pytest.raises(Duplicate) as caught:
        with dibs.claim(key, **options):
            pytest.fail("done twice")
    return caught.value
