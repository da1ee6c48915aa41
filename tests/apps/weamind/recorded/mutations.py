"""Answers with random parts missing or replaced: what a service may send on a bad day."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

REPLACEMENTS: list[Any] = [
    None, "", " ", "-", "-99", "-99.0", -99, 0, "0", 7, "7", 31.5, "31", 100, 101, 1e400, True,
    False, [], {}, [None], [[]], {"": None}, "晴", "X" * 5000, "2026-03-01T18:00",
    "2026-03-01T21:00:00+08:00", "2026-03-02 06:00:00", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00", "F", "°F", "C",
    "百分比", "true", "65000010", "1_8", "２５", "NaN", float("nan"), 10**400,
]  # fmt: skip
_GONE = object()


@st.composite
def mutated(draw: st.DrawFn, document: Any) -> Any:
    """The document, with one to four parts deleted, emptied or replaced."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        _change(draw, changed)
    return changed


def _change(draw: st.DrawFn, document: Any) -> None:
    """Walk down from the top, stopping anywhere: what lies high is hit as often as what is deep."""
    node = document
    while isinstance(node, dict | list) and node:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        place = draw(st.sampled_from(places))
        child = node[place]
        if not isinstance(child, dict | list) or not child or draw(st.integers(0, 6)) == 0:
            _replace(node, place, draw(st.sampled_from([_GONE, *REPLACEMENTS])))
            return
        node = child


def _replace(node: Any, place: Any, replacement: Any) -> None:
    if replacement is _GONE:
        del node[place]
    else:
        node[place] = copy.deepcopy(replacement)
