# Generated from tests/behaviour/_async/test_cached_foreign_keys.py by unasync.py – do not edit.
"""What `cached` does with a key that holds something else than its value."""

import pytest

from dibs import Dibs, Event, UsageError
from dibs.testing import Server

from .._threads import Background, eventually
from ..events import kinds
from .loaders import Loader


@pytest.mark.parametrize(
    "junk",
    [b"", b"junk", b'{"name":"a"}', b"\x80\x04K\x01.", b"dibs0 json - 1 1\n{}",
     b"dibs1 json - 1 1\n{", b"dibs1 json - x y\n{}", b"dibs1 pickle - 1 1\nx",
     b"dibs1 json deadbeef 1 1\n{}"],
)  # fmt: skip
def test_bytes_that_cannot_be_read_are_a_counted_miss(valkey: Server, junk: bytes) -> None:
    """Old versions, other codecs, other schemas, foreign bytes: a miss, a `poison` event."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        valkey.client().set("menu:a", junk, ex=60)
        assert (menu("a"))["load"] == 1
        assert (menu("a"))["load"] == 1
        assert "poison" in kinds(events)


def test_a_key_of_another_type_is_a_mistake(valkey: Server) -> None:
    """The key holds a list: a UsageError that says so."""
    valkey.client().rpush("menu:a", "x")
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="another type"):
            dibs.cached("menu:{name}", ttl=60)(Loader().load)("a")


@pytest.mark.parametrize("held_by", ["a lease", "a running claim", "a claim that is done"])
@pytest.mark.parametrize("stale", [0, 60])
def test_a_key_that_is_held_is_refused_and_not_touched(
    server: Server, held_by: str, stale: float
) -> None:
    """A lease or a claim has the key: UsageError for every verb; its value and life stay."""
    loader = Loader()
    with Dibs(server.url, budget=5) as dibs, Dibs(server.url, budget=5) as other:
        menu = other.cached("menu:{name}", ttl=60, stale=stale)(loader.load)
        if held_by == "a lease":
            assert dibs.try_hold("menu:a", ttl=30) is not None
        else:
            after = "replay" if held_by == "a claim that is done" else "hold"
            claiming = dibs.claim("menu:a", window=30, after=after, payload={"cart": 1})
            claim = claiming.__enter__()
            if held_by == "a claim that is done":
                claim.complete({"order": 17})
                claiming.__exit__(None, None, None)
        client = server.client()
        before = client.get("menu:a")
        for verb in (menu, menu.refresh, menu.invalidate):
            with pytest.raises(UsageError, match="holds this key"):
                verb("a")
        assert client.get("menu:a") == before
        assert 0 < client.pttl("menu:a") <= 30_050
        assert loader.loads == 0
        assert server.keys() == ["menu:a"]


def test_a_lease_that_was_taken_during_a_load_is_not_overwritten(server: Server) -> None:
    """The mark is deleted and the key held by a lease before the load ends: the lease stays."""
    loader = Loader(0.4)
    with Dibs(server.url, budget=5) as dibs, Dibs(server.url, budget=5) as other:
        loading = Background(dibs.cached("menu:{name}", ttl=60)(loader.load), "a")
        eventually(lambda: loader.loads == 1)
        server.client().delete("menu:a")
        lease = other.try_hold("menu:a", ttl=30)
        assert lease is not None
        assert (loading.result())["load"] == 1
        assert lease.release() is True


@pytest.mark.parametrize("life", [None, 60])
def test_a_lock_that_another_program_left_holds_nobody_up(
    valkey: Server, caplog: pytest.LogCaptureFixture, life: int | None
) -> None:
    """A load's lock ends or is renewed; this one may not be one: after `lock_ttl`, our own load."""
    events: list[Event] = []
    loader = Loader()
    valkey.client().set("lock:{menu:a}", b"1", ex=life)
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, lock_ttl=0.2)(loader.load)
        assert (menu("a"))["load"] == 1
        assert (menu("a"))["load"] == 2
    assert [event.cause for event in events if event.kind == "degraded"] == ["foreign_lock"] * 2
    said = [each.getMessage() for each in caplog.records if each.name == "dibs"]
    assert [each for each in said if each.startswith("menu:{name}: another program has the lock")]
    assert len(said) == 1
    assert valkey.client().get("lock:{menu:a}") == b"1"


def test_a_lock_with_a_ttl_of_another_program_is_respected(valkey: Server) -> None:
    """It may be a load in another language: its value is waited for."""
    loader = Loader()
    client = valkey.client()
    client.set("lock:{menu:a}", b"1", ex=60)
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, lock_ttl=30)(loader.load)
        call = Background(menu, "a")
        eventually(lambda: valkey.commands("pttl") > 0)
        menu.set("a", value={"name": "a", "load": 17})
        assert (call.result())["load"] == 17
    assert loader.loads == 0
