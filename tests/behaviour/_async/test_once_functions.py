"""Functions decorated with `once`: keys, payloads, types, options."""

from dataclasses import dataclass
from typing import Any

import pytest

from dibs import AsyncDibs, Duplicate, Event, Mismatch, UsageError
from dibs.testing import Server

from .submissions import NOWHERE, Order

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


@dataclass
class Cart:
    id: int
    items: list[str]
    total: float = 0.0


async def test_a_decorated_function_is_replayed_with_its_type(server: Server) -> None:
    """The return annotation decides what a duplicate gets; the first caller gets the original."""
    runs = 0

    def decorated(dibs: AsyncDibs) -> Any:
        @dibs.once("order:{cart.id}", window=60, after="replay")
        async def order(cart: Cart) -> Order | None:
            nonlocal runs
            runs += 1
            return Order(17, ("tea", "rice")) if cart.items else None

        return order

    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        for cart in (Cart(1, ["tea"]), Cart(2, [])):
            first = await decorated(one)(cart)
            assert await decorated(one)(cart) == await decorated(two)(cart) == first
        assert runs == 2


async def test_key_and_payload_are_frozen_at_entry(valkey: Server) -> None:
    """What the function does to its arguments changes neither: the original submission is done."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart.id}", window=60, after="replay", payload=("cart.items", "note"))
        async def order(cart: Cart, note: str | None = None) -> int:
            cart.id += 1
            cart.items.append("a surprise")
            return cart.id

        assert await order(Cart(7, ["tea"])) == 8
        assert valkey.keys() == ["order:7"]
        assert await order(Cart(7, ["tea"])) == 8
        with pytest.raises(Mismatch):
            await order(Cart(7, ["tea", "a surprise"]))
        with pytest.raises(Mismatch):
            await order(Cart(7, ["tea"]), "and quickly")


async def test_one_submission_for_each_key(valkey: Server) -> None:
    """The template is filled from the arguments; another cart is another key."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{user}:{cart.id}", window=60, after="hold", message="one moment, please")
        async def order(user: str, cart: Cart, *, urgent: bool = False) -> list[str]:
            """Docs."""
            return valkey.keys()

        assert await order("ann", Cart(7, [])) == ["order:ann:7"]
        with pytest.raises(Duplicate, match="one moment, please") as caught:
            await order(cart=Cart(7, ["tea"]), user="ann", urgent=True)
        assert caught.value.name == "order:{user}:{cart.id}"
        assert await order("bob", Cart(7, [])) == ["order:ann:7", "order:bob:7"]
        assert order.__name__ == "order" and order.__doc__ == "Docs."


async def test_methods_can_be_decorated(valkey: Server) -> None:
    """`self` is an argument like any other; payload paths go through attributes and mappings."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        class Shop:
            def __init__(self, city: str) -> None:
                self.city = city

            @dibs.once("pay:{self.city}:{number}", window=60, after="hold", payload="form.total")
            async def pay(self, number: int, form: dict[str, Any]) -> str:
                return self.city

        tainan, taipei = Shop("tainan"), Shop("taipei")
        assert await tainan.pay(1, {"total": 35, "note": "a"}) == "tainan"
        assert await taipei.pay(1, {"total": 35}) == "taipei"
        with pytest.raises(Duplicate):
            await tainan.pay(1, {"total": 35, "note": "b"})
        with pytest.raises(Mismatch):
            await tainan.pay(1, {"total": 36, "note": "a"})


async def test_a_decorated_function_raises_what_it_raises(valkey: Server) -> None:
    """Its own Duplicate is its own, and on_error decides what stays."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{n}", window=60, after="hold", on_error="hold")
        async def order(n: int) -> None:
            raise Duplicate("inner:1", 3.0, "running")

        for state in ("running", "done"):
            with pytest.raises(Duplicate) as caught:
                await order(1)
            assert caught.value.state == state
        assert valkey.keys() == ["order:1"]


async def test_a_type_that_is_never_kept_need_not_be_understood(valkey: Server) -> None:
    """Only a replay needs the return annotation: it says so when decorating, the others pass."""

    @dataclass
    class Node:
        children: "list[Leaf]"  # a name that cannot be resolved from here

    @dataclass
    class Leaf:
        pass

    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def grow(n: int) -> Node:
            return Node([])

        for after in ("release", "hold"):
            assert await dibs.once("node:{n}", window=60, after=after)(grow)(1) == Node([])
        with pytest.raises(UsageError, match="is not supported"):
            dibs.once("node:{n}", window=60, after="replay")(grow)


async def test_bad_options_are_told_before_any_io() -> None:
    """UsageError that names the option, when decorating or calling claim(); nothing connects."""
    events: list[Event] = []
    bad: list[tuple[str, dict[str, Any]]] = [
        ("window", {"window": 0}),
        ("window", {"window": -1}),
        ("window", {"window": "10"}),
        ("window", {"window": float("nan")}),
        ("lease", {"lease": 0}),
        ("lease", {"lease": True}),
        ("after", {"after": "keep"}),
        ("after", {"after": ["hold"]}),
        ("on_error", {"on_error": "replay"}),
        ("codec", {"codec": "xml"}),
        ("codec", {"codec": object()}),
        ("on_outage", {"on_outage": "ajar"}),
    ]
    async with AsyncDibs(NOWHERE, listeners=[events.append]) as dibs:
        for word, options in bad:
            options = {"window": 60, **options}
            with pytest.raises(UsageError, match=word):
                dibs.claim("order:1", **options)
            with pytest.raises(UsageError, match=word):
                dibs.once("order:{n}", **options)
        for key in ("", None, 7, "x" * 2000, "order:\ud800"):
            with pytest.raises(UsageError, match="key"):
                dibs.claim(key, window=60)  # type: ignore[arg-type]
        for payload in (object(), open, [{"request": Exception}]):
            with pytest.raises(UsageError, match="payload must be data"):
                dibs.claim("order:1", window=60, payload=payload)
        for paths in (5, None, [7], b"cart", ["cart", None]):
            with pytest.raises(UsageError, match="payload"):
                dibs.once("order:{n}", window=60, payload=paths)  # type: ignore[arg-type]
    assert events == []


async def test_functions_that_cannot_be_decorated() -> None:
    """Missing fields and wrong kinds of functions: UsageError when decorating."""
    async with AsyncDibs(NOWHERE) as dibs:

        async def order(cart: Cart) -> None:
            pytest.fail("ran without a key")

        async def generator(cart: Cart) -> Any:
            yield cart

        for template in ("order:{user}", "order:{0}", "order:{}", "order:{cart", "", "a:{cart!r}"):
            with pytest.raises(UsageError):
                dibs.once(template, window=60)(order)
        for payload in ("items", ["cart.id", "user.id"], ""):
            with pytest.raises(UsageError, match="no parameter"):
                dibs.once("order:{cart.id}", window=60, payload=payload)(order)
        wrong: list[Any] = [generator, classmethod(order), 5, None]
        for function in wrong:
            said = "use streamed" if function is generator else "wraps"
            with pytest.raises(UsageError, match=said):
                dibs.once("order:1", window=60)(function)


async def test_calls_that_lack_a_field() -> None:
    """A field of the key or of the payload is missing, or is not data: UsageError, before I/O."""
    events: list[Event] = []
    async with AsyncDibs(NOWHERE, listeners=[events.append]) as dibs:

        @dibs.once("order:{cart.id}", window=60, payload=["cart.total", "form.user.name"])
        async def order(cart: Any, form: Any) -> None:
            pytest.fail("ran without a key")

        form = {"user": {"name": "ann"}}
        for cart in (object(), Cart(None, []), Cart("", [])):  # type: ignore[arg-type]
            with pytest.raises(UsageError, match=r"cart\.id"):
                await order(cart, form)
        for lacking in ({}, {"user": {}}, {"user": None}, None):
            with pytest.raises(UsageError, match="payload"):
                await order(Cart(7, []), lacking)
        with pytest.raises(UsageError, match="payload must be data"):
            await order(Cart(7, []), {"user": {"name": object()}})
        with pytest.raises(TypeError):
            await order(Cart(7, []))  # type: ignore[call-arg]
    assert events == []


async def test_a_template_without_a_field_is_refused_for_replays(valkey: Server) -> None:
    """Bob would get Ann's receipt. Where no result is handed out, one key for all is a choice."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def receipt(user: str) -> str:
            return f"receipt of {user}"

        with pytest.raises(UsageError, match="has no field"):
            dibs.once("receipt", window=60, after="replay")(receipt)
        shared = dibs.once("receipt", window=60, after="replay", ignore="user")(receipt)
        assert [await shared("ann"), await shared("bob")] == ["receipt of ann"] * 2
        held = dibs.once("held", window=60, after="hold")(receipt)
        assert await held("ann") == "receipt of ann"
        with pytest.raises(Duplicate):
            await held("bob")
        with pytest.raises(UsageError, match="no parameter 'cart'"):
            dibs.once("held", window=60, ignore=("cart",))(receipt)
