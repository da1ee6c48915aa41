"""Which values `cached` keeps, and as what they come back."""

from dataclasses import dataclass
from typing import Any

import pytest

from dibs import AsyncDibs, UsageError
from dibs.testing import Server

from .._tasks import eventually
from .loaders import Loader


@dataclass
class Dish:
    name: str
    price: int


async def test_none_is_a_value(server: Server) -> None:
    """A loader that returns None is not asked again."""
    loads = 0

    async def find(name: str) -> None:
        nonlocal loads
        loads += 1

    async with AsyncDibs(server.url, budget=5) as dibs:
        cached = dibs.cached("user:{name}", ttl=60)(find)
        for _ in range(3):
            assert await cached("nobody") is None
        assert loads == 1


async def test_types_come_back_as_they_went(valkey: Server) -> None:
    """The return annotation, or type=: dataclasses go in and come out."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.cached("dishes:{name}", ttl=60)
        async def dishes(name: str) -> list[Dish]:
            return [Dish(name, 120)]

        assert await dishes("noodles") == [Dish("noodles", 120)]
        assert await dishes("noodles") == [Dish("noodles", 120)]
        raw = valkey.client().get("dishes:noodles")
        assert isinstance(raw, bytes) and b'[{"name":"noodles","price":120}]' in raw


async def test_a_value_that_cannot_be_written_is_a_mistake(valkey: Server) -> None:
    """A set is not JSON: a UsageError that names the fix, and nothing is left behind."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def load() -> Any:
            return {1, 2}

        with pytest.raises(UsageError, match=r"^menu:\*: .*type= or codec="):
            await dibs.get_or_load("menu:a", load, ttl=60)
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)
        with pytest.raises(UsageError, match=r"^menu:\{name\}: "):
            await menu.set("a", value={"tea": {1, 2}})
        await eventually(lambda: valkey.keys() == [])


@pytest.mark.parametrize(
    "codec", ["orjson", "msgspec", "pickle", "json+zlib", "orjson+zlib", "pickle+zlib"]
)
async def test_other_codecs_by_name(valkey: Server, codec: str) -> None:
    """Pickle only where asked for by name; compression where asked for."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        value = {"a": [1, 2.5, None, "ü" * 500]}

        async def load() -> Any:
            return value

        for _ in range(2):
            assert await dibs.get_or_load("menu:a", load, ttl=60, codec=codec) == value


async def test_bytes_are_kept_as_they_are(valkey: Server) -> None:
    """codec="bytes": no base64, and nothing but bytes."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.cached("image:{name}", ttl=60, codec="bytes")
        async def image(name: str) -> bytes:
            return b"\x89PNG\n\x00" + name.encode()

        for _ in range(2):
            assert await image("a") == b"\x89PNG\n\x00a"
        assert valkey.client().get("image:a").endswith(b"\n\x89PNG\n\x00a")

        @dibs.cached("text:{name}", ttl=60, codec="bytes")
        async def text(name: str) -> Any:
            return name

        with pytest.raises(UsageError, match="keeps bytes, not str"):
            await text("a")
        with pytest.raises(UsageError, match="keeps bytes, not int"):

            @dibs.cached("number:{name}", ttl=60, codec="bytes", type=int)
            async def number(name: str) -> int:
                return 1
