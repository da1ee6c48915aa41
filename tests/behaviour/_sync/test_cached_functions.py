# Generated from tests/behaviour/_async/test_cached_functions.py by unasync.py – do not edit.
"""What can be decorated with `cached`, and what is refused when decorating."""

import copy
import inspect
import pickle

import pytest

from dibs import Dibs, UsageError
from dibs.testing import Server

from .loaders import Loader


def test_methods_can_be_cached(valkey: Server) -> None:
    """`self` is an argument like any other."""
    with Dibs(valkey.url, budget=5) as dibs:

        class Store:
            def __init__(self, city: str) -> None:
                self.city = city
                self.loads = 0

            @dibs.cached("store:{self.city}:{item}", ttl=60)
            def find(self, item: str) -> str:
                self.loads += 1
                return f"{item} in {self.city}"

        taipei, tainan = Store("taipei"), Store("tainan")
        for _ in range(2):
            assert taipei.find("tea") == "tea in taipei"
            assert tainan.find("tea") == "tea in tainan"
        assert (taipei.loads, tainan.loads) == (1, 1)
        assert taipei.find.invalidate("tea")
        assert taipei.find("tea") and taipei.loads == 2


def test_mistakes_are_told_when_decorating_with_cached() -> None:
    """Options that make no sense: UsageError before any call."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        for options in (
            {"ttl": 0},
            {"ttl": 60, "jitter": 1},
            {"ttl": 60, "jitter": -0.1},
            {"ttl": 60, "early": -1},
            {"ttl": 60, "lock_ttl": 0},
            {"ttl": 60, "stale": -1},
            {"ttl": 60, "codec": "yaml"},
            {"ttl": 60, "codec": "json+brotli"},
            {"ttl": 60, "codec": object()},
            {"ttl": 60, "on_outage": "maybe"},
        ):
            with pytest.raises(UsageError):
                dibs.cached("menu:{name}", **options)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            dibs.cached("menu:{nobody}", ttl=60)(Loader().load)
        for verb in (dibs.cached, dibs.cached_many):
            with pytest.raises(UsageError, match="the key template is the first argument"):
                verb(ttl=60, key="menu:{name}")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected keyword argument 'expire'"):
            dibs.cached("menu:{name}", ttl=60, expire=3)  # type: ignore[call-arg]


def test_class_and_static_methods_can_be_cached(valkey: Server) -> None:
    """`cached` above `classmethod` or `staticmethod`: all verbs know the class."""
    with Dibs(valkey.url, budget=5) as dibs:

        class Store:
            city = "taipei"
            loads = 0

            @dibs.cached("store:{cls.city}:{item}", ttl=60)
            @classmethod
            def find(cls, item: str) -> str:
                Store.loads += 1
                return f"{item} in {cls.city}"

            @dibs.cached("price:{item}", ttl=60)
            @staticmethod
            def price(item: str) -> int:
                return 35

        class Other(Store):
            city = "tainan"

        for _ in range(2):
            assert Store.find("tea") == Store().find("tea") == "tea in taipei"
            assert Other.find("tea") == "tea in tainan"
            assert Store.price("tea") == Store().price("tea") == 35
        assert Store.loads == 2
        assert Other.find.invalidate("tea")
        assert Other.find("tea") and Store.loads == 3
        assert Store.find.refresh("tea") and Store.loads == 4
        assert Store.price.invalidate("tea")


def test_a_class_method_above_cached(valkey: Server) -> None:
    """`classmethod` above `cached`: where the key does not need the class, invalidate finds it."""
    with Dibs(valkey.url, budget=5) as dibs:

        class Store:
            loads = 0

            @classmethod
            @dibs.cached("store:{item}", ttl=60)
            def find(cls, item: str) -> str:
                Store.loads += 1
                return item

        assert Store.find("tea") == "tea"
        assert Store.find.invalidate("tea")
        assert Store.find("tea") == "tea" and Store.loads == 2


def test_exclusive_and_once_above_cached(valkey: Server) -> None:
    """A cached function is a function: other decorators can be put above it."""
    with Dibs(valkey.url, budget=5) as dibs:
        loader = Loader()
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        held = dibs.exclusive("load:{name}", ttl=5)(menu)
        submitted = dibs.once("order:{name}", window=5)(menu)
        assert held("a") == submitted("a") == {"name": "a", "load": 1}


def test_a_cached_function_shows_what_it_wraps() -> None:
    """Its name, its docstring and the attributes that other decorators gave it."""
    with Dibs("redis://127.0.0.1:1") as dibs:

        def menu(branch: str) -> str:
            """What a branch sells."""
            return branch

        menu.__dict__["required_role"] = "clerk"
        cached = dibs.cached("menu:{branch}", ttl=60)(menu)
        shown = vars(cached)
        assert (shown["__name__"], shown["__doc__"]) == ("menu", "What a branch sells.")
        assert shown["required_role"] == "clerk" and shown["__wrapped__"] is menu


def test_a_template_that_forgets_the_arguments_is_refused(valkey: Server) -> None:
    """One caller would get another's data; `ignore` says that it is meant."""
    with Dibs(valkey.url, budget=5) as dibs:

        def price(item: str) -> str:
            return item

        item = "tea"
        for template in ("price", f"price:{item}"):
            with pytest.raises(UsageError, match="has no field"):
                dibs.cached(template, ttl=60)(price)
        with pytest.raises(UsageError, match="exactly one field"):
            dibs.cached_many("price", ttl=60)(price)
        shared = dibs.cached("price", ttl=60, ignore=("item",))(price)
        assert [shared("tea"), shared("coffee")] == ["tea", "tea"]

        class Shop:
            @dibs.cached("menu", ttl=60)
            def menu(self) -> str:
                return "tea"

            @classmethod
            @dibs.cached("names", ttl=60)
            def names(cls) -> str:
                return cls.__name__

        assert Shop().menu() == "tea" and Shop.names() == "Shop"


class Shop:
    """Its methods are cached by a client that never connects."""

    city = "Tainan"

    nowhere = Dibs("redis://127.0.0.1:1")

    @nowhere.cached("menu:{branch}", ttl=60)
    def menu(self, branch: str) -> str:
        return branch

    @nowhere.cached_many("price:{item}", ttl=60)
    def prices(self, items: list[str]) -> dict[str, str]:
        return dict(zip(items, items, strict=True))


def test_a_function_is_pickled_by_its_name() -> None:
    """A job queue or another process finds it there; a method goes with its object."""
    for function in (Shop.menu, Shop.prices):
        assert pickle.loads(pickle.dumps(function)) is function
        assert copy.deepcopy(function) is function
    shop = Shop()
    shop.city = "Taipei"
    for bound in (shop.menu, shop.prices):
        again = pickle.loads(pickle.dumps(bound))
        assert again._bound[0].city == "Taipei"
        assert copy.deepcopy(bound)._bound[0] is not shop


def test_a_bound_method_is_one() -> None:
    """Frameworks see its parameters, without self, and that it is the same one."""
    shop = Shop()
    assert list(inspect.signature(shop.menu).parameters) == ["branch"]
    assert list(inspect.signature(shop.prices).parameters) == ["items"]
    assert list(inspect.signature(Shop.menu).parameters) == ["self", "branch"]
    assert shop.menu == shop.menu
    assert hash(shop.prices) == hash(shop.prices)
    assert shop.menu != Shop().menu
    assert shop.menu != Shop.menu
    assert shop.menu != shop.prices
