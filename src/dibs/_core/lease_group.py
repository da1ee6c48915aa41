"""Several keys that are taken together: which go in one request, and what its reply means."""

from itertools import groupby
from typing import NamedTuple

from ..errors import UsageError
from .capabilities import Engine, run_script
from .cluster_slots import slot_of
from .keys import companion_key
from .lease import FENCE_LIFE, HoldCall, Holding, read_holding
from .request import OddReply, Reply, Request, parts_in


class InTheWay(NamedTuple):
    """One of several keys is not free."""

    call: HoldCall
    holding: Holding


def check_keys(keys: object) -> list[str]:
    """Return *keys* as a list. Raises UsageError if it is none, is empty, or has a key twice."""
    if isinstance(keys, str | bytes):
        raise UsageError("hold_all takes a list of keys; for one key, use hold")
    try:
        listed: list[str] = list(keys)  # type: ignore[call-overload]
    except TypeError:
        raise UsageError(f"hold_all takes a list of keys, not {type(keys).__name__}") from None
    if not listed:
        raise UsageError("hold_all needs at least one key")
    if len({*map(str, listed)}) < len(listed):
        raise UsageError("hold_all has the same key twice")
    return listed


def in_order(calls: list[HoldCall]) -> list[HoldCall]:
    """Return the order in which every process takes keys one by one, so that none deadlock."""
    return sorted(calls, key=lambda call: (slot_of(call.key), call.key))


def together(calls: list[HoldCall], engine: Engine, *, is_cluster: bool) -> list[list[HoldCall]]:
    """Return *calls* in groups that are one request each, in the order of `in_order`."""
    ordered, is_alone = in_order(calls), calls[0].options.limit is not None
    if is_alone or not engine.refused.isdisjoint(("EVAL", "GET", "PTTL")):
        return [[call] for call in ordered]
    if not is_cluster:
        return [ordered]
    return [list(group) for _, group in groupby(ordered, lambda call: slot_of(call.key))]


def all_request(calls: list[HoldCall], token: bytes) -> Request:
    """Take the keys of *calls*, which are in one slot, or none of them."""
    options, keys = calls[0].options, [call.key for call in calls]
    words: tuple[bytes | int, ...] = (token, options.ttl_ms, len(keys))
    if (prefix := options.fence_prefix) is not None:
        keys += [companion_key(prefix, key) for key in keys]
        words += (int(FENCE_LIFE * 1000),)
    return Request(run_script("hold_all", keys, *words), 1, calls[0].key)


def read_all(reply: Reply, calls: list[HoldCall]) -> list[int | None] | InTheWay:
    """Return the fences (None: none was asked for), or the key in the way."""
    first, *rest = parts_in(reply)
    if not isinstance(first, int) or not 0 <= first <= len(calls):
        raise OddReply
    if first:
        value, pttl = rest
        return InTheWay(calls[first - 1], read_holding(value, pttl))
    if calls[0].options.fence_prefix is None:
        return [None for _ in calls]
    fences = [each for each in rest if isinstance(each, int)]
    if len(fences) != len(calls):
        raise OddReply
    return [*fences]
