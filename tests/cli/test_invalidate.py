"""`dibs invalidate`: a cached value is loaded again; nothing else is touched."""

from tests.cli.conftest import Shop
from tests.cli.program import run

ENV = {"DIBS_NAMESPACE": "shop:"}


def load(shop: Shop) -> str:
    return shop.dibs.get_or_load("menu:b1", lambda: "salad", ttl=100, tags=["branch:7"])


def test_a_value_is_loaded_anew_after_its_key_was_named(shop: Shop) -> None:
    """The second time there is nothing to delete: exit code 1."""
    assert load(shop) == "soup"
    done = run(shop.url, "invalidate", "menu:b1", env=ENV)
    assert done.code == 0 and "deleted" in done.out
    again = run(shop.url, "invalidate", "menu:b1", "--json", env=ENV)
    assert again.code == 1 and again.json == {"deleted": {"menu:b1": False}, "tags": []}
    assert load(shop) == "salad"


def test_all_values_with_a_tag_are_outdated(shop: Shop) -> None:
    """By one command."""
    done = run(shop.url, "invalidate", "--tag", "branch:7", env=ENV)
    assert done.code == 0 and load(shop) == "salad"


def test_of_several_keys_none_is_deleted_if_one_of_them_is_no_value(shop: Shop) -> None:
    """Otherwise it would be unclear which were deleted: the command ends with a message about that
    one."""
    done = run(shop.url, "invalidate", "menu:b1", "job:nightly", "--tag", "branch:7", env=ENV)
    assert done.code == 2 and "job:nightly" in done.err and load(shop) == "soup"


def test_a_lease_is_not_deleted(shop: Shop) -> None:
    """Nor is a key that was forgotten."""
    done = run(shop.url, "invalidate", "job:nightly", env=ENV)
    assert done.code == 2 and "lease" in done.err and shop.dibs.peek("job:nightly")
    assert run(shop.url, "invalidate", env=ENV).code == 2
