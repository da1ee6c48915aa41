"""What changed between two looks at the server."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from .._interface import KeyInfo

Change = Literal["present", "new", "taken", "changed", "renewed", "gone"]
"""present: at the first look · new: the key exists now · taken: another holding of it ·
changed: another kind or state · renewed: it is kept for longer · gone: the key no longer exists."""

SIGNS: dict[Change, str] = {
    "present": " ", "new": "+", "taken": ">", "changed": "*", "renewed": "~", "gone": "-",
}  # fmt: skip
SLACK = 0.2
"""Seconds by which a remaining time may grow without having been renewed."""


class Changed(NamedTuple):
    """A key, and how it changed."""

    change: Change
    entry: KeyInfo
    """As it is now; gone: as it was."""


def changes(
    before: Mapping[str, KeyInfo] | None,
    now: Mapping[str, KeyInfo],
    elapsed: float,
    *,
    was_whole: bool = True,
    is_whole: bool = True,
) -> list[Changed]:
    """The change of each key; unchanged keys are left out. None: the first look.

    *elapsed*: seconds between the two looks. *was_whole*, *is_whole*: a key that the list before,
    or this one, lacks was not there.
    """
    if before is None:
        return [Changed("present", entry) for entry in now.values()]
    lacking = [entry for key, entry in before.items() if key not in now]
    gone = [Changed("gone", entry) for entry in lacking if is_whole]
    seen = [(before.get(key), entry) for key, entry in now.items() if was_whole or key in before]
    others = [_change(old, entry, elapsed) for old, entry in seen]
    return [*gone, *[each for each in others if each is not None]]


def _change(before: KeyInfo | None, now: KeyInfo, elapsed: float) -> Changed | None:
    if before is None:
        return Changed("new", now)
    if _holding(before) != _holding(now):
        return Changed("taken", now)
    if (before.kind, before.state, before.note) != (now.kind, now.state, now.note):
        return Changed("changed", now)
    if before.taken != now.taken or _was_made_anew(before, now):
        return Changed("changed", now)
    return Changed("renewed", now) if _is_longer(before, now, elapsed) else None


def _holding(entry: KeyInfo) -> object:
    """What tells one holding from the next; the permits of a key come and go."""
    if entry.kind in ("permits", "cached") or entry.token_hint is None:
        return None
    return entry.token_hint.removesuffix("-done")  # the same claim, completed


def _was_made_anew(before: KeyInfo, now: KeyInfo) -> bool:
    if before.kind not in ("cached", "schedule") or before.age is None or now.age is None:
        return False
    return now.age + SLACK < before.age


def _is_longer(before: KeyInfo, now: KeyInfo, elapsed: float) -> bool:
    if before.remaining is None or now.remaining is None:
        return before.remaining != now.remaining
    return now.remaining > before.remaining - elapsed + SLACK


def styles(found: Iterable[Changed]) -> dict[str, str]:
    """How the rows of a table are coloured, by key."""
    colours = {"new": "new", "gone": "gone", "taken": "changed", "changed": "changed"}
    return {each.entry.key: colours.get(each.change, "") for each in found}
