"""Annotations may name what does not exist: only for type checkers, or not yet."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs
from dibs._core.codec_types import LaterType, returned_type, returned_values_type
from dibs._core.signatures import annotations_of, return_annotation, signature_of

DEFERRED = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
"""Python 3.14 evaluates annotations when it is asked; older ones not at all with this."""
FUNCTIONS = f"""{DEFERRED}
def plain(branch: Nowhere) -> Menu: ...
def many(branches: list[Nowhere]) -> dict[str, Menu]: ...
def refused(error: Nowhere, branch: Nowhere) -> Nowhere: ...
def tick(run: Nowhere) -> Nowhere: ...
def using(session: Nowhere, branch: Nowhere) -> Menu: ...
async def later(branch: Nowhere) -> Menu: ...
class Repo:
    def menu(self, branch: Nowhere) -> Menu: ...
"""


class Menu:
    """Defined below the functions that return it."""


@pytest.fixture
def names() -> dict[str, Any]:
    """The functions, in a module of their own."""
    names: dict[str, Any] = {"__name__": "deferred"}
    exec(FUNCTIONS, names)
    return names


def wrappers(threads: Dibs, asyncio: AsyncDibs) -> list[tuple[str, Callable[..., Any], str]]:
    """What wraps functions, and which of them."""

    class Transactions:
        def begin(self) -> None: ...

    begin = Transactions().begin
    both: list[tuple[str, Callable[..., Any], str]] = []
    for dibs, plain in ((threads, "plain"), (asyncio, "later")):
        both += [
            ("exclusive", dibs.exclusive("menu:{branch}", ttl=3), plain),
            ("throttled", dibs.throttled("menu:{branch}", limit=3, per=3), plain),
            ("once", dibs.once("menu:{branch}", window=3), plain),
            ("once, replay", dibs.once("menu:{branch}", window=3, after="replay"), plain),
            ("cached", dibs.cached("menu:{branch}", ttl=3), plain),
        ]
    within = threads.once("menu:{branch}", window=3, after="replay", within=begin)
    return [
        *both,
        ("once, within", within, "using"),
        ("cached_many", threads.cached_many("menu:{branch}", ttl=3), "many"),
        ("scheduled", threads.scheduled(every=3, key="tick"), "tick"),
    ]


async def test_every_decorator_takes_functions_whose_annotations_name_nothing(
    names: dict[str, Any],
) -> None:
    """As Python 3.14 does without a decorator."""
    with Dibs("redis://localhost:1") as threads:
        async with AsyncDibs("redis://localhost:1") as asyncio:
            for what, decorate, name in wrappers(threads, asyncio):
                assert callable(decorate(names[name])) or what == "scheduled", what
            busy = threads.exclusive("menu:{branch}", ttl=3, busy=names["refused"])
            assert callable(busy(names["plain"]))
            method = threads.cached("menu:{branch}", ttl=3)(names["Repo"].menu)
            bound = method.__get__(names["Repo"]())
            assert list(signature_of(bound).parameters) == ["branch"]


def test_a_name_that_does_not_exist_hides_no_parameter(names: dict[str, Any]) -> None:
    """Nor an annotation."""
    assert list(signature_of(names["using"]).parameters) == ["session", "branch"]
    assert list(annotations_of(names["using"])) == ["session", "branch", "return"]


def test_a_result_whose_class_is_defined_below_has_its_type(names: dict[str, Any]) -> None:
    """As soon as the class is there, whatever is missing for the arguments."""
    with pytest.raises(NameError):
        return_annotation(names["plain"])
    one, many = returned_type(names["plain"]), returned_values_type(names["many"])
    assert isinstance(one, LaterType) and isinstance(many, LaterType)
    names["Menu"] = Menu
    assert return_annotation(names["plain"]) is Menu
    assert returned_type(names["plain"]) is one.found() is Menu
    assert returned_values_type(names["many"]) is many.found() is Menu


def test_a_result_without_a_type_has_none() -> None:
    """Also of what is no function."""

    def bare(): ...

    assert return_annotation(bare) is None
    assert returned_type(bare) is None
