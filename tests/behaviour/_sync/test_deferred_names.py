# Generated from tests/behaviour/_async/test_deferred_names.py by unasync.py – do not edit.
"""Functions that return a class which is defined below them."""

import sys
from dataclasses import dataclass
from typing import Any

import pytest

from dibs import Dibs, UsageError
from dibs.testing import Server

# Python 3.14 evaluates annotations when somebody asks for them; older ones not at all with this.
DEFERRED = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
MODULE = f"""{DEFERRED}
@dibs.cached("menu:{{branch}}", ttl=60)
def menu(branch: Nowhere) -> Menu:
    runs.append(branch)
    return Menu(branch)

@dibs.cached_many("menus:{{branch}}", ttl=60)
def menus(branches: list[Nowhere]) -> dict[str, Menu]:
    runs.append(branches)
    return {{branch: Menu(branch) for branch in branches}}

@dibs.once("order:{{branch}}", window=60, after="replay")
def order(branch: Nowhere) -> Menu:
    runs.append(branch)
    return Menu(branch)

@dibs.cached("gone:{{branch}}", ttl=60)
def gone(branch: Nowhere) -> Nowhere:
    return Menu(branch)
"""


@dataclass
class Menu:
    branch: str


def test_a_class_that_is_defined_below_is_read_back_as_it_was(valkey: Server) -> None:
    """By every verb that keeps results, whatever the names of the arguments' types are."""
    runs: list[Any] = []
    with Dibs(valkey.url, budget=5) as dibs:
        module: dict[str, Any] = {"__name__": "deferred", "dibs": dibs, "runs": runs}
        exec(MODULE, module)
        module["Menu"] = Menu
        for name, given, found in (
            ("menu", "b1", Menu("b1")),
            ("menus", ["b1"], {"b1": Menu("b1")}),
            ("order", "b1", Menu("b1")),
        ):
            runs.clear()
            assert [module[name](given) for _ in range(2)] == [found, found], name
            assert runs == [given], name


def test_a_class_that_is_never_defined_is_not_guessed(valkey: Server) -> None:
    """UsageError before anything is stored: what is only for type checkers cannot be read back."""
    with Dibs(valkey.url, budget=5) as dibs:
        module: dict[str, Any] = {"dibs": dibs, "runs": [], "Menu": Menu}
        exec(MODULE, module)
        with pytest.raises(UsageError, match="the return annotation cannot be resolved"):
            module["gone"]("b1")
        assert valkey.keys() == []
