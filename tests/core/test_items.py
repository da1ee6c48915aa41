"""The items of a call for many values: which argument they are, and the key of each."""

from typing import Any

import pytest

from dibs import UsageError
from dibs._core.cache import ItemTemplate


class Shop:
    """A method's list is the first parameter after `self`."""

    city = "tainan"

    def prices(self, items: list[str], currency: str = "TWD") -> dict[str, int]:
        """Nothing."""
        return {}


def menus(branch_ids: list[str], *, day: str = "mon") -> dict[str, int]:
    """Nothing."""
    return {}


def test_the_field_that_is_no_parameter_is_the_item() -> None:
    """All others are filled from the call's arguments."""
    template = ItemTemplate("menu:{day}:{branch_id}", menus)
    args: Any = (["b1", "b2"],)
    assert template.items(args, {}) == ["b1", "b2"]
    assert template.key("b1", args, {}) == "menu:mon:b1"
    assert template.key("b1", (), {"branch_ids": [], "day": "tue"}) == "menu:tue:b1"
    assert template.arguments(["b2"], args, {"day": "x"}) == ((["b2"],), {"day": "x"})
    assert template.arguments(["b2"], (), {"branch_ids": []}) == ((), {"branch_ids": ["b2"]})
    assert template.for_items("all:{day}")(*template.of_item("b1", args, {})) == "all:mon"


def test_what_is_wrong_is_said_of_the_function_that_was_decorated() -> None:
    """Not of the one for a single item, which does not exist."""
    with pytest.raises(UsageError, match=r"menus\(\)"):
        ItemTemplate("menu:{branch_id}", menus).for_items("{no_field}")


def test_a_method_has_its_list_after_self() -> None:
    """`self` is an argument like any other."""
    template = ItemTemplate("price:{self.city}:{currency}:{item}", Shop.prices)
    shop = Shop()
    assert template.items((shop, iter("ab")), {}) == ["a", "b"]
    assert template.key("tea", (shop, []), {}) == "price:tainan:TWD:tea"


@pytest.mark.parametrize("text", ["menu:{branch_ids}", "menu:{day}", "menu:{a}:{b}", "menu"])
def test_exactly_one_field_stands_for_the_item(text: str) -> None:
    """Not the list itself, not none, not two."""
    with pytest.raises(UsageError, match="item"):
        ItemTemplate(text, menus)


def test_the_items_are_one_list_and_not_many_arguments() -> None:
    """An error when it is decorated, which says what to write."""

    def names(*ids: int) -> dict[int, str]:
        return {each: str(each) for each in ids}

    with pytest.raises(UsageError, match=r"must be the list of items, not \*ids"):
        ItemTemplate("name:{id}", names)
    with pytest.raises(UsageError, match=r"not \*\*ids"):
        ItemTemplate("name:{id}", lambda **ids: ids)


def test_a_function_of_nothing_has_no_items() -> None:
    """An error when it is decorated; a call without the list gets the error that Python raises."""
    with pytest.raises(UsageError, match="no parameter"):
        ItemTemplate("menu:{x}", lambda: 0)
    with pytest.raises(TypeError, match="missing"):
        ItemTemplate("menu:{x}", menus).items((), {})
    with pytest.raises(UsageError, match="list of items"):
        ItemTemplate("menu:{x}", menus).items(("abc",), {})
