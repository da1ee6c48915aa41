"""Which routes are guarded, and how."""

import dataclasses
import importlib
import inspect
import math
import re
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from dibs import UsageError
from dibs._http.decorators import Once, PreventDuplicateSubmit
from dibs._http.facts import InvalidRequest
from dibs._http.policy import (
    GuardKeywords,
    GuardOptions,
    Policy,
    PolicyKeywords,
    check_routes,
    inner_path,
    match_policy,
    secret_bytes,
)
from dibs._http.submission import submission_of

from .submitted import facts, submitted

# ---- which requests are guarded


def test_a_route_is_a_method_and_a_path() -> None:
    """`{id}` is one part of a path, `*` is anything; a star for the method means no safe one."""
    for route, method, path, fits in (
        ("POST /orders", "POST", "/orders", True),
        ("POST /orders", "PUT", "/orders", False),
        ("POST /orders", "POST", "/orders/", True),
        ("post,put /orders", "PUT", "/orders", True),
        ("PUT /orders/{id}", "PUT", "/orders/17", True),
        ("PUT /orders/{id}", "PUT", "/orders/", False),
        ("PUT /orders/{id}", "PUT", "/orders/17/lines", False),
        ("PUT /orders/{id}/lines/{line}", "PUT", "/orders/17/lines/2", True),
        ("* /forms/*", "DELETE", "/forms/a/b", True),
        ("* /forms/*", "GET", "/forms/a", False),
        ("* /forms/*", "HEAD", "/forms/a", False),
        ("GET /forms/*", "GET", "/forms/a", True),
        ("* /forms/*", "POST", "/forms/a\nb", True),
        ("POST /a.b", "POST", "/axb", False),
    ):
        assert Policy(route, window=1).covers(method, path) is fits, (route, method, path)


def test_a_route_covers_what_routers_do_not_tell_apart() -> None:
    """A slash at the end, slashes in a row, and HEAD where it has GET."""
    for route in ("POST /orders/{id}", "POST /orders/{id}/"):
        policy = Policy(route, window=1)
        for path in ("/orders/7", "/orders/7/", "//orders//7", "/orders/7//", "/orders///7/"):
            assert match_policy((policy,), "POST", path) is policy, path
            assert policy.path_fields("POST", path) == {"id": "7"}
        for path in ("/orders/", "/orders/7/x", "/orders/7/x/", "/", "/orders7"):
            assert match_policy((policy,), "POST", path) is None, path
    root = Policy("POST /", window=1)
    assert root.covers("POST", "/") and not root.covers("POST", "/a")
    link = Policy("GET,POST /link", exempt=["GET /link/x"], window=1)
    assert [link.covers(method, "/link") for method in ("GET", "HEAD", "OPTIONS", "PUT")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not link.covers("HEAD", "/link/x")
    assert not Policy("HEAD /link", window=1).covers("GET", "/link")


def test_what_is_exempt_is_not_guarded() -> None:
    """One of the patterns is enough."""
    policy = Policy("POST /a/*", exempt=("POST /a/b", "POST /a/c/*"), window=1)
    paths = ("/a", "/a/b", "/a/c/d", "/a/d", "/b")
    assert [policy.covers("POST", path) for path in paths] == [False, False, False, True, False]


@pytest.mark.parametrize("secret", ["", b""])
def test_an_empty_secret_is_refused(secret: str | bytes) -> None:
    """It would be none; a variable that is not set, say."""
    assert secret_bytes(None) == b"" and secret_bytes("é") == "é".encode() == secret_bytes(
        b"\xc3\xa9"
    )
    with pytest.raises(UsageError, match="secret"):
        secret_bytes(secret)
    with pytest.raises(UsageError, match="secret"):
        GuardOptions(secret=secret)


def test_a_cookie_without_a_name_is_refused() -> None:
    """No client has one: all would count as the same."""
    assert GuardOptions(session_cookie="sid").session_cookie == "sid"
    with pytest.raises(UsageError, match="session_cookie"):
        GuardOptions(session_cookie="")


def test_the_first_policy_that_fits_is_the_one() -> None:
    """In the order in which they are given; without a match the request is not guarded."""
    narrow, wide = Policy("POST /a/b", window=1), Policy("POST /a/*", window=2)
    assert match_policy((narrow, wide), "POST", "/a/b") is narrow
    assert match_policy((wide, narrow), "POST", "/a/b") is wide
    assert match_policy((narrow, wide), "POST", "/b") is None
    assert not Policy(window=1).covers("POST", "/a/b"), "without a route it covers nothing"


def test_the_fields_of_a_route_are_told_from_a_path() -> None:
    """As text, by name; another path has none; `at` is the same policy elsewhere."""
    policy = Policy("PUT /orders/{order}/lines/{line}", window=1)
    assert policy.path_fields("PUT", "/orders/17/lines/2") == {"order": "17", "line": "2"}
    assert policy.path_fields("PUT", "/orders/17") == {}
    assert policy.at("PUT /x/{y}").path_fields("PUT", "/x/1") == {"y": "1"}


@pytest.mark.parametrize(
    "options",
    [
        {"route": "/orders"},
        {"route": "POST orders"},
        {"route": "POST, PUT /orders"},
        {"route": "POST /orders/{id:int}"},
        {"route": "POST /orders/{id"},
        {"route": "POST /a/{id}/b/{id}"},
        {"route": "POST /a/{1}"},
        {"window": 0},
        {"window": -1},
        {"window": math.nan},
        {"lease": 0},
        {"after": "later"},
        {"on_error": "replay"},
        {"key": "maybe"},
        {"on_outage": "ajar"},
        {"by": ["cookies.a"]},
        {"by": [""]},
        {"by": ["header"]},
        {"by": ["body."]},
        {"by": ["body..id"]},
        {"header": ""},
        {"header": "X Key"},
        {"header": "X-Key\r\nX"},
        {"most": -1},
        {"store": [201]},
        {"store": [500]},
        {"store": [404, 429]},
        {"store": [423]},
    ],
    ids=str,
)
def test_a_policy_that_makes_no_sense_is_refused_when_it_is_made(options: dict[str, Any]) -> None:
    """UsageError, in words, and not at the first request."""
    with pytest.raises(UsageError):
        Policy(**{"window": 10, **options})


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "path", ["/a" + "/b" * 30_000, "/a/" + "x/b/" * 15_000, "/a" + "/" * 60_000]
)
def test_a_path_made_to_hurt_costs_no_more_than_another(path: str) -> None:
    """However many wildcards the route has: which of its texts is which is not tried out."""
    assert not Policy("* /a/*/b/*/b/*/c", window=1).covers("POST", path)
    assert Policy("* /a/*/b/*/b/*/b", window=1).covers("POST", path) == (path[-2:] != "//")


def test_what_wildcards_stand_for_is_any_text() -> None:
    """Also one that contains what follows it; of fields, the last ones count."""
    policy = Policy("* /a/*/b/*/b", window=1)
    assert policy.covers("POST", "/a/b/b/b/b") and policy.covers("POST", "/a/x/b/y/b/z/b")
    assert not policy.covers("POST", "/a/x/b") and not policy.covers("POST", "/a/x/b/y/bz")
    policy = Policy("* /*/of/{user}/*/{item}", window=1)
    fields = policy.path_fields("POST", "/x/of/a/of/b/y/z")
    assert fields == {"user": "b", "item": "z"}


def test_a_window_is_seconds_or_a_timedelta_and_a_path_may_stand_alone() -> None:
    """As everywhere in dibs."""
    policy = Policy(window=timedelta(minutes=1), by="body.id")  # type: ignore[arg-type]
    assert policy.claim_options.window == 60 and policy.by == ("body.id",)


# ---- decorators and documents


def test_the_decorators_pass_a_policy_on() -> None:
    """With every option; the seed's own has the seed's names, and leaves nothing behind."""
    seen: list[Policy] = []

    def guard(policy: Policy, view: Any, within: Any) -> Any:
        seen.append(policy)
        return view

    Once(guard)(
        window=5, after="replay", on_error="hold", message="m", key="optional", by="body.id",
        header="X-Key", lease=3, on_outage="closed", most=7,
    )(len)  # fmt: skip
    PreventDuplicateSubmit(guard)(interval=10, message="please wait", by=["body.id"])(len)
    assert seen[0] == Policy(
        window=5, after="replay", on_error="hold", message="m", key="optional", by=("body.id",),
        header="X-Key", lease=3, on_outage="closed", most=7,
    )  # fmt: skip
    assert seen[1] == Policy(window=10, message="please wait", by=("body.id",))
    assert seen[1].after == "release"
    with pytest.raises(UsageError):
        PreventDuplicateSubmit(guard)(interval=0)


def test_the_decorators_take_a_policy() -> None:
    """One policy may serve several views; its own route would be ignored, and is refused."""

    def guard(policy: Policy, view: Any, within: Any) -> Any:
        return policy

    orders: Any = Policy(window=5, after="replay", key="required")
    given: Any = Once(guard)(orders)(len)
    assert given is orders
    mixed: dict[str, Any] = {"policy": orders, "window": 5}
    with pytest.raises(UsageError, match="not both"):
        Once(guard)(**mixed)
    with pytest.raises(UsageError, match="has no route"):
        Once(guard)(Policy("POST /orders", window=5))
    unknown: dict[str, Any] = {"window": 5, "route": "POST /orders"}
    with pytest.raises(TypeError, match="'route'"):
        Once(guard)(**unknown)


def test_an_option_is_declared_in_two_places() -> None:
    """What editors complete and what is checked are the same options, each with documentation."""
    routes = {"route", "exempt"}
    for keywords, options, beside in (
        (PolicyKeywords, Policy, routes),
        (GuardKeywords, GuardOptions, set[str]()),
    ):
        names = {field.name for field in dataclasses.fields(options)}
        assert set(get_type_hints(keywords)) == names - beside
        documented = inspect.getsource(keywords) + inspect.getsource(options)
        for name in names:
            assert re.search(rf'^    {name}: .*\n    """\S', documented, re.M), name


@pytest.mark.parametrize("name", ["asgi", "wsgi", "starlette", "fastapi", "flask", "django", "drf"])
def test_every_integration_exports_the_policy(name: str) -> None:
    """It is imported from where it is used."""
    module = importlib.import_module(f"dibs.integrations.{name}")
    assert module.Policy is Policy and "Policy" in module.__all__


def test_a_request_without_a_key_waits_only_for_a_response_that_it_may_get() -> None:
    """Where both kinds are guarded, a double click is refused at once and a retry waits."""
    both: Any = {"window": 86400, "after": "replay", "key": "optional", "wait": 5}
    for keyless, is_known, wait in (
        ("hold", True, 0), ("release", True, 0), ("replay", True, 5), (None, True, 5),
        ("hold", False, 0), ("replay", False, 0),
    ):  # fmt: skip
        policy = Policy(**both, keyless=keyless, keyless_window=10)
        assert policy.claim_options.wait == 5
        assert policy.without_key(is_known=is_known).claim_options.wait == wait, (keyless, is_known)


def test_a_policy_for_requests_without_a_key_waits_as_it_says() -> None:
    """There is nothing else that `wait` could be for."""
    for after in ("release", "hold", "replay"):
        policy = Policy(window=10, after=after, wait=5)
        for is_known in (True, False):
            assert policy.without_key(is_known=is_known).claim_options.wait == 5


@pytest.mark.parametrize("options", [{"keyless": "hold"}, {"keyless_window": 10}])
@pytest.mark.parametrize("key", ["never", "only", "required"])
def test_what_is_for_requests_without_a_key_needs_a_key_that_is_optional(
    options: dict[str, Any], key: Any
) -> None:
    """Else no request would ever be guarded so."""
    with pytest.raises(UsageError, match="keyless"):
        Policy("POST /orders", window=1, key=key, **options)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"keyless": "hold"}, (60, "hold")), ({"keyless_window": 10}, (10, "replay"))],
)
def test_each_option_for_requests_without_a_key_stands_alone(
    options: dict[str, Any], wanted: tuple[float, str]
) -> None:
    """The other one is that of requests with a key."""
    policy = Policy("POST /o", window=60, after="replay", key="optional", **options)
    without = policy.without_key(is_known=True)
    assert (without.window, without.after) == wanted


def test_every_policy_of_a_middleware_needs_a_route() -> None:
    """One without a route among others would guard nothing."""
    one, none = Policy("POST /orders", window=1), Policy(window=1)
    check_routes(())
    check_routes((one,))
    for policies in ((none,), (one, none)):
        with pytest.raises(UsageError, match="needs a route"):
            check_routes(policies)


def test_the_host_is_part_of_a_key_where_that_is_wanted() -> None:
    """In lower case, without the port that every browser leaves out."""
    for header, host in (
        ("Shop.Example", "shop.example"),
        (" shop.example:443 ", "shop.example"),
        ("shop.example:80", "shop.example"),
        ("shop.example:8080", "shop.example:8080"),
        ("[::1]:8000", "[::1]:8000"),
        ("my_shop", "my_shop"),
        ("", ""),
    ):
        assert GuardOptions[Any](per_host=True).host(header) == host
        assert GuardOptions[Any]().host(header) == ""


def test_a_prefix_is_cut_off_where_a_part_of_the_path_ends() -> None:
    """Some servers report the path with it, some without."""
    for path, root, inner in (
        ("/api/orders", "/api", "/orders"),
        ("/api/orders", "/api/", "/orders"),
        ("/api", "/api", "/"),
        ("/apiary", "/api", "/apiary"),
        ("/orders", "/api", "/orders"),
        ("/orders", "", "/orders"),
    ):
        assert inner_path(path, root) == inner, (path, root)


@pytest.mark.parametrize(
    "header",
    [
        "x@shop.example", "shop.example/x", "shop.example?x", "shop.example#", "shop.example.",
        "shop.example:", "shop.example:080", "shop.example:8080x", "shop example",
        "b\u00fccher.example", "shop..example", ":80", "shop.example\\@other", "a.shop,b.shop",
        "shop.example\x00", "[::1",
    ],
)  # fmt: skip
def test_a_host_that_readers_understand_differently_is_refused(header: str) -> None:
    """Some take a part of it, some the name of the server: one host would be many."""
    assert GuardOptions[Any](per_host=True).host(header) is None
    site = GuardOptions[Any](per_host=True, secret=b"s")
    found = submission_of(Policy(window=1), facts(headers={"host": header}), [], site)
    assert isinstance(found, InvalidRequest) and found.kind == "ambiguous"
    if "," not in header:
        assert submitted(facts(headers={"host": header})), "it does not count"
