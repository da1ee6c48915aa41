"""A cached value: fresh, stale or missing; how long it counts, and when it is refreshed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.cache import (
    Reading,
    cache_keys,
    is_due_early,
    jittered,
    read_follow,
    read_lock,
    read_reply,
    read_stored,
    read_validity,
)
from dibs._core.claim import running_record
from dibs._core.codec import FAILURE, JsonCodec, frame, loading_mark
from dibs._core.lease_value import token_maker
from dibs._core.options import CacheOptions, Settings
from dibs._core.tracking import Tracked, Watching


def kept(**options: Any) -> CacheOptions:
    base: dict[str, Any] = {"ttl": 180, "jitter": 0.2, "min_ttl": 60}
    return CacheOptions(Settings(namespace="", on_outage="open"), **{**base, **options})


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(1, 1000))
def test_jitter_stays_in_its_band(chance: float, jitter: float, ttl: float) -> None:
    """ttl × (1 ± jitter), never below min_ttl."""
    fresh = jittered(kept(ttl=ttl, jitter=jitter, min_ttl=0), chance)
    assert ttl * (1 - jitter) - 1e-6 <= fresh <= ttl * (1 + jitter) + 1e-6
    assert jittered(kept(ttl=10, min_ttl=60), chance) == 60


def test_a_ttl_of_one_value_is_not_lengthened() -> None:
    """min_ttl is the least that jitter makes of the usual ttl, not of one that keep= gives."""
    assert jittered(kept(ttl=180, min_ttl=60), 0.0, 10.0) == 10.0
    assert jittered(kept(ttl=180, min_ttl=60), 1.0, 100.0) == pytest.approx(120.0)
    assert jittered(kept(ttl=30, min_ttl=60), 0.5, 30.0) == 60.0


def test_early_is_likelier_near_the_end_and_for_slow_loads() -> None:
    """XFetch: exp(-left / (early × load)); never without early, never for what is not fresh."""

    def share(left: float, took: float, early: float = 1.0) -> float:
        reading = Reading("fresh", left=left, took=took)
        return sum(is_due_early(reading, early, (n + 0.5) / 1000) for n in range(1000)) / 1000

    assert share(1.0, 1.0) == pytest.approx(0.368, abs=0.01)
    assert share(10.0, 1.0) < 0.001
    assert share(0.1, 1.0) > 0.9
    assert share(1.0, 0.01) < 0.001
    assert share(1.0, 1.0, early=0.0) == 0
    assert not is_due_early(Reading("stale", left=-1.0, took=1.0), 1.0, 0.5)


# ---- what the store has

TOKEN = token_maker(b"0123456789abcdef", b"web-1:42", 7)()


def stored(payload: bytes = b'{"soup": 3}', *, took: float = 0.5) -> bytes:
    """A value as it is stored."""
    codec = JsonCodec(None)
    return frame(codec.name, codec.fingerprint, 1_700_000_000.0, took, payload)


@pytest.mark.parametrize(
    ("stale", "life", "state", "left"),
    [(0, 30, "fresh", 30), (60, 90, "fresh", 30), (60, 45, "stale", -15)],
)
def test_a_value_is_fresh_until_only_its_stale_time_is_left(
    stale: float, life: float, state: str, left: float
) -> None:
    """The store keeps it for ttl and stale together; what is left of the ttl decides."""
    found = read_reply([stored(), round(life * 1000)], kept(stale=stale))
    assert (found.state, found.value, found.took) == (state, {"soup": 3}, 0.5)
    assert (found.left, found.life, found.won) == (left, life, False)


def test_without_its_life_a_value_is_fresh() -> None:
    """If its remaining time was not read, an existing value counts as fresh."""
    found = read_reply(stored(), kept())
    assert (found.state, found.life) == ("fresh", 180)


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (None, "missing"),
        (loading_mark(TOKEN), "missing"),  # it is being loaded
        (frame(FAILURE, "-", 0.0, 0.0, b"out of soup"), "failed"),
        (TOKEN, "held"),
        (running_record(TOKEN, b"-", 0.0), "held"),
        (b"dibs1 done 0 - - 17", "held"),
        (b"written by another program", "poison"),
        (stored(b"{"), "poison"),
        (stored().partition(b"\n")[0], "poison"),
        (frame("json", "other schema", 0.0, 0.0, b"{}"), "poison"),
    ],
)
def test_what_else_may_stand_under_a_key(data: bytes | None, state: str) -> None:
    """Nothing, the mark of a load, a failure, a lease or a claim, or unreadable bytes."""
    found = read_reply([data, 30_000], kept())
    assert found.state == state
    assert found.value == ("out of soup" if state == "failed" else None)


def test_a_failure_is_remembered_as_long_as_it_is_fresh() -> None:
    """In its stale time it is as if there were none."""
    failure = frame(FAILURE, "-", 0.0, 0.0, b"out of soup")
    assert read_reply([failure, 90_000], kept(stale=60)).state == "failed"
    assert read_reply([failure, 45_000], kept(stale=60)).state == "missing"


def test_behind_the_mark_of_a_refresh_stands_the_value() -> None:
    """It is served for as long as it would have lived: the mark says what was left."""
    behind = loading_mark(TOKEN) + b" 600000\n" + stored()
    found = read_reply([behind, 630_000], kept())
    assert (found.state, found.life) == ("fresh", 30)
    assert read_reply([behind, 600_000], kept()).state == "missing"
    assert read_reply(behind, kept()).state == "missing", "without its life nobody knows"


@given(st.binary(), st.one_of(st.none(), st.integers(-2, 10**6)))
def test_whatever_bytes_are_there_a_reading_is_made(data: bytes, life: int | None) -> None:
    """Never an exception, and never a value that was not stored."""
    assert read_reply([data, life], kept()).state in ("missing", "poison", "held")


# ---- loads


def test_a_load_may_be_stored_while_mark_and_lock_stand() -> None:
    """Deleted, or the lock taken by another: it may not."""
    assert read_validity([1, TOKEN], TOKEN)
    for replies in ([0, TOKEN], [1, None], [1, b"of another"]):
        assert not read_validity(replies, TOKEN)


def test_a_follower_learns_how_long_the_lock_is_held() -> None:
    """None where no load is under way: then it is for the follower to load."""
    assert read_follow(Tracked([1, 1500], tracked=True)) == Watching(1.5, tracked=True)
    assert read_follow(Tracked([0, 1500], tracked=True)) is None


def test_value_and_lock_live_in_one_slot() -> None:
    """In a cluster both are on one node; a lock key of the caller's own is taken as it is."""
    settings = Settings(namespace="shop:", on_outage="open")

    def places(lock_key: str | None) -> tuple[bytes, bytes]:
        keys = cache_keys(settings, kept(), "menu:*", "menu:1", lock_key)
        return keys.key, keys.lock

    assert places(None) == (b"shop:menu:1", b"shop:lock:{shop:menu:1}")
    assert places("mine") == (b"shop:menu:1", b"shop:mine")


@pytest.mark.parametrize(
    "options", [{"jitter": 1}, {"jitter": -0.1}, {"early": -1}, {"ttl": 0}, {"stale": -1}]
)
def test_an_option_of_a_cache_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    """UsageError that names it, when the options are made."""
    with pytest.raises(UsageError, match=next(iter(options))):
        kept(**options)


def stored_at(made_at: float = 0.0) -> bytes:
    return frame("json", "-", made_at, 0.0, b"1")


def test_a_value_is_stale_from_the_moment_its_ttl_is_over() -> None:
    """What the server still keeps is the time for which it may be served stale."""
    options = kept(stale=10)
    assert read_reply([stored_at(), 10_001], options, []).state == "fresh"
    assert read_reply([stored_at(), 10_000], options, []).state == "stale"


def test_how_long_a_value_lives_is_asked_where_that_matters() -> None:
    """For what is served stale, refreshed early, or kept in memory."""
    settings = Settings(namespace="", on_outage="open")
    for options, replies in (({}, 1), ({"stale": 1}, 2), ({"early": 1}, 2), ({"local": 5}, 2)):
        keys = cache_keys(settings, kept(**options), "k", "k", None)
        assert keys.read.replies == replies, options


def test_the_age_of_a_value_is_never_negative() -> None:
    """The clock of who stored it may be ahead."""
    found = read_stored([stored_at(made_at=100.0), 60_000], kept(), [], 90.0)
    assert found is not None and found.age == 0.0


def test_who_won_the_lock_gets_what_only_its_execution_knows() -> None:
    """It is asked for again when the value is stored; a refusal has none."""
    assert read_lock([None, -2, 1, b"mark"], kept()).lock == b"mark"
    assert read_lock([None, -2, 0], kept()).lock == Reading("missing").lock
    assert read_lock([None, -2, 2], kept()).resting
