"""The menu BFF and a store-service that is away, slow, wrong or late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dibs.testing import Server, eventually

from .service import (
    BRANCH,
    KEY,
    STALE,
    Bff,
    Nonsense,
    Run,
    Store,
    Street,
    good_answer,
    has_menu,
    is_problem,
    redis_of,
    refusal,
    saying,
)

pytestmark = pytest.mark.only_on("linux", "darwin")


def read_menu(bff: Bff) -> dict[str, Any]:
    """The menu, once it is served: for a second, a failed load answers all callers."""
    eventually(lambda: bff.read().status_code == 200)
    return bff.read().json()


def make_stale(server: Server) -> None:
    """As if the ttl were over: what is left is the time for which an old menu may be served."""
    assert redis_of(server).pexpire(KEY, int(STALE * 1000) - 1000)


def test_without_the_store_service(run: Run, valkey: Server) -> None:
    """503, and when to come again; an old menu if there is one; a new one when it is back."""
    store = Store()
    _, bff = run(store, Bff(valkey.url, store.url))
    store.child.kill()
    assert is_problem(bff.read(), 503) and int(bff.read().headers["Retry-After"]) >= 1
    assert not has_menu(valkey)
    assert bff.http.get("/ready").json()["status"] == "degraded"

    store.again()
    menu = read_menu(bff)
    calls = store.calls
    assert calls == 1
    store.child.kill()
    make_stale(valkey)
    for _ in range(3):
        old = bff.read()
        assert old.status_code == 200 and old.headers["X-Cache"] == "stale" and old.json() == menu

    store.again()
    eventually(lambda: bff.read().headers["X-Cache"] == "hit", within=15)
    assert store.calls == 1


def test_an_old_menu_ends_with_a_no(run: Run, valkey: Server) -> None:
    """The store-service answers that it has no menu: the old one is no longer shown."""
    with saying(200, good_answer()) as say:
        [bff] = run(Bff(valkey.url, say.url))
        assert bff.read().status_code == 200
        say.body = refusal("40402")
        make_stale(valkey)
        assert bff.read().headers["X-Cache"] == "stale"
        eventually(lambda: bff.read().status_code == 404)
        assert is_problem(bff.read(), 404)["responseCode"] == "40402"


@pytest.mark.parametrize(
    ("code", "detail"),
    [("40401", "There is no such branch."), ("40402", "The branch serves nothing now.")],
)
def test_no_menu_is_the_guests_answer_and_no_error_of_the_store(
    nonsense: Nonsense, valkey: Server, code: str, detail: str
) -> None:
    """404 with the code: "closed now" and "no such branch" are not a bad gateway."""
    nonsense.say.status, nonsense.say.body = 200, refusal(code)
    problem = is_problem(nonsense.bff.read(), 404)
    assert (problem["responseCode"], problem["detail"]) == (code, detail)
    eventually(lambda: valkey.keys() == [])


def test_an_error_of_the_store_keeps_the_old_menu(run: Run, valkey: Server) -> None:
    """99999 says nothing about the menu: the old one is served; without one it is a 502."""
    with saying(200, good_answer()) as say:
        [bff] = run(Bff(valkey.url, say.url))
        assert bff.read().status_code == 200
        say.body = refusal("99999")
        make_stale(valkey)
        called = say.calls
        assert bff.read().headers["X-Cache"] == "stale"
        eventually(lambda: say.calls == called + 1)
        for _ in range(10):
            assert bff.read().headers["X-Cache"] == "stale"
        assert is_problem(bff.read("another"), 502)["responseCode"] == "99999"


def test_what_is_no_json_for_others_is_never_cached(nonsense: Nonsense, valkey: Server) -> None:
    """NaN from the store-service is its error; the next menu is served and cached as usual."""
    nonsense.say.status = 200
    nonsense.say.body = good_answer().replace(b'"versionNo": 1', b'"versionNo": NaN')
    is_problem(nonsense.bff.read(), 503)
    for items in (b'[{"price": NaN}]', b'[{"price": -Infinity}]', b'[{"price": 1e999}]',
                  b'[{"name": "\\ud800"}]', b"[1]"):  # fmt: skip
        valkey.flush()
        nonsense.say.body = good_answer().replace(b'"items": []', b'"items": ' + items)
        is_problem(nonsense.bff.read(), 503)
        assert not has_menu(valkey)
    nonsense.say.body = good_answer()
    read_menu(nonsense.bff)
    assert nonsense.bff.read().headers["X-Cache"] == "hit"


@pytest.mark.parametrize("table", ["%00", "A%0A7", "%1b", "%7f", "%c2%85", "x" * 65])
def test_a_malformed_table_is_refused_before_anything_is_asked(
    street: Street, valkey: Server, table: str
) -> None:
    """400 for this guest alone: the store-service is not asked, and other guests do not fail."""
    before = street.store.calls
    path = f"/menus/active?branchId={BRANCH}&tableId={table}"
    assert "tableId" in is_problem(street.first.http.get(path), 400)["detail"]
    assert street.store.calls == before and valkey.keys() == []


def test_nothing_of_a_guest_goes_into_a_shared_load(nonsense: Nonsense, valkey: Server) -> None:
    """The request to the store-service does not depend on who asks first: it has the branch
    alone."""
    nonsense.say.status, nonsense.say.body = 200, good_answer()
    read_menu(nonsense.bff)
    assert json.loads(nonsense.say.asked[-1]) == {"branchId": BRANCH}
