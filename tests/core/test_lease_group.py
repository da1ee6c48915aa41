"""Several keys that are taken together: their order, their requests, what replies mean."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.capabilities import Engine
from dibs._core.cluster_slots import slot_of
from dibs._core.lease import HoldCall
from dibs._core.lease_group import (
    InTheWay,
    all_request,
    check_keys,
    in_order,
    read_all,
    together,
)
from dibs._core.options import HoldOptions, Settings
from dibs._core.request import OddReply

ENGINE = Engine(set_nx_get=True, compare_delete="DELIFEQ")
names = st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True)


def calls(keys: list[str], **options: Any) -> list[HoldCall]:
    chosen = HoldOptions(Settings("n:", "open"), ttl=5, **options)
    return [HoldCall(f"n:{key}".encode(), key, None, chosen) for key in keys]


@given(names, st.randoms())
def test_every_caller_takes_them_in_one_order(keys: list[str], random: Any) -> None:
    """Whatever the order in which they are named; in a cluster, slot by slot."""
    other = random.sample(keys, len(keys))
    assert [each.key for each in in_order(calls(keys))] == [
        each.key for each in in_order(calls(other))
    ]
    groups = together(calls(keys), ENGINE, is_cluster=True)
    assert [each.key for group in groups for each in group] == [
        each.key for each in in_order(calls(other))
    ]
    slots = [{slot_of(each.key) for each in group} for group in groups]
    assert all(len(each) == 1 for each in slots) and len({*map(tuple, slots)}) == len(slots)


def test_what_is_one_request() -> None:
    """All keys of a server; of a cluster those of a slot; permits, or without EVAL, each key."""
    keys = calls(["a", "{x}1", "{x}2"])
    assert [len(each) for each in together(keys, ENGINE, is_cluster=False)] == [3]
    assert sorted(len(each) for each in together(keys, ENGINE, is_cluster=True)) == [1, 2]
    poor = Engine(set_nx_get=True, compare_delete="DELIFEQ", refused=frozenset({"EVAL"}))
    assert [len(each) for each in together(keys, poor, is_cluster=False)] == [1, 1, 1]
    permits = calls(["a", "b"], limit=2)
    assert [len(each) for each in together(permits, ENGINE, is_cluster=False)] == [1, 1]
    assert all_request(keys, b"t").key == keys[0].key


def test_what_a_reply_means() -> None:
    """Taken, with or without fences; or which one is in the way; anything else is odd."""
    plain, fenced = calls(["a", "b"]), calls(["a", "b"], fence=True)
    assert read_all([0], plain) == [None, None]
    assert read_all([0, 7, 9], fenced) == [7, 9]
    found = read_all([2, b"ab-1@web-1:7", 1500], plain)
    assert isinstance(found, InTheWay) and found.call is plain[1]
    assert found.holding.holder == "web-1:7" and found.holding.remaining == 1.5
    for odd in (None, [b"0"], [3, b"ab-1@web-1:7", 1], [1, None, 1], [-1], [0, 7]):
        with pytest.raises((OddReply, ValueError, IndexError)):
            read_all(odd, fenced)


@pytest.mark.parametrize("keys", [[], ["a", "a"], "ab", b"ab", 7, None])
def test_keys_of_a_group_that_make_no_sense(keys: object) -> None:
    """UsageError, with a sentence that has no key in it."""
    with pytest.raises(UsageError):
        check_keys(keys)
