"""Tags: one version for each, stored with every value that has the tag, and compared at each read.

A version is random and stands in a key of its own. To invalidate a tag is to delete that key: the
values that were stored with the version are outdated, all of them, at the cost of one command. The
next load makes another version. So a key that was evicted or has expired makes values outdated,
and never brings old ones back.
"""

from collections.abc import Iterable
from typing import Any, cast

from ..errors import UsageError
from .engine import run_script
from .keys import expand
from .lease import ANOTHER_TYPE
from .request import Reply, Request, pack

Versions = list[bytes | None]
"""One for each tag, in order. None: there is none, and no value fits."""
UNTAGGED: Versions = []

TAG_NAME = "tag:*"
"""What events call a tag: it may hold personal data."""

TAKEN = "the key of a tag is a lease, a claim or something else; choose another tag or namespace"

TAG_LIFE = 86_400.0
"""How long a version lives after the last load with it, at least: outdated values are misses."""


def checked_tags(tags: object) -> tuple[str, ...]:
    """*tags* as a tuple. UsageError: it is no list of strings."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError(f"tags must be a list of strings, such as ['branch:7'], not {tags!r}")
    listed = list(cast("Iterable[Any]", tags))
    if not all(isinstance(tag, str) and tag for tag in listed):
        raise UsageError("a tag must be a non-empty string")
    return tuple(dict.fromkeys(listed))


def tag_key(namespace: str, tag: object) -> bytes:
    """Where the version of a tag lives. UsageError: empty, too long, or not a string."""
    if not isinstance(tag, str) or not tag:
        raise UsageError("a tag must be a non-empty string")
    return expand(namespace, f"tag:{tag}")


def tag_keys(namespace: str, tags: Iterable[str]) -> tuple[bytes, ...]:
    """Where the versions of some tags live."""
    return tuple([tag_key(namespace, tag) for tag in tags])


def version_request(key: bytes) -> Request:
    """The version of a tag; tracked, it registers for its change."""
    return Request(pack("GET", key), 1, key)


def begin_request(key: bytes, version: bytes, life: float) -> Request:
    """The version of a tag for a load that begins: what is there, or else *version*."""
    args = (version, round(max(2 * life, TAG_LIFE) * 1000))
    return Request(run_script("cache_tag", [key], *args), 1, key)


def read_versions(replies: list[Reply]) -> Versions:
    """What those requests found."""
    return [reply if isinstance(reply, bytes) else None for reply in replies]


def read_begun(replies: list[Any]) -> Versions:
    """What `begin_request` found. UsageError: the key of a tag is something else, or it is refused.

    A reply that is a UsageError says what the server refused.
    """
    for reply in replies:
        if reply == 0 or (isinstance(reply, UsageError) and str(reply) == ANOTHER_TYPE):
            raise UsageError(TAKEN)
        if isinstance(reply, UsageError):
            raise reply
    return read_versions(replies)
