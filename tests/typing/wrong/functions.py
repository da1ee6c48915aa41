"""Decorated functions that are called, or written, in another way than they say."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session, sessionmaker

from dibs import AsyncDibs, Busy, Dibs

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")


@shop.exclusive("count:{shelf}", ttl=5)
def count(shelf: str, *, twice: bool = False) -> int:
    return len(shelf) * (2 if twice else 1)


@kitchen.exclusive("stir:{pot}", ttl=5)
async def stir(pot: str) -> float:
    return len(pot) / 2


@shop.once("order:{key}", window=60)
def order(key: str, cart: list[int]) -> int:
    return len(key) + sum(cart)


@shop.cached("menu:{branch}", ttl=60)
def menu(branch: str) -> dict[str, int]:
    return {branch: 1}


@kitchen.cached("soup:{day}", ttl=60)
async def soup(day: int) -> str:
    return "soup" * day


@shop.cached_many("dish:{names}", ttl=60)
def dishes(names: list[str]) -> dict[str, int]:
    return dict.fromkeys(names, 1)


class Shelf:
    name = "a"

    @shop.exclusive("shelf:{self.name}", ttl=5)
    def tidy(self, rows: int) -> str:
        return self.name * rows

    @shop.cached("stock:{self.name}:{dish}", ttl=60)
    def stock(self, dish: str) -> int:
        return len(dish)

    @kitchen.cached("queue:{self.name}:{day}", ttl=60)
    async def queue(self, day: int) -> list[str]:
        return [self.name] * day

    @shop.cached_many("rows:{self.name}:{numbers}", ttl=60)
    def rows(self, numbers: list[int]) -> dict[int, str]:
        return dict.fromkeys(numbers, self.name)

    @shop.cached("price:{dish}", ttl=60)
    @staticmethod
    def price(dish: str) -> int:
        return len(dish)


async def called(shelf: Shelf) -> None:
    count(3)  # wrong: text
    count()  # wrong: which shelf?
    count("a", True)  # wrong: options have names
    count("a", thrice=True)  # wrong: no such parameter
    count("a").upper()  # wrong: a number
    await count("a")  # wrong: nothing to await
    await stir(3)  # wrong: text
    print(stir("pot").real)  # wrong: await
    order("c7")  # wrong: which cart?
    order("c7", cart="tea")  # wrong: numbers
    menu(3)  # wrong: text
    menu("b1")["tea"].upper()  # wrong: a number
    menu.invalidate()  # wrong: which branch?
    menu.invalidate("b1", 3)  # wrong: one parameter
    menu.refresh(branch=3)  # wrong: text
    print(menu.peek("b1").value)  # wrong: may be None
    menu.set("b1", value=3)  # wrong: a dict
    menu.set("b1", {"tea": 1})  # wrong: `value=`
    menu.clear()  # wrong: `invalidate`
    await menu("b1")  # wrong: nothing to await
    soup(3).upper()  # wrong: await
    await soup("3")  # wrong: a number
    dishes("tea")  # wrong: a list
    dishes(["tea"])["tea"].upper()  # wrong: a number
    dishes.peek(["tea"])  # wrong: many have no peek
    shelf.tidy("3")  # wrong: a number
    shelf.tidy()  # wrong: how many?
    shelf.stock(3)  # wrong: text
    shelf.stock()  # wrong: of what?
    shelf.stock("tea", 3)  # wrong: one parameter
    shelf.stock("tea").upper()  # wrong: a number
    shelf.stock.invalidate(3)  # wrong: text
    shelf.stock.refresh()  # wrong: of what?
    await shelf.queue("3")  # wrong: a number
    (await shelf.queue(3)).upper()  # wrong: a list
    shelf.rows(["3"])  # wrong: numbers
    Shelf.price("tea").upper()  # wrong: a number


@kitchen.exclusive("pot", ttl=5)  # wrong: a plain function
def plain(pot: str) -> str:
    return pot


@kitchen.cached("pot", ttl=5)  # wrong: a plain function
def plain_load(pot: str) -> str:
    return pot


@kitchen.once("pot", window=5)  # wrong: a plain function
def plain_order(pot: str) -> str:
    return pot


@shop.exclusive("pot", ttl=5, busy=3)  # wrong: a function
def refused(pot: str) -> str:
    return pot


@shop.hold("pot", ttl=5)  # wrong: `exclusive` decorates
def held(pot: str) -> str:
    return pot


@shop.exclusive  # wrong: with a template
def bare(pot: str) -> str:
    return pot


@shop.scheduled("0 3 * * *")  # wrong: schedules have a key
def nightly() -> None:
    pass


@contextmanager
def text() -> Iterator[str]:
    yield "a"


def not_callable(error: str, pot: str) -> str:
    return error + pot


@shop.exclusive("pot:{pot}", ttl=5, busy=not_callable)  # wrong: it gets the error
def refuse(pot: str) -> str:
    return pot


def transactions(sessions: sessionmaker[Session]) -> None:
    @shop.once("order:{key}", window=60, within=sessions.begin)  # wrong: no session
    def without(key: str) -> int:
        return len(key)

    @shop.once("order:{key}", window=60, within=sessions)  # wrong: it begins nothing; unseen by all
    def unopened(session: Session, key: str) -> int:
        return len(key)

    @shop.once("order:{key}", window=60, within=text)  # wrong: the transaction is a text
    def other(session: Session, key: str) -> int:
        return len(key)

    @shop.once("order:{key}", window=60, within=text())  # wrong: what opens it
    def opened(session: str, key: str) -> int:
        return len(key)

    print(without, unopened, other, opened)


def in_place(error: Busy) -> str:
    return str(error)
