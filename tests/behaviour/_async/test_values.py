"""What comes back from the store, and under which key: the same value, and never another one."""

import datetime
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from dibs import AsyncDibs, Duplicate, Event, Mismatch, UsageError
from dibs.testing import Server

from .._tasks import eventually

NOWHERE = "redis://127.0.0.1:1"
DAY = datetime.date(2026, 1, 2)


class Size(Enum):
    LARGE = "l"


@dataclass
class Accepted:
    number: int


@dataclass
class Rejected:
    number: int
    reason: str


class User:
    def __init__(self, ident: int) -> None:
        self.id = ident


class Unreadable:
    """A codec that writes what it cannot read."""

    name, fingerprint = "unreadable", "-"

    def encode(self, value: Any) -> bytes:
        return b"x"

    def decode(self, data: bytes) -> Any:
        raise LookupError("no such page")


# ---- values


async def test_a_rejected_payment_is_replayed_as_rejected(server: Server) -> None:
    """The member of a union that the first caller got is what a duplicate gets."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:

        def decorated(dibs: AsyncDibs) -> Any:
            @dibs.once("payment:{number}", window=60, after="replay")
            async def pay(number: int) -> Accepted | Rejected:
                return Rejected(number, "no money") if number == 1 else Accepted(number)

            return pay

        for number, result in ((1, Rejected(1, "no money")), (2, Accepted(2))):
            assert await decorated(one)(number) == result
            assert await decorated(one)(number) == await decorated(two)(number) == result


async def test_every_reader_of_a_cached_value_gets_it_with_its_type(valkey: Server) -> None:
    """The one who loads, those who read, another process: keys of dicts, unions, bytes."""
    values: list[tuple[Any, Any]] = [
        (Accepted | Rejected, Rejected(1, "no money")),
        (dict[int, str], {1: "a", 2: "b"}),
        (dict[Size, float], {Size.LARGE: 1.5}),
        (Decimal | str, "12"),
        (Decimal | str, Decimal("12")),
        (bytes, b"\x89PNG\r\n\x00\xff"),
        (tuple[datetime.date, ...] | None, (DAY,)),
    ]
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as one:
        async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as two:
            for number, (of, value) in enumerate(values):

                async def load(value: Any = value) -> Any:
                    return value

                for dibs in (one, one, two):
                    found = await dibs.get_or_load(f"value:{number}", load, ttl=60, type=of)
                    assert found == value and type(found) is type(value)
    assert [event.kind for event in events if event.kind in ("poison", "loaded")] == [
        "loaded"
    ] * len(values)


async def test_bytes_are_cached_and_replayed(server: Server) -> None:
    """`-> bytes` needs no codec: in JSON they are base64."""
    picture = b"\x89PNG\r\n\x00\xff"
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:

        def decorated(dibs: AsyncDibs) -> tuple[Any, Any]:
            async def draw(n: int) -> bytes:
                return picture

            once = dibs.once("drawn:{n}", window=60, after="replay")(draw)
            return dibs.cached("picture:{n}", ttl=60)(draw), once

        for draw in (*decorated(one), *decorated(two)):
            assert await draw(1) == await draw(1) == picture


async def test_what_would_not_come_back_is_not_stored(server: Server) -> None:
    """UsageError for the caller, and nothing stays: no poison for the next one."""
    bad: list[tuple[dict[str, Any], Any]] = [
        ({"type": Rejected}, Rejected(1, None)),  # type: ignore[arg-type]
        ({"type": Rejected}, Rejected(1.5, "x")),  # type: ignore[arg-type]
        ({"type": dict[int, str]}, {"1": "a"}),
        ({"type": dict[Size, str]}, {"l": "a"}),
        ({"type": list[datetime.date]}, [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)]),
        ({}, {1: "a"}),
        ({}, {"a": {None: 1}}),
        ({}, b"a"),
        ({"codec": Unreadable()}, "a"),
        ({"codec": "pickle"}, lambda: None),
    ]
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        for options, value in bad:

            async def load(value: Any = value) -> Any:
                return value

            with pytest.raises(UsageError, match=r"the loaded value|cannot encode"):
                await dibs.get_or_load("value:1", load, ttl=60, **options)
            await eventually(lambda: server.keys() == [])
    assert {event.kind for event in events} <= {"miss", "loaded", "degraded"}


async def test_a_type_that_cannot_be_kept_is_refused_when_decorating() -> None:
    """Before the work is done; a codec that knows better is not asked."""

    async def connect(n: int) -> User | None: ...

    async with AsyncDibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="a User has no representation in JSON"):
            dibs.once("user:{n}", window=60, after="replay")(connect)
        with pytest.raises(UsageError, match="a User has no representation in JSON"):
            dibs.cached("user:{n}", ttl=60)(connect)
        with pytest.raises(UsageError, match="a User has no representation in JSON"):
            dibs.claim("user:1", window=60, after="replay", type=User)
        dibs.cached("user:{n}", ttl=60, codec="pickle")(connect)
        dibs.once("user:{n}", window=60, after="hold")(connect)


# ---- keys


async def test_an_object_is_no_key() -> None:
    """Its address would be: UsageError before anything is sent, which names the fix."""

    async def work(user: Any) -> int:
        return 1

    async with AsyncDibs(NOWHERE, on_outage="closed") as dibs:
        for decorated in (
            dibs.exclusive("charge:{user}", ttl=5)(work),
            dibs.once("charge:{user}", window=5)(work),
            dibs.cached("charge:{user}", ttl=5)(work),
        ):
            for value in (User(1), {"id": 1}, {1, 2}, [1], work):
                with pytest.raises(UsageError, match=r"\{user\.id\} or \{user:hash\}"):
                    await decorated(value)


async def test_the_hash_of_a_field_is_the_same_for_equal_data(server: Server) -> None:
    """A dict in another order is the same submission; None and long texts have their own keys."""
    calls: list[Any] = []
    async with AsyncDibs(server.url, budget=5) as dibs:

        @dibs.once("pay:{order:hash}", window=60, after="hold")
        async def pay(order: Any) -> None:
            calls.append(order)

        await pay({"id": 1, "items": {"tea", "rice"}})
        with pytest.raises(Duplicate):
            await pay({"items": {"rice", "tea"}, "id": 1})
        for order in (None, "", "x" * 5000, {"id": 2}, "tea }", [1], "1", 1):
            await pay(order)
        assert len(calls) == len(server.keys()) == 9


async def test_one_tenant_never_gets_what_is_anothers(server: Server) -> None:
    """A colon in a field is not the separator of the template."""
    async with AsyncDibs(server.url, budget=5) as dibs:

        @dibs.cached("profile:{tenant}:{user}", ttl=60)
        async def profile(tenant: str, user: str) -> str:
            return f"{user} of {tenant}"

        assert await profile("a", "b:c") == "b:c of a"
        assert await profile("a:b", "c") == "c of a:b"
        assert await profile("a", "b") == "b of a"
        assert sorted(server.keys()) == ["profile:a%3Ab:c", "profile:a:b", "profile:a:b:c"]


@pytest.mark.parametrize("text", ["tea }", "{tea", "{}", "{tea}", "}{", "%7D", "茶 }"])
async def test_whatever_a_visitor_types_is_a_key(server: Server, text: str) -> None:
    """Braces are no error, as a field, as a part of a key, with a fence."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        loads = 0

        async def search(q: str = text) -> str:
            nonlocal loads
            loads += 1
            return f"found {q}"

        found = dibs.cached("search:{q}", ttl=60)(search)
        for _ in range(2):
            assert await found(text) == f"found {text}"
            assert await dibs.get_or_load(f"raw:{text}", search, ttl=60) == f"found {text}"
        assert loads == 2
        async with dibs.hold(f"lock:{text}", ttl=5, fence=True) as lease:
            assert lease.fence
        exclusive = dibs.exclusive("sync:{q}", ttl=5, fence=True)(search)
        assert await exclusive(text) == f"found {text}"


async def test_bytes_are_another_payload_than_what_they_look_like(server: Server) -> None:
    """b"1" is not 1: Mismatch."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="hold", payload=b"1"):
            pass
        for payload in (1, "1", [b"1"], b"2"):
            with pytest.raises(Mismatch):
                async with dibs.claim("order:1", window=60, payload=payload):
                    raise AssertionError("unreachable")
        with pytest.raises(Duplicate):
            async with dibs.claim("order:1", window=60, payload=b"1"):
                raise AssertionError("unreachable")


async def test_a_namespace_has_a_whole_tag_or_none(server: Server) -> None:
    """A lone brace in it would put a value and its lock into different slots of a cluster."""
    for namespace in ("{shop:", "{}", 7):
        with pytest.raises(UsageError, match="namespace"):
            AsyncDibs(NOWHERE, namespace=namespace)  # type: ignore[arg-type]

    async def load() -> int:
        return 1

    for namespace in ("{shop}:", "a}b:"):
        async with AsyncDibs(server.url, budget=5, namespace=namespace) as dibs:
            assert await dibs.get_or_load("tea }", load, ttl=60) == 1
