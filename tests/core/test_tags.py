"""Tags: where their versions live, and when a value is outdated."""

import pytest

from dibs import UsageError
from dibs._core.cache import (
    TAG_LIFE,
    checked_tags,
    read_begun,
    read_lock,
    read_reply,
    read_versions,
    tag_key,
    tag_keys,
    tag_version_request,
)
from dibs._core.capabilities import Engine, must_allow
from dibs._core.codec import FAILURE, frame
from dibs._core.lease import mistake
from dibs._core.options import CacheOptions, Settings
from dibs._core.request import ErrorReply

OPTIONS = CacheOptions(Settings("", "open"), ttl=60)


def stored(*versions: bytes) -> bytes:
    """A value that was loaded when its tags had these versions."""
    return frame("json", "-", 5.0, 0.2, b"[1]", versions)


@pytest.mark.parametrize(
    ("then", "now", "state"),
    [
        ([], [], "fresh"),
        ([b"v1"], [b"v1"], "fresh"),
        ([b"v1", b"w1"], [b"v1", b"w1"], "fresh"),
        ([b"v1"], [b"v2"], "outdated"),
        ([b"v1"], [None], "outdated"),
        ([b"v1", b"w1"], [b"v1", b"w2"], "outdated"),
        ([b"v1"], [b"v1", b"w1"], "outdated"),
        ([b"v1"], [], "outdated"),
        ([], [b"v1"], "outdated"),
        ([], [None], "outdated"),
    ],
)
def test_a_value_is_outdated_unless_every_version_is_the_same(
    then: list[bytes], now: list[bytes | None], state: str
) -> None:
    """A version that is lost fits nothing; nor does another number of tags."""
    found = read_reply([stored(*then), 30_000], OPTIONS, now)
    assert found.state == state
    assert (found.value == [1]) == (state == "fresh")
    assert found.head == (b"" if state == "fresh" else stored(*then)[:-3])


def test_what_a_claim_finds_is_outdated_as_well() -> None:
    """Also behind a mark, and where it is a failure that is remembered."""
    assert read_lock([stored(b"v1"), 30_000, 0], OPTIONS, [b"v2"]).state == "outdated"
    behind = b"dibs1 ~ token 600000\n" + stored(b"v1")
    assert read_reply([behind, 630_000], OPTIONS, [b"v1"]).state == "fresh"
    assert read_reply([behind, 630_000], OPTIONS, [b"v2"]).state == "outdated"
    failure = frame(FAILURE, "-", 5.0, 0.0, b"KeyError", [b"v1"])
    assert read_reply([failure, 30_000], OPTIONS, [b"v1"]).state == "failed"
    assert read_reply([failure, 30_000], OPTIONS, [b"v2"]).state == "outdated"


def test_where_versions_live_and_what_is_no_tag() -> None:
    """In the namespace; a string is not a list of tags."""
    assert tag_keys("shop:", ["a", "b:1"]) == (b"shop:tag:a", b"shop:tag:b:1")
    assert checked_tags(["a", "b", "a"]) == ("a", "b")
    for odd in ("a", 5, None, [""], [1], ["a", 1], ["a", ""]):
        with pytest.raises(UsageError):
            checked_tags(odd)
    for no_tag in ("", None, 5, b"a"):
        with pytest.raises(UsageError):
            tag_key("", no_tag)


def test_a_version_outlives_the_values_that_have_it() -> None:
    """Twice as long as they live, and for a day at least. An error is no version."""
    assert b"%d" % round(TAG_LIFE * 1000) in tag_version_request(b"t", b"v", 60).payload
    assert b"400000000" in tag_version_request(b"t", b"v", 200_000).payload
    assert read_versions([b"v", None, ErrorReply("WRONGTYPE x")]) == [b"v", None, None]


def test_what_the_server_refuses_is_not_taken_for_a_key_in_use() -> None:
    """Without PEXPIRE, say: the sentence names the command, not the key."""
    assert read_begun([b"v1", b"v2"]) == [b"v1", b"v2"]
    assert "ACL" in str(mistake(ErrorReply("ERR User app has no permissions to access a key")))
    denied = mistake(ErrorReply("NOPERM User app has no permissions to run the 'pexpire' command"))
    with pytest.raises(UsageError, match="PEXPIRE"):
        read_begun([b"v1", denied])
    for taken in (0, mistake(ErrorReply("WRONGTYPE Operation against a key"))):
        with pytest.raises(UsageError, match="another tag"):
            read_begun([b"v1", taken])


def test_tags_need_more_than_the_rest_of_the_cache() -> None:
    """On a server with IFEQ, too, where nothing else of the cache needs PEXPIRE."""
    engine = Engine(set_nx_get=True, compare_delete="DELIFEQ", refused=frozenset(("PEXPIRE",)))
    must_allow(engine, "load")
    with pytest.raises(UsageError, match=r"tags.*PEXPIRE"):
        must_allow(engine, "tag")
