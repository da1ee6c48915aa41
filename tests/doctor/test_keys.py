"""Keys of others in the database: a bounded look at them, which keeps and prints none."""

import pytest

from dibs import Dibs
from dibs.doctor.gatherers import MOST, namespace_in
from dibs.doctor.report import ReportStyle, as_text
from dibs.testing import Server

from .examining import examine, look


@pytest.mark.parametrize(
    ("key", "namespace"),
    [
        (b"lock:{menu:1}", b""),
        (b"shop:lock:{shop:menu:1}", b"shop:"),
        (b"shop:fence:shop:cart:{42}:lock", b"shop:"),
        (b"shop:once:0123456789abcdef0123456789abcdef", b"shop:"),
        (b"shop:scheduled-last:report", b"shop:"),
        (b"{shop}:scheduled-last:report", b"{shop}:"),
        (b"shop:fence:shop:scheduled:{shop:scheduled-last:report}", b"shop:"),
        (b"shop:scheduled:{shop:scheduled-last:report}", None),
        (b"runs:{scheduled-last:report}", None),
        (b"user:42", None),
        (b"lock:user:42", None),
        (b"", None),
        (b"\xff\xfe\n", None),
    ],
)
def test_companion_keys_show_the_namespace(key: bytes, namespace: bytes | None) -> None:
    """Other keys say nothing about it."""
    assert namespace_in(key) == namespace


def fill(url: str, namespace: str) -> None:
    """A fence and a cached value of an application."""
    with Dibs(url, namespace=namespace, budget=5) as dibs:
        with dibs.hold("job:1", ttl=50, fence=True):
            pass


def test_an_application_without_a_namespace_beside_others_is_found(valkey: Server) -> None:
    """With its own namespace, as the fix says, the finding is gone."""
    fill(valkey.url, "menu:")
    assert "namespace-empty" in examine(valkey.url)
    assert "namespace-empty" not in examine(valkey.url, namespace="shop:")


def test_a_namespace_that_begins_with_another_is_found(valkey: Server) -> None:
    """With a separator at its end, as the fix says, it is well."""
    fill(valkey.url, "shop2:")
    assert "shop2:" in examine(valkey.url, namespace="shop")["namespace-prefix"].seen
    assert "namespace-prefix" not in examine(valkey.url, namespace="shop:")


def test_keys_of_other_types_under_the_namespace_are_found(valkey: Server) -> None:
    """With another namespace, as the fix says, it is well. Their names are not printed."""
    client = valkey.client()
    client.hset("shop:user:ann", "name", "Ann")
    client.rpush("shop:queue", 1)
    facts = look(valkey.url, namespace="shop:")
    found = examine(valkey.url, namespace="shop:")
    assert "1 hash, 1 list" in found["keys-foreign"].seen
    assert "keys-foreign" not in examine(valkey.url, namespace="menu:")
    assert "shop:user" not in as_text(facts, list(found.values()), ReportStyle()) + repr(facts)


def test_no_keys_are_no_finding(valkey: Server) -> None:
    """An empty database."""
    keys = look(valkey.url).keys
    assert keys is not None and (keys.seen, keys.total) == (0, 0)


def test_of_many_keys_only_some_are_looked_at(own_server: Server) -> None:
    """The time is limited for any size of the database, and the report says how many keys there
    are."""
    fill_up = "for i = 1, 60000 do redis.call('SET', 'key:' .. i, 1) end"
    own_server.client().eval(fill_up, 0)
    keys = look(own_server.url).keys
    assert keys is not None and keys.total == 60_000
    assert 0 < keys.seen <= MOST + 2000
