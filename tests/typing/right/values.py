"""Programs with cached values that every checker must accept."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, Protocol, TypedDict, TypeVar, assert_type

from pydantic import BaseModel

from dibs import AsyncDibs, Dibs

T = TypeVar("T")
shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")


class Dish(BaseModel):
    name: str
    price: int


class Order(TypedDict):
    number: int
    dishes: list[str]


@dataclass
class Place:
    city: str


class Gone(Exception):
    """The source has no such thing."""


# ---- a function, and what stands beside it
@shop.cached("menu:{branch}", ttl=180, jitter=0.1, stale=timedelta(minutes=10))
def menu(branch: str, *, season: str = "winter") -> list[Dish]:
    return [Dish(name=branch, price=len(season))]


def read_menu() -> list[Dish]:
    assert_type(menu("b1", season="summer"), list[Dish])
    found = menu.peek("b1")
    menu.set("b1", value=[])
    assert_type(menu.invalidate("b1"), bool)
    return menu.refresh("b1") if found is None else found.value


# ---- the same for asyncio
@kitchen.cached("soup:{day}", ttl=60, local=True, codec="msgspec", type=Order)
async def soup(day: int) -> Order:
    return {"number": day, "dishes": []}


async def read_soup() -> Order:
    found = await soup.peek(3)
    if found is not None:
        assert_type(found.value, Order)
        return found.value
    await soup.invalidate(3)
    return await soup(3)


# ---- methods know their parameters
class Repository:
    city = "Tainan"

    @shop.cached("stock:{self.city}:{dish}", ttl=60)
    def stock(self, dish: str, /, least: int = 0) -> int:
        return max(len(dish), least)

    @kitchen.cached("queue:{self.city}", ttl=5)
    async def queue(self) -> list[str]:
        return []

    async def read(self) -> int:
        assert_type(self.stock("tea", least=3), int)
        self.stock.invalidate("tea")
        assert_type(await self.queue(), list[str])
        return self.stock("tea")


class Branch(Repository):
    pass


def read_branch(branch: Branch) -> int:
    return branch.stock("tea") + branch.stock.refresh("tea", 2)


# ---- static methods and class methods, called through the class and through an object
class Prices:
    @shop.cached("price:{dish}", ttl=60)
    @staticmethod
    def of(dish: str) -> int:
        return len(dish)

    @shop.cached("all-prices:{city}", ttl=60)
    @classmethod
    def everywhere(cls, city: str) -> dict[str, int]:
        return {city: 1}


def read_prices(prices: Prices) -> int:
    Prices.of.invalidate("tea")
    assert_type(Prices.everywhere("Tainan"), dict[str, int])
    assert_type(prices.everywhere("Tainan"), dict[str, int])
    return Prices.of("tea") + prices.of("tea")


# ---- a static method whose parameter might be the object through which it is called
class Names:
    @shop.cached("name:{thing}", ttl=60)
    @staticmethod
    def of(thing: object) -> str:
        return str(thing)


def read_names(names: Names) -> str:
    return Names.of(3) + names.of(3)  # rejected by all


# ---- a protocol that a class with cached methods has
class Stocks(Protocol):
    def stock(self, dish: str, /, least: int = 0) -> int: ...


def sell(stocks: Stocks) -> int:
    return stocks.stock("tea")


sell(Repository())  # rejected by basedpyright, pyright


# ---- methods of a generic class
class Box(Generic[T]):
    def __init__(self, content: T) -> None:
        self.content = content

    @shop.cached("box:{key}", ttl=60, codec="pickle")
    def get(self, key: str) -> T:
        return self.content


def unpack(box: Box[Place]) -> str:
    return box.get("a").city


# ---- many items at once
@shop.cached_many("dish:{names}", ttl=60, tags=["dishes"])
def dishes(names: Sequence[str]) -> dict[str, Dish]:
    return {name: Dish(name=name, price=1) for name in names}


class Pantry:
    @kitchen.cached_many("jar:{numbers}", ttl=60)
    async def jars(self, numbers: list[int]) -> dict[int, str]:
        return dict.fromkeys(numbers, "jam")

    async def read(self) -> str:
        return (await self.jars([1, 2]))[1]


def read_dishes() -> int:
    assert_type(dishes(["a", "b"]), dict[str, Dish])
    return sum(each.price for each in dishes(["a", "b"]).values())


# ---- a value by its key
async def by_key(key: str) -> Place:
    async def load() -> Place:
        return Place("Tainan")

    assert_type(shop.get_or_load("place", str, ttl=5), str)
    return await kitchen.get_or_load(f"place:{key}", load, ttl=60, type=Place, tags=["places"])


# ---- failures that are remembered, and results that are not kept
@shop.cached("user:{user}", ttl=60, negative_ttl={Gone: 30}, keep=lambda user: bool(user), wait=2)
def user(user: str) -> str | None:
    return user or None


# ---- no value is a value
def greet(name: str) -> str:
    found = user(name)
    return "nobody" if found is None else found.upper()


# ---- exclusive and once above cached
@shop.exclusive("report:{month}", ttl=5)
@shop.cached("report:{month}", ttl=60)
def report(month: int) -> bytes:
    return bytes(month)


assert_type(report(3), bytes)
