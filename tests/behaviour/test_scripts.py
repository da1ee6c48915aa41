"""The contract that each Lua script opens with, asked of the script itself on a real server.

Clients check some of it before they ask; a script has to hold without them.
"""

from typing import Any

import pytest

from dibs._core import engine
from dibs.testing import Server

LEASE = b"0123456789abcdef01-1@host:1"
OTHER = b"fedcba987654321001-1@host:2"
VERSION = b"0123456789abcdef"
MINUTE = 60_000


class Script:
    """One script, and the keys of a test."""

    def __init__(self, server: Server, name: str) -> None:
        self.client = server.client()
        self._source = engine._source(name)

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


TAKERS = {"hold_acquire_fenced": take_fenced, "hold_permit": take_permit, "hold_resume": resume}


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


# ---- schedules and submissions


def test_the_record_of_a_schedule_never_moves_back(server: Server) -> None:
    """A machine that was stopped records its fire when later ones are over."""
    script = Script(server, "schedule_record")
    now = script.now_us() // 1000
    for fire in (now, now - MINUTE):
        script(["last"], fire, "host:1", MINUTE, MINUTE)
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
    """What is there stays as it is."""
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
