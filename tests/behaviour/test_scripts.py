"""The contract that each Lua script opens with, asked of the script itself on a real server.

Clients check some of it before they ask; a script has to hold without them.
"""

import re
from typing import Any

import pytest
import redis

from dibs._core import capabilities
from dibs.testing import Server

LEASE = b"0123456789abcdef01-1@host:1"
OTHER = b"fedcba987654321001-1@host:2"
VERSION = b"0123456789abcdef"
MINUTE = 60_000


class Script:
    """One script, and the keys of a test."""

    def __init__(self, server: Server, name: str) -> None:
        self.client = server.client()
        self._source = capabilities._script_source(name)

    def __call__(self, keys: list[str], *args: Any) -> Any:
        return self.client.eval(self._source, len(keys), *keys, *args)

    def now_us(self) -> int:
        """The server's clock."""
        seconds, micros = self.client.time()
        return seconds * 1_000_000 + micros


# ---- fences


def take_fenced(script: Script) -> int:
    return script(["key", "fence"], LEASE, MINUTE, MINUTE)[1]


def take_permit(script: Script) -> int:
    return script(["key", "fence", "fences"], LEASE, MINUTE, 3, MINUTE)


def resume(script: Script) -> int:
    script.client.set("key", b"aa-1@host:3", px=MINUTE)
    return script(["key", "fence"], "aa-1", "bb-1", "host:1", MINUTE, MINUTE)[2]


def resume_permit(script: Script) -> int:
    script.client.zadd("key", {"aa-1@detached": script.now_us() // 1000 + MINUTE})
    keys = ["key", "fence", "fences"]
    return script(keys, "aa-1@detached", "bb-1", "host:1", MINUTE, MINUTE, "take")[2]


TAKERS = {
    "hold_acquire_fenced": take_fenced, "hold_permit": take_permit, "hold_resume": resume,
    "hold_permit_resume": resume_permit,
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
def test_a_fence_without_a_counter_is_the_clock_of_the_server(server: Server, name: str) -> None:
    """So it is greater than those before it. The counter outlives the lease."""
    script = Script(server, name)
    before = script.now_us()
    fence = TAKERS[name](script)
    assert before <= fence <= script.now_us()
    assert int(script.client.get("fence")) == fence
    assert MINUTE < script.client.pttl("fence") <= 2 * MINUTE


@pytest.mark.parametrize("name", TAKERS)
def test_a_fence_is_greater_than_a_counter_ahead_of_the_clock(server: Server, name: str) -> None:
    """The clock of the server was set back."""
    script = Script(server, name)
    ahead = script.now_us() + 10**12
    script.client.set("fence", ahead)
    assert TAKERS[name](script) == ahead + 1


# ---- permits


def test_expired_permits_are_free(server: Server) -> None:
    """They are removed when another one is wanted, and not counted."""
    script = Script(server, "hold_permit")
    past = script.now_us() // 1000 - 1
    script.client.zadd("key", {OTHER: past})
    assert script(["key"], LEASE, MINUTE, 1) is None
    assert script.client.zrange("key", 0, -1) == [LEASE]


def test_a_repeated_permit_keeps_its_fence(server: Server) -> None:
    """Also if another one was taken since: the earlier holder must not get the greater fence."""
    script = Script(server, "hold_permit")
    first = take_permit(script)
    later = script(["key", "fence", "fences"], OTHER, MINUTE, 3, MINUTE)
    assert take_permit(script) == first < later


def test_a_permit_that_is_continued_twice_is_continued_once(server: Server) -> None:
    """A repeated request gets the answer of the first; undone, it has the time that it had."""
    script = Script(server, "hold_permit_resume")
    fence = resume_permit(script)
    keys = ["key", "fence", "fences"]
    words = ("aa-1@detached", "bb-1", "host:1", 10, MINUTE, "take")
    token, is_ours, again = script(keys, *words)
    assert (is_ours, again) == (1, fence)
    assert token.startswith(b"bb-1~")
    assert script(keys, "aa-1@detached", "cc-1", *words[2:]) == [None, 0, -2]
    for _ in range(2):
        undo = ("bb-1", "aa-1@detached", "", 10, 0, "undo")
        assert script(["key"], *undo) == [b"aa-1@detached", 1, 0]
    assert MINUTE / 2 < script.client.pttl("key") <= MINUTE


# ---- schedules and submissions


def test_the_record_of_a_schedule_never_moves_back(server: Server) -> None:
    """A machine that was stopped records its run when later ones are over."""
    script = Script(server, "schedule_record")
    now = script.now_us() // 1000
    for run in (now, now - MINUTE):
        script(["last", "records", "lease"], run, "host:1", MINUTE, MINUTE, "", 0)
        assert script.client.get("last").startswith(b"%d " % now)


def test_a_completion_that_is_repeated_has_completed(server: Server) -> None:
    """The first copy did it; and no other claim or free key is touched."""
    script = Script(server, "once_complete")
    assert script(["key"], LEASE, b"done", MINUTE) == -2
    script.client.set("key", LEASE)
    assert script(["key"], LEASE, b"done", MINUTE) == 1
    assert script(["key"], LEASE, b"done", MINUTE) == 1
    assert script(["key"], OTHER, b"other", MINUTE) == 0
    assert script.client.get("key") == b"done"


# ---- a person frees a key


def test_a_key_that_changed_hands_is_not_freed(server: Server) -> None:
    """The holding that was shown ended, and another one began before the person answered."""
    script = Script(server, "inspect_release")
    script.client.set("key", OTHER)
    assert script(["key"], LEASE) == 0
    assert script.client.get("key") == OTHER
    assert script(["key"], OTHER) == 1
    assert script.client.exists("key") == 0


# ---- cached values


def test_an_invalidation_ends_the_load_that_is_under_way(server: Server) -> None:
    """With the lock, so that the next reader loads and does not wait for what is outdated."""
    script = Script(server, "cache_invalidate")
    script.client.mset({"key": b"dibs1 ~", "lock": LEASE})
    assert script(["key", "lock"]) == 1
    assert script.client.exists("key", "lock") == 0


@pytest.mark.parametrize("pause", [0, MINUTE])
def test_a_failed_load_frees_the_lock_or_keeps_others_from_trying(
    server: Server, pause: int
) -> None:
    """As long as it was asked to, and no longer."""
    script = Script(server, "cache_unlock")
    script.client.mset({"key": b"mark", "lock": LEASE.partition(b"@")[0] + b" 1"})
    assert script(["key", "lock"], LEASE, b"mark", pause) == 1
    assert script.client.get("lock") == (b"!" if pause else None)
    assert script.client.exists("key") == 0


@pytest.mark.parametrize("value", [LEASE, b"dibs1 done ", VERSION[:-1] + b"g", VERSION + b"0"])
def test_a_tag_is_no_lease_no_claim_and_no_value(server: Server, value: bytes) -> None:
    """An existing key stays as it is."""
    script = Script(server, "cache_tag")
    script.client.set("tag", value, px=MINUTE)
    assert script(["tag"], VERSION, 2 * MINUTE) == 0
    assert script.client.get("tag") == value
    assert script.client.pttl("tag") <= MINUTE


def test_the_version_of_a_tag_outlives_the_values_that_have_it(server: Server) -> None:
    """Each load lets it live longer, never shorter, and none changes it."""
    script = Script(server, "cache_tag")
    version = script(["tag"], VERSION, MINUTE)
    assert version[:5] == VERSION[:5] and len(version) == 16
    assert script(["tag"], VERSION[::-1], 3 * MINUTE) == version
    assert 2 * MINUTE < script.client.pttl("tag") <= 3 * MINUTE
    assert script(["tag"], VERSION, MINUTE) == version
    assert 2 * MINUTE < script.client.pttl("tag") <= 3 * MINUTE


VALUE = b"dibs1 json - 1 0.1\n7"
FAILED = b"dibs1 ! x"
MARK = b"dibs1 ~ " + LEASE
MARK_LIFE, LONGEST = 10 * MINUTE, MINUTE
SECRET = LEASE.partition(b"@")[0]
NOT_CACHED = [LEASE, b"dibs1 done x"]
"""A lease, and what a claim has left."""


def lock(script: Script, *, stale: int = 0, when: bytes = b"0", token: bytes = LEASE) -> Any:
    """What cache_lock answers."""
    mark = b"dibs1 ~ " + token
    words = (token, 3 * MINUTE, stale, when, mark, MARK_LIFE, LONGEST)
    return script(["key", "lock"], *words)


@pytest.fixture
def cache_lock(server: Server) -> Script:
    return Script(server, "cache_lock")


def test_who_finds_no_value_loads_it_and_leaves_a_mark(cache_lock: Script) -> None:
    """The lock contains the server's time; others wait, a repeated request has the same lock."""
    before = cache_lock.now_us()
    value, left, is_ours, holder = lock(cache_lock)
    assert (value, left, is_ours) == (None, 0, 1)
    secret, _, rest = holder.partition(b" ")
    assert secret == SECRET and rest.endswith(b"@host:1") and rest.count(b"@") == 1
    assert before <= int(rest.partition(b"@")[0]) <= cache_lock.now_us()
    assert cache_lock.client.get("key") == MARK and cache_lock.client.get("lock") == holder
    assert MARK_LIFE - MINUTE < cache_lock.client.pttl("key") <= MARK_LIFE
    assert 2 * MINUTE < cache_lock.client.pttl("lock") <= 3 * MINUTE
    assert lock(cache_lock, token=OTHER) == [None, 0, 0]
    assert lock(cache_lock) == [None, 0, 1, holder]
    assert cache_lock.client.get("key") == MARK
    cache_lock.client.delete("key")
    assert lock(cache_lock)[3] != holder


@pytest.mark.parametrize("value", NOT_CACHED)
@pytest.mark.parametrize("name", ["cache_lock", "cache_put", "cache_invalidate", "cache_store"])
def test_a_lease_or_a_claim_is_no_cached_value(server: Server, name: str, value: bytes) -> None:
    """It is neither read as one nor replaced; only a lock that is ours goes."""
    script = Script(server, name)
    script.client.set("key", value)
    script.client.set("lock", b"held")
    words = {"cache_put": (VALUE, MINUTE), "cache_store": (b"held", VALUE, MINUTE)}
    if name == "cache_lock":
        assert lock(script) == [value, 0, 0]
    else:
        assert script(["key", "lock"], *words.get(name, ())) == 0
    assert script.client.get("key") == value
    assert script.client.get("lock") == (None if name == "cache_store" else b"held")


@pytest.mark.parametrize("value", [VALUE, b"of another program"])
def test_a_fresh_value_is_read(cache_lock: Script, value: bytes) -> None:
    """Unless it is to be loaded all the same; then it is put behind the mark if it ends soon."""
    cache_lock.client.set("key", value, px=5 * MINUTE)
    found, left, is_ours = lock(cache_lock)
    assert (found, is_ours) == (value, 0) and 4 * MINUTE < left <= 5 * MINUTE
    assert lock(cache_lock, stale=6 * MINUTE)[2] == 1
    cache_lock.client.delete("lock")
    assert lock(cache_lock, when=b"1")[:3:2] == [value, 1]
    assert cache_lock.client.get("key") == value
    cache_lock.client.pexpire("key", MINUTE // 2)
    assert lock(cache_lock, when=b"1")[:3:2] == [value, 1]
    assert cache_lock.client.get("key") == b"%s %d\n%s" % (MARK, MARK_LIFE, value)
    assert MARK_LIFE < cache_lock.client.pttl("key") <= MARK_LIFE + MINUTE // 2


def test_a_value_without_an_end_is_not_put_behind_the_mark(cache_lock: Script) -> None:
    """It stays after any load."""
    cache_lock.client.set("key", VALUE)
    assert lock(cache_lock, when=b"1")[:3:2] == [VALUE, 1]
    assert cache_lock.client.get("key") == VALUE


def test_a_value_behind_a_mark_lives_for_its_own_time(cache_lock: Script) -> None:
    """Then there is no value: the mark alone says that a load is running."""
    cache_lock.client.set("key", b"%s %d\n%s" % (MARK, MARK_LIFE, VALUE), px=MARK_LIFE + MINUTE)
    found, left, is_ours = lock(cache_lock, token=OTHER)
    assert (found, is_ours) == (VALUE, 0) and 0 < left <= MINUTE
    cache_lock.client.pexpire("key", MARK_LIFE)
    assert lock(cache_lock, token=OTHER)[:3] == [None, 0, 1]
    assert cache_lock.client.get("key") == b"dibs1 ~ " + OTHER


def test_a_failure_is_remembered_for_its_time_and_is_no_value_after_it(cache_lock: Script) -> None:
    """The part of its life in which it would be stale does not count."""
    cache_lock.client.set("key", FAILED, px=2 * MINUTE)
    assert lock(cache_lock, stale=MINUTE)[:3:2] == [FAILED, 0]
    assert lock(cache_lock, stale=3 * MINUTE)[:3] == [None, 0, 1]


def test_a_value_with_another_head_counts_as_none(cache_lock: Script) -> None:
    """One that this program cannot read is loaded again; others are not."""
    cache_lock.client.set("key", VALUE, px=5 * MINUTE)
    assert lock(cache_lock, when=b"dibs1 pickle")[:3:2] == [VALUE, 0]
    assert lock(cache_lock, when=VALUE.partition(b"\n")[0])[:3] == [None, 0, 1]


def test_after_a_failed_load_nobody_tries_again_for_a_while(cache_lock: Script) -> None:
    """Who has an old value gets it; who has none, or wants a load, loads."""
    cache_lock.client.mset({"key": VALUE, "lock": b"!"})
    cache_lock.client.pexpire("key", MINUTE)
    found, left, is_ours = lock(cache_lock, stale=2 * MINUTE)
    assert (found, is_ours) == (VALUE, 2) and 0 < left <= MINUTE
    assert cache_lock.client.get("lock") == b"!"
    assert lock(cache_lock, stale=2 * MINUTE, when=b"1")[2] == 1
    cache_lock.client.delete("key")
    cache_lock.client.set("lock", b"!")
    assert lock(cache_lock)[:3] == [None, 0, 1]


def test_a_result_is_kept_with_the_lock_of_its_load(server: Server) -> None:
    """And by no other; a repeated request says the same; after a delete nothing is kept."""
    script = Script(server, "cache_store")
    script.client.mset({"key": MARK, "lock": b"mine"})
    assert script(["key", "lock"], b"other", VALUE, MINUTE) == 0
    assert script.client.mget("key", "lock") == [MARK, b"mine"]
    assert script(["key", "lock"], b"mine", VALUE, MINUTE) == 1
    assert script.client.mget("key", "lock") == [VALUE, None]
    assert 0 < script.client.pttl("key") <= MINUTE
    assert script(["key", "lock"], b"mine", VALUE, MINUTE) == 1
    script.client.delete("key")
    script.client.set("lock", b"mine")
    assert script(["key", "lock"], b"mine", VALUE, MINUTE) == 0
    assert script.client.exists("key", "lock") == 0


def test_a_value_that_is_set_ends_the_load_that_is_under_way(server: Server) -> None:
    """It may have begun before."""
    script = Script(server, "cache_put")
    script.client.mset({"key": MARK, "lock": b"held"})
    assert script(["key", "lock"], VALUE, MINUTE) == 1
    assert script.client.mget("key", "lock") == [VALUE, None]
    assert 0 < script.client.pttl("key") <= MINUTE


@pytest.mark.parametrize("left", [MINUTE, 0])
def test_a_failed_load_puts_back_what_was_behind_its_mark(server: Server, left: int) -> None:
    """For the rest of its life, if there is any."""
    script = Script(server, "cache_unlock")
    script.client.set("key", b"%s %d\n%s" % (MARK, MARK_LIFE, VALUE), px=MARK_LIFE + left)
    script.client.set("lock", b"another 1@host:9")
    assert script(["key", "lock"], LEASE, MARK, 0) == 0
    assert script.client.get("key") == (VALUE if left else None)
    assert script.client.pttl("key") <= MINUTE
    assert script.client.get("lock") == b"another 1@host:9"


def test_a_failed_load_touches_no_value_and_no_other_mark(server: Server) -> None:
    """Only its own mark goes."""
    script = Script(server, "cache_unlock")
    for value in (VALUE, MARK + b"0", b"dibs1 ~ " + OTHER):
        script.client.set("key", value)
        assert script(["key", "lock"], LEASE, MARK, MINUTE) == 0
        assert script.client.get("key") == value and not script.client.exists("lock")


# ---- the rest of each contract: who gets what, and what stays as it was


def lives(script: Script, key: str = "key") -> bool:
    """Whether a key expires in about a minute."""
    return MINUTE - 5_000 < script.client.pttl(key) <= MINUTE


def test_a_free_key_is_taken_once(server: Server) -> None:
    """The reply names the holder, which keeps it for as long as before."""
    script = Script(server, "hold_acquire")
    assert script(["key"], LEASE, MINUTE) is None
    assert script.client.get("key") == LEASE and lives(script)
    for token in (LEASE, OTHER):
        assert script(["key"], token, 5 * MINUTE) == LEASE
    assert script.client.get("key") == LEASE and lives(script)


def test_a_free_key_is_taken_once_with_a_fence(server: Server) -> None:
    """A repeated request gets the same one, another token none."""
    script = Script(server, "hold_acquire_fenced")
    none, fence = script(["key", "fence"], LEASE, MINUTE, MINUTE)
    assert none is None and fence > 0
    assert script(["key", "fence"], LEASE, 5 * MINUTE, MINUTE) == [None, fence]
    assert script(["key", "fence"], OTHER, 5 * MINUTE, MINUTE) == [LEASE, 0]
    assert script.client.get("key") == LEASE and lives(script)
    assert int(script.client.get("fence")) == fence


def test_several_keys_are_taken_or_none(server: Server) -> None:
    """The reply names the first that is not free; a repeated request gets the same fences."""
    script = Script(server, "hold_all")
    script.client.set("b", OTHER, px=MINUTE)
    place, value, left = script(["a", "b"], LEASE, MINUTE, 2)
    assert (place, value) == (2, OTHER) and 0 < left <= MINUTE
    assert not script.client.exists("a")
    assert script(["a", "c"], LEASE, MINUTE, 2) == [0]
    assert script.client.get("a") == script.client.get("c") == LEASE
    script.client.pexpire("a", 1000)
    assert script(["a", "c"], LEASE, MINUTE, 2) == [0] and script.client.pttl("a") <= 1050
    keys = ["d", "e", "fence:d", "fence:e"]
    _, first, second = script(keys, LEASE, MINUTE, 2, MINUTE)
    assert int(script.client.get("fence:d")) == first and first > 0 < second
    assert script(keys, LEASE, MINUTE, 2, MINUTE) == [0, first, second]
    script.client.delete("d", "e")
    ahead = script.now_us() + 10**12
    script.client.set("fence:e", ahead)
    _, third, fourth = script(keys, OTHER, MINUTE, 2, MINUTE)
    assert third > first and fourth == ahead + 1


def test_a_key_is_given_back_by_its_token(server: Server) -> None:
    """Another's stays."""
    script = Script(server, "hold_release")
    assert script(["key"], LEASE) == 0
    script.client.set("key", OTHER)
    assert script(["key"], LEASE) == 0 and script.client.get("key") == OTHER
    assert script(["key"], OTHER) == 1 and not script.client.exists("key")


def test_an_extension_lengthens_and_only_a_release_shortens(server: Server) -> None:
    """It touches no other's key and takes none."""
    script = Script(server, "hold_extend")
    assert script(["key"], LEASE, MINUTE) == 0 and not script.client.exists("key")
    script.client.set("key", LEASE, px=1000)
    assert script(["key"], OTHER, MINUTE) == 0 and script.client.pttl("key") <= 1050
    assert script(["key"], LEASE, MINUTE) == 1 and lives(script)
    assert script(["key"], LEASE, 1000) == 1 and lives(script)
    for _ in range(2):  # a repeated request as well
        assert script(["key"], LEASE, 1000, b"left") == 1 and script.client.pttl("key") <= 1050
        assert script.client.get("key") == b"left"


def test_an_extension_of_a_permit_lengthens_and_only_a_release_shortens(server: Server) -> None:
    """The key expires with the last of its permits."""
    script = Script(server, "hold_permit_extend")
    now = script.now_us() // 1000
    assert script(["key"], LEASE, MINUTE) == 0 and not script.client.exists("key")
    script.client.zadd("key", {LEASE: now + 1000, OTHER: now + 2000})
    assert script(["key"], b"aa-1@host:3", MINUTE) == 0 and script.client.zcard("key") == 2
    assert script(["key"], LEASE, MINUTE) == 1 and lives(script)
    longest = script.client.zscore("key", LEASE)
    assert now + MINUTE <= longest <= script.now_us() // 1000 + MINUTE
    assert script(["key"], LEASE, 1000) == 1
    assert script.client.zscore("key", LEASE) == longest and lives(script)
    for _ in range(2):  # a repeated request as well
        assert script(["key"], LEASE, 1000, b"left") == 1
        assert script.client.zscore("key", b"left") < longest
        assert script.client.zscore("key", LEASE) is None
    assert script.client.zscore("key", OTHER) == now + 2000
    assert script.client.pttl("key") <= 2050


def test_permits_are_taken_up_to_the_limit(server: Server) -> None:
    """One more is refused, with the permit that expires first; the key lives as long as they do."""
    script = Script(server, "hold_permit")
    now = script.now_us() // 1000
    assert script(["key"], LEASE, MINUTE, 2) is None and lives(script)
    assert script(["key"], OTHER, 1000, 2) is None and lives(script)
    token, ms, expiry = script(["key"], b"aa-1@host:3", MINUTE, 2)
    assert token == OTHER and 0 < ms <= 1000
    assert int(expiry) == script.client.zscore("key", LEASE) >= now + MINUTE
    assert script(["key"], LEASE, 5 * MINUTE, 2) is None, "repeated"
    assert int(expiry) == script.client.zscore("key", LEASE) and lives(script)
    assert script.client.zcard("key") == 2
    assert script(["key"], b"aa-1@host:3", 5 * MINUTE, 3) is None
    assert script.client.pttl("key") > 4 * MINUTE


def test_the_script_of_permits_leaves_another_sorted_set_alone(server: Server) -> None:
    """Nor a plain lease."""
    script = Script(server, "hold_permit")
    script.client.zadd("key", {"a player": 1})
    script.client.set("lease", LEASE)
    for key in ("key", "lease"):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            script([key], LEASE, MINUTE, 5)
    assert script.client.zrange("key", 0, -1) == [b"a player"]


def test_fences_of_permits_that_are_gone_do_not_pile_up(server: Server) -> None:
    """Those of permits that are held stay, and a repeated request finds them."""
    script = Script(server, "hold_permit")
    first = take_permit(script)
    for number in range(20):
        token = b"%x-1@host:3" % number
        assert script(["key", "fence", "fences"], token, MINUTE, 3, MINUTE) > first
        script.client.zrem("key", token)
        assert script.client.zcard("fences") <= 2 * 3 + 8
    assert script.client.zcard("fences") > 1 and lives(script, "fences")
    assert take_permit(script) == first


def test_the_first_permit_to_expire_is_shown(server: Server) -> None:
    """Expired ones are not."""
    script = Script(server, "hold_permit_peek")
    assert script(["key"]) is None
    now = script.now_us() // 1000
    script.client.zadd("key", {b"aa-1@host:3": now - 1, LEASE: now + MINUTE})
    token, ms = script(["key"])
    assert token == LEASE and MINUTE - 5_000 < ms <= MINUTE
    script.client.zadd("key", {OTHER: now + 20_000})
    assert script(["key"])[0] == OTHER


def test_a_lease_is_continued_by_one(server: Server) -> None:
    """By its secret; a repeated request gets the same answer, the next one the current state."""
    script = Script(server, "hold_resume")
    assert script(["key"], "aa-1", "bb-1", "host:2", MINUTE, 0) == [None, 0, -2]
    script.client.set("key", b"aa-1 print 5@host:1\nrest", px=5 * MINUTE)
    value, is_ours, left = script(["key"], "cc-1", "bb-1", "host:2", MINUTE, 0)
    assert (value, is_ours) == (b"aa-1 print 5@host:1\nrest", 0) and left > 4 * MINUTE
    value, is_ours, fence = script(["key"], "aa-1", "bb-1", "host:2", MINUTE, 0)
    assert re.fullmatch(rb"bb-1~2\d{5} print 5@host:2\nrest|bb-1~300000 .*", value, re.DOTALL)
    assert (is_ours, fence) == (1, 0) and script.client.get("key") == value and lives(script)
    assert script(["key"], "aa-1", "bb-1", "host:2", MINUTE, 0) == [value, 1, 0]
    assert script(["key"], "aa-1", "dd-1", "host:3", MINUTE, 0)[:2] == [value, 0]
    undone, is_ours, _ = script(["key"], "bb-1", "aa-1", "host:1", MINUTE, 0, "undo")
    assert (undone, is_ours) == (b"aa-1 print 5@host:1\nrest", 1)
    assert script.client.pttl("key") > 4 * MINUTE, "as long as it had before"


def test_what_is_no_lease_is_not_continued(server: Server) -> None:
    """A value of another program."""
    script = Script(server, "hold_resume")
    script.client.set("key", b"anything")
    assert script(["key"], "aa-1", "bb-1", "host:2", MINUTE, 0) == [b"anything", 0, -1]


def test_a_lease_that_is_continued_with_a_fence_keeps_it(server: Server) -> None:
    """Its repeated request gets that fence, and who undoes it without a life gives it one."""
    script = Script(server, "hold_resume")
    script.client.set("key", b"aa-1@host:1")
    value, is_ours, fence = script(["key", "fence"], "aa-1", "bb-1", "host:2", MINUTE, MINUTE)
    assert (value, is_ours) == (b"bb-1@host:2", 1) and fence > 0
    assert script(["key", "fence"], "aa-1", "bb-1", "host:2", MINUTE, MINUTE) == [value, 1, fence]
    assert script(["key"], "bb-1", "aa-1", "host:1", MINUTE, 0, "undo")[1] == 1 and lives(script)


def test_work_is_recorded_where_its_claim_was(server: Server) -> None:
    """A free key is taken until a time of the server's clock; another claim never."""
    script = Script(server, "once_record")
    now = script.now_us() // 1000

    def record(until: int, alone: int = 0) -> int:
        return script(["key"], LEASE, b"done", MINUTE, until, alone)

    assert now <= record(0) <= script.now_us() // 1000 and not script.client.exists("key")
    assert now <= record(now) <= script.now_us() // 1000 and not script.client.exists("key")
    for until, alone in ((-1, 0), (now + MINUTE, 0), (-1, 1)):
        script.client.delete("key")
        assert record(until, alone) == 1
        assert script.client.get("key") == b"done" and lives(script)
    script.client.set("key", b"done and its result")
    assert record(0) == 1 and script.client.get("key") == b"done and its result"
    script.client.set("key", OTHER)
    assert record(-1) == 0 and script.client.get("key") == OTHER
    script.client.set("key", LEASE)
    assert record(0) == 1 and script.client.get("key") == b"done" and lives(script)


def test_what_was_done_is_left_for_its_time(server: Server) -> None:
    """In the place of the claim."""
    script = Script(server, "once_complete")
    script.client.set("key", LEASE)
    assert script(["key"], LEASE, b"done", MINUTE) == 1 and lives(script)


def test_the_last_runs_are_kept(server: Server) -> None:
    """Fifty of them, each once; a wrong clock is overruled."""
    script = Script(server, "schedule_record")
    look = Script(server, "schedule_look")
    now = script.now_us() // 1000

    def record(run: int) -> int:
        return script(["last", "records", "lease"], run, "host:1", MINUTE, MINUTE, "", 0)

    assert look(["last"])[0] is None and now <= look(["last"])[1] <= script.now_us() // 1000
    runs = range(now - 60_000, now - 60_000 + 55)
    for run in [run for run in runs for _ in range(2)]:  # each is repeated
        assert record(run) == 0
    assert look(["last"])[0] == b"%d host:1" % runs[-1]
    kept = [b"%d host:1" % run for run in runs[-50:]]
    assert script.client.zrange("records", 0, -1) == kept
    assert lives(script, "last") and lives(script, "records")
    record(now + 10 * MINUTE)
    record(now)
    assert look(["last"])[0] == b"%d host:1" % now
    for key in ("last", "records"):
        script.client.set(key, "of another program")
        record(now)
        assert look(["last"])[0] == b"%d host:1" % now


def test_the_lease_of_a_run_ends_with_its_record(server: Server) -> None:
    """It is deleted, or stays for a time. Another's is not touched, and the run is recorded."""
    script = Script(server, "schedule_record")
    now = script.now_us() // 1000

    def record(run: int, stays: int) -> int:
        facts = (run, "host:1", MINUTE, MINUTE, LEASE, stays)
        return script(["last", "records", "lease"], *facts)

    script.client.set("lease", OTHER, px=MINUTE)
    assert record(now, 0) == 0 and script.client.get("lease") == OTHER
    script.client.set("lease", LEASE, px=MINUTE)
    assert record(now + 1, 5 * MINUTE) == 1
    assert 4 * MINUTE < script.client.pttl("lease") <= 5 * MINUTE
    assert [record(now + 2, 0) for _ in range(2)] == [1, 0] and not script.client.exists("lease")
    assert script.client.get("last") == b"%d host:1" % (now + 2)


def test_calls_are_counted_up_to_the_burst(server: Server) -> None:
    """Each once; then the reply says after how long the next one would be counted."""
    script = Script(server, "throttle")
    second = 1_000_000

    def call(request: str, burst: int = 3) -> list[int]:
        return script(["key"], request, 0, 20 * second, burst, 1, 0)

    for number, left in ((1, 2), (2, 1), (3, 0)):
        allowed, rest, more = call(f"a-{number}")
        assert (allowed, rest) == (1, left) and 0 < more <= 20 * second
        assert call(f"a-{number}")[:2] == [1, left], "repeated"
    allowed, rest, more = call("a-4")
    assert (allowed, rest) == (0, 0) and 10 * second < more <= 20 * second
    assert MINUTE - 5_000 < script.client.pttl("key") <= MINUTE
    assert re.fullmatch(rb"dibs1 rate \d{16};20000000:\d{16} a-3 a-2 a-1", script.client.get("key"))
    assert call("a-3")[:2] == [1, 0]
    assert call("a-4", 4)[:2] == [1, 0], "a faster rate"


def test_the_last_eight_requests_are_remembered(server: Server) -> None:
    """One that is repeated later counts again."""
    script = Script(server, "throttle")
    for number in range(10):
        script(["key"], f"a-{number}", 0, 1_000_000, 100, 1, 0)
    names = b" ".join([b"a-%d" % number for number in range(9, 1, -1)])
    assert script.client.get("key").endswith(b" " + names)
    assert len(script.client.get("key").split()) == 3 + 8


def test_what_was_counted_by_a_clock_that_was_ahead_stays_counted(server: Server) -> None:
    """And what is used up long since counts as nothing."""
    script = Script(server, "throttle")
    ahead, past = script.now_us() + 10**12, script.now_us() - 10**12
    script.client.set("key", b"dibs1 rate %d;1000000:%d a-1" % (ahead, ahead + 3_000_000))
    allowed, _, more = script(["key"], "a-2", 0, 1_000_000, 3, 1, 0)
    assert allowed == 0 and more == 1_000_000
    script.client.set("key", b"dibs1 rate %d;1000000:%d a-1" % (past, past))
    assert script(["key"], "a-2", 0, 1_000_000, 3, 1, 0)[:2] == [1, 2]
    script.client.set("key", LEASE)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        script(["key"], "a-2", 0, 1_000_000, 3, 1, 0)


def test_waiters_are_noted_up_to_a_number(server: Server) -> None:
    """Each once; notes that have expired make room."""
    script = Script(server, "wait_note")
    now = script.now_us() // 1000
    script.client.zadd("key", {"gone": now - 1})
    assert script(["key"], "a", MINUTE, 2) == 1 and lives(script)
    assert script.client.zrange("key", 0, -1) == [b"a"]
    assert now + MINUTE <= script.client.zscore("key", "a") <= script.now_us() // 1000 + MINUTE
    assert script(["key"], "b", MINUTE, 2) == 1
    assert script(["key"], "c", MINUTE, 2) == 0
    assert script(["key"], "b", 2 * MINUTE, 2) == 1
    assert script.client.zcard("key") == 2
    assert script.client.zscore("key", "b") >= now + 2 * MINUTE
