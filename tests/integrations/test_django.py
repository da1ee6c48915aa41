"""Django: the decorator on views of every kind, the middleware, both of them sync and async.

The settings, the routes and the views are in this module.
"""

import asyncio
import inspect
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import sleep
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.http import (
    FileResponse,
    Http404,
    HttpResponse,
    JsonResponse,
    RawPostDataException,
    StreamingHttpResponse,
)
from django.template import engines
from django.template.response import TemplateResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path, re_path
from django.utils.asyncio import async_unsafe
from django.utils.decorators import method_decorator, sync_and_async_middleware
from django.utils.functional import SimpleLazyObject
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from dibs import AsyncDibs, Dibs, Event, UsageError
from dibs.testing import Server, eventually

from . import Call, is_problem

if not settings.configured:
    settings.configure(
        SECRET_KEY="of the tests",
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=[],
        INSTALLED_APPS=[],
        DATABASES={},
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates"}],
        LOGGING_CONFIG=None,
        DATA_UPLOAD_MAX_MEMORY_SIZE=100_000,
    )
    django.setup()

from dibs.integrations import django as edge
from dibs.integrations.django import Policy, once, prevent_duplicate_submit

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

KEYED = {"idempotency-key": "k-1"}
MIDDLEWARE = "dibs.integrations.django.DibsMiddleware"
replaying = once(window=60, after="replay", key="required")


# ---- views


class Shop:
    """What the views below do, and how often; a new one for each test."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.gate = threading.Event()
        self.outcomes: dict[str, Callable[[Any], Any]] = {}

    def order(self, request: Any, how: str = "") -> Any:
        self.runs.append(how or request.path)
        if how in self.outcomes:
            return self.outcomes[how](request)
        return JsonResponse({"order": len(self.runs)}, status=201)


shop = Shop()


def patiently(request: Any) -> Any:
    answer = shop.order(request)
    assert shop.gate.wait(20)
    return answer


async def apatiently(request: Any) -> Any:
    answer = shop.order(request)
    while not shop.gate.is_set():
        await asyncio.sleep(0.01)
    return answer


def view(request: Any, how: str = "", **more: Any) -> Any:
    return shop.order(request, how)


async def aview(request: Any, how: str = "", **more: Any) -> Any:
    return shop.order(request, how)


class Orders(View):
    @method_decorator(replaying)
    def post(self, request: Any) -> Any:
        return shop.order(request)


@method_decorator(replaying, name="dispatch")
class Whole(View):
    def post(self, request: Any) -> Any:
        return shop.order(request)


class AsyncOrders(View):
    @replaying  # itself: `method_decorator` is for async methods only in recent versions
    async def post(self, request: Any) -> Any:
        return shop.order(request)


@method_decorator(replaying, name="dispatch")
class AsyncWhole(View):
    async def post(self, request: Any) -> Any:
        return shop.order(request)


seed = prevent_duplicate_submit(interval=10, message="請稍候…")
urlpatterns = [
    path("patient/", seed(patiently)),
    path("apatient/", seed(apatiently)),
    path("hold/", once(window=2, after="hold")(view)),
    path("narrow/", once(window=60, body_limit=1_000_000)(view)),
    path("wide/", once(window=60, after="hold")(view)),
    path("release/<how>/", once(window=60)(view)),
    path("arelease/<how>/", once(window=60)(aview)),
    path("replay/<how>/", replaying(view)),
    path("areplay/<how>/", replaying(aview)),
    path("by/<how>/<int:number>/", once(window=60, after="hold", by=["path.number"])(view)),
    re_path(r"^items/(?P<how>\w+)/$", replaying(view)),
    path("class/", Orders.as_view()),
    path("whole/", Whole.as_view()),
    path("aclass/", AsyncOrders.as_view()),
    path("awhole/", AsyncWhole.as_view()),
    path("exempt/", csrf_exempt(replaying(view))),
    path("exempt-inside/", replaying(csrf_exempt(view))),
    path("post-outside/", require_POST(once(window=60, after="hold")(view))),
    path("post-inside/", once(window=60, after="hold")(require_POST(view))),
    path("ahold/<how>/", once(window=60, after="hold")(aview)),
    path("strict/", replaying(view)),
    path("open/", once(window=60, on_outage="open")(view)),
    path("closed/", once(window=60, on_outage="closed")(view)),
    path("m/<how>/", view),
    path("am/<how>/", aview),
]


# ---- middlewares of ours


class Somebody:
    is_authenticated = True

    def __init__(self, pk: int) -> None:
        self.pk = pk


def login(get_response: Any) -> Any:
    """As Django's own: request.user, and request.auser() for those who must not wait."""

    def set_user(request: Any) -> None:
        number = request.headers.get("x-login")
        if number:
            request.user = Somebody(int(number))

            async def auser() -> Any:
                return request.user

            request.auser = auser

    def middleware(request: Any) -> Any:
        set_user(request)
        return get_response(request)

    return middleware


def reader(get_response: Any) -> Any:
    """Read the body before the view and other middlewares do, piece by piece."""

    def middleware(request: Any) -> Any:
        request.read()
        return get_response(request)

    return middleware


def tenant_of(request: Any) -> str | None:
    return request.headers.get("x-tenant")


async def atenant_of(request: Any) -> str | None:
    return request.headers.get("x-tenant")


# ---- the test ground


@pytest.fixture(autouse=True)
def anew(request: pytest.FixtureRequest) -> Iterator[None]:
    """A new shop, at the server of the test."""
    global shop
    shop = Shop()
    name = "own_server" if "own_server" in request.fixturenames else "valkey"
    server = request.getfixturevalue(name)
    budget = 0.3 if name == "own_server" else 5
    with override_settings(
        ROOT_URLCONF=__name__, DIBS_URL=server.url, DIBS_OPTIONS={"budget": budget}
    ):
        yield
        if threads := _made(Dibs):
            threads.close()
    edge._made.cache_clear()


def _made(kind: Any) -> Any:
    """What the requests of this test have made, if they have."""
    return edge._made(kind) if edge._made.cache_info().currsize else None


@asynccontextmanager
async def visiting() -> AsyncIterator[AsyncClient]:
    """A browser in front of Django's ASGI handler; what the event loop has open is closed."""
    yield AsyncClient(raise_request_exception=False)
    if tasks := _made(AsyncDibs):
        await tasks.aclose()


def body(response: Any) -> Any:
    return json.loads(response.content)


def is_replay(response: Any) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


def sent(client: Any, place: str, data: Any = None, **options: Any) -> Any:
    headers = options.pop("headers", KEYED)
    kind = "application/json"
    return client.post(place, json.dumps(data or {}), content_type=kind, headers=headers, **options)


# ---- a double click


def test_of_many_at_once_one_runs_in_django(valkey: Server) -> None:
    """The seed's own decorator: one order, the others 429; afterwards it is free."""
    with ThreadPoolExecutor(6) as people:
        clicks = [people.submit(sent, Client(), "/patient/", {"tea": 1}) for _ in range(6)]
        eventually(lambda: sum(each.done() for each in clicks) == 5, within=90)
        [key] = valkey.keys()
        left = valkey.client().pttl(key) / 1000
        shop.gate.set()
        answers = [each.result() for each in clicks]
    _check_refusals(answers, left)
    assert body(sent(Client(), "/patient/", {"tea": 1})) == {"order": 2} and valkey.keys() == []


async def test_of_many_at_once_one_runs_async(valkey: Server) -> None:
    """The same with an async view, under ASGI."""
    async with visiting() as client:
        clicks = [asyncio.create_task(sent(client, "/apatient/", {"tea": 1})) for _ in range(6)]
        while sum(each.done() for each in clicks) < 5:
            await asyncio.sleep(0.01)
        [key] = valkey.keys()
        left = valkey.client().pttl(key) / 1000
        shop.gate.set()
        _check_refusals([await each for each in clicks], left)
        assert body(await sent(client, "/apatient/", {"tea": 1})) == {"order": 2}


def test_async_views_under_wsgi(valkey: Server) -> None:
    """Each thread runs them in its own event loop, several at once: guarded all the same."""
    with ThreadPoolExecutor(6) as people:
        clicks = [people.submit(sent, Client(), "/apatient/", {"tea": 1}) for _ in range(6)]
        eventually(lambda: sum(each.done() for each in clicks) == 5, within=90)
        shop.gate.set()
        _check_refusals([each.result() for each in clicks], 0)
    assert is_replay(sent(Client(), "/areplay/x/")) is False
    assert is_replay(sent(Client(), "/areplay/x/")) is True


def _check_refusals(answers: list[Any], left: float) -> None:
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) == 5 and len(shop.runs) == 1
    for each in refused:
        assert is_problem(body(each), each.headers, 429)
        assert body(each)["message"] == "請稍候…" and left <= body(each)["retryAfter"] <= 10


def test_retry_after_is_true_in_django() -> None:
    """Who waits as long as told gets through."""
    client = Client()
    assert client.post("/hold/").status_code == 201
    refused = client.post("/hold/")
    assert refused.status_code == 429 and refused.headers["retry-after"] in ("1", "2")
    sleep(int(refused.headers["retry-after"]))
    assert client.post("/hold/").status_code == 201


# ---- views of every kind


@pytest.mark.parametrize(
    "place", ["/replay/x/", "/items/x/", "/class/", "/whole/", "/exempt/", "/exempt-inside/"]
)
def test_views_of_every_kind(place: str) -> None:
    """Functions, methods and whole classes: a retry gets the first answer, another payload 422."""
    first, again = [sent(Client(), place) for _ in range(2)]
    assert first.status_code == again.status_code == 201 and first.content == again.content
    assert is_replay(again) and not is_replay(first) and len(shop.runs) == 1
    other = sent(Client(), place, {"other": 1})
    assert is_problem(body(other), other.headers, 422)
    missing = sent(Client(), place, headers={})
    assert is_problem(body(missing), missing.headers, 400)


@pytest.mark.parametrize("place", ["/areplay/x/", "/aclass/", "/awhole/"])
async def test_async_views_of_every_kind(place: str) -> None:
    """The same with async functions, methods and classes."""
    async with visiting() as client:
        first, again = [await sent(client, place) for _ in range(2)]
        assert first.status_code == again.status_code == 201 and first.content == again.content
        assert is_replay(again) and not is_replay(first) and len(shop.runs) == 1
        assert (await sent(client, place, {"other": 1})).status_code == 422


@pytest.mark.parametrize(
    ("key", "status"),
    [('"k-1"', 201), ("", 400), ("a,b", 400), ('"a,b"', 201), ("k" * 256, 400), ("a b", 400)],
)
def test_keys_in_django(valkey: Server, key: str, status: int) -> None:
    """Raw or quoted; malformed or two of them are refused, and nothing is done."""
    answer = sent(Client(), "/replay/x/", headers={"idempotency-key": key})
    assert answer.status_code == status
    assert len(shop.runs) == len(valkey.keys()) == (status == 201)


def test_csrf_is_checked_as_ever() -> None:
    """Before the view: who fails gets neither a claim nor a replay; who is exempt is."""
    with override_settings(MIDDLEWARE=["django.middleware.csrf.CsrfViewMiddleware"]):
        strict = Client(enforce_csrf_checks=True)
        for place, status in (("/strict/", 403), ("/exempt/", 201), ("/exempt-inside/", 201)):
            for _ in range(2):
                assert sent(strict, place).status_code == status, place
        assert shop.runs == ["/exempt/", "/exempt-inside/"]


def test_the_guard_may_be_above_or_below_other_decorators_in_django() -> None:
    """The URLconf names the decorated view, so the guard runs in either order."""
    for place in ("/post-outside/", "/post-inside/"):
        assert Client().get(place).status_code == 405
        assert [sent(Client(), place).status_code for _ in range(2)] == [201, 429], place
    assert shop.runs == ["/post-outside/", "/post-inside/"]


def refused(request: Any, problem: dict[str, Any]) -> Any:
    """DIBS_REFUSED, as a user would write it."""
    if "text/html" not in request.headers.get("accept", ""):
        return None
    return HttpResponse(f"<p>{problem['detail']}</p>", status=problem["status"])


@pytest.mark.parametrize("place", ["/replay/x/", "/areplay/x/", "/m/x/"])
def test_a_page_of_ones_own_in_django(place: str) -> None:
    """DIBS_REFUSED makes it, for decorators and the middleware; None: the document in JSON."""
    policies = [Policy("POST /m/*", window=60, key="required")]
    changed = {"MIDDLEWARE": [MIDDLEWARE], "DIBS_POLICIES": policies} if "/m/" in place else {}
    with override_settings(DIBS_REFUSED=f"{__name__}.refused", **changed):
        shown = sent(Client(), place, headers={"accept": "text/html"})
        plain = sent(Client(), place, headers={})
    assert shown.status_code == 400
    assert shown.content.decode() == "<p>The header Idempotency-Key is required.</p>"
    assert is_problem(body(plain), plain.headers, 400) and not shop.runs


async def test_a_page_of_ones_own_in_async_django() -> None:
    """A function that awaits nothing serves async views, too; Retry-After is added to its page."""
    with override_settings(DIBS_REFUSED=f"{__name__}.refused"):
        async with visiting() as client:
            headers = {"accept": "text/html"}
            answers = [await sent(client, "/ahold/x/", headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 429]
    assert answers[1].content.startswith(b"<p>The same request")
    assert 0 < int(answers[1].headers["Retry-After"]) <= 60
    assert answers[1].headers["Cache-Control"] == "no-store"


async def arefused(request: Any, problem: dict[str, Any]) -> Any:
    """DIBS_REFUSED as a coroutine."""
    user = await request.auser()
    return HttpResponse(f"{problem['detail']} {user.pk}", status=problem["status"])


def rendered(request: Any, problem: dict[str, Any]) -> Any:
    """DIBS_REFUSED with a template that is rendered later, and asks who is logged in."""
    template = engines["django"].from_string("{{ detail }} {{ user.pk }}")
    who = {"detail": problem["detail"], "user": request.user}
    return TemplateResponse(request, template, who, status=problem["status"])


def lazy_login(get_response: Any) -> Any:
    """As Django's own: `request.user` is a query at its first use."""

    @async_unsafe
    def query() -> Somebody:
        return Somebody(42)

    def set_user(request: Any) -> None:
        async def auser() -> Somebody:
            return Somebody(42)

        request.user = SimpleLazyObject(query)
        request.auser = auser

    if inspect.iscoroutinefunction(get_response):

        async def amiddleware(request: Any) -> Any:
            set_user(request)
            return await get_response(request)

        return amiddleware

    def middleware(request: Any) -> Any:
        set_user(request)
        return get_response(request)

    return middleware


lazy_login = sync_and_async_middleware(lazy_login)
PAGES = [
    Policy("POST /m/*", window=60, after="hold"),
    Policy("POST /am/*", window=60, after="hold"),
]
paged = override_settings(MIDDLEWARE=[f"{__name__}.lazy_login", MIDDLEWARE], DIBS_POLICIES=PAGES)
PLACES = ["/hold/", "/ahold/x/", "/m/x/", "/am/x/"]


@pytest.mark.parametrize("function", ["arefused", "rendered"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["WSGI", "ASGI"])
@paged
async def test_a_page_may_be_async_rendered_and_know_the_user(
    kind: str, place: str, function: str
) -> None:
    """Under WSGI and ASGI, for decorators and the middleware, sync and async views."""
    with override_settings(DIBS_REFUSED=f"{__name__}.{function}"):
        if kind == "ASGI":
            async with visiting() as client:
                answers = [await sent(client, place) for _ in range(2)]
        else:
            answers = [await asyncio.to_thread(sent, Client(), place) for _ in range(2)]
    assert [each.status_code for each in answers] == [201, 429]
    assert answers[1].content == b"The same request was submitted a moment ago. 42"
    assert int(answers[1].headers["Retry-After"]) > 0
    assert answers[1].headers["Cache-Control"] == "no-store"


def test_names_hold_no_value_of_the_request_in_django(valkey: Server) -> None:
    """Events name the route as it is written; what is stored holds no data."""
    events: list[Event] = []
    headers = {**KEYED, "cookie": "s=U4711"}
    with override_settings(DIBS_OPTIONS={"budget": 5, "listeners": [events.append]}):
        for place in ("/by/private/9001/", "/items/private/"):
            for _ in range(2):
                sent(Client(), place, {"mail": "a@b.c"}, headers=headers)
    assert {event.name for event in events} == {
        "POST /by/<how>/<int:number>/", r"POST /^items/(?P<how>\w+)/$",
    }  # fmt: skip
    stored = str(valkey.keys()) + str([valkey.client().get(key) for key in valkey.keys()])
    assert not [word for word in ("private", "9001", "a@b.c", "U4711", "k-1") if word in stored]


def test_by_a_part_of_the_path_in_django() -> None:
    """As the route names it; the rest of the path does not count."""
    places = ("/by/a/1/", "/by/b/1/", "/by/a/2/")
    assert [Client().post(place).status_code for place in places] == [201, 429, 201]


# ---- who it is


PEOPLE: list[tuple[str, dict[str, str]]] = [
    ("10.0.0.1", {}),
    ("10.0.0.3", {"authorization": "Bearer a"}),
    ("10.0.0.3", {"authorization": "Bearer 10.0.0.1"}),
    ("10.0.0.3", {"x-login": "42"}),
    ("10.0.0.3", {"x-login": "43"}),
    ("10.0.0.3", {"authorization": "Token 42"}),
]


def test_nobody_gets_the_answer_of_somebody_else_in_django() -> None:
    """By user or login; a header does not pass for a user."""
    with override_settings(MIDDLEWARE=[f"{__name__}.login"]):
        for address, headers in PEOPLE:
            for number in range(2):
                answer = sent(
                    Client(), "/replay/x/", headers={**KEYED, **headers}, REMOTE_ADDR=address
                )
                assert is_replay(answer) is (number == 1), (address, headers)
        moved = sent(Client(), "/replay/x/", headers={**KEYED, "x-login": "42", "cookie": "new"})
        assert is_replay(moved), "a user is known by nothing else"


async def test_nobody_gets_the_answer_of_somebody_else_async() -> None:
    """The same, asked in a way that does not stop the event loop."""
    with override_settings(MIDDLEWARE=[f"{__name__}.login"]):
        async with visiting() as client:
            for _, headers in PEOPLE:
                for number in range(2):
                    answer = await sent(client, "/areplay/x/", headers={**KEYED, **headers})
                    assert is_replay(answer) is (number == 1), headers


@pytest.mark.parametrize("name", ["tenant_of", "atenant_of"])
async def test_the_settings_say_who_it_is(name: str) -> None:
    """DIBS_USER, a function of the request; async only where the view is."""
    with override_settings(DIBS_USER=f"{__name__}.{name}"):
        async with visiting() as client:
            for tenant in ("a", "b"):
                for number, login in enumerate(("Bearer 1", "Bearer 2")):
                    headers = {**KEYED, "x-tenant": tenant, "authorization": login}
                    answer = await sent(client, "/areplay/x/", headers=headers)
                    assert is_replay(answer) is (number == 1)


# ---- answers


def _page(request: Any) -> Any:
    template = engines["django"].from_string("{{ number }} orders")
    return TemplateResponse(request, template, {"number": len(shop.runs)})


def _template_that_asks(request: Any) -> Any:
    """Its template does what Django forbids in an event loop, as a query would."""
    from django.utils.asyncio import async_unsafe

    template = engines["django"].from_string("{{ ask }}")
    return TemplateResponse(request, template, {"ask": async_unsafe(lambda: "asked")})


def _raises(error: type[Exception]) -> Callable[[Any], Any]:
    def raising(request: Any) -> Any:
        raise error("of the view")

    return raising


OUTCOMES: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "page": (_page, 200, 1),
    "asks": (_template_that_asks, 200, 1),
    "teapot": (lambda request: HttpResponse("short", status=418), 418, 1),
    "login": (lambda request: HttpResponse(status=401), 401, 2),
    "forbidden": (lambda request: HttpResponse(status=403), 403, 2),
    "fails": (lambda request: HttpResponse(status=503), 503, 2),
    "404": (_raises(Http404), 404, 2),
    "403": (_raises(PermissionDenied), 403, 2),
    "400": (_raises(SuspiciousOperation), 400, 2),
    "broken": (_raises(LookupError), 500, 2),
    "none": (lambda request: None, 500, 2),
    "stream": (lambda request: StreamingHttpResponse([b"one ", b"two"]), 200, 1),
    "file": (lambda request: FileResponse(open(os.devnull, "rb")), 200, -1),  # noqa: SIM115
    "long": (lambda request: HttpResponse(b"x" * 300_000), 200, -1),
}


@pytest.mark.parametrize("how", OUTCOMES)
def test_what_an_answer_leaves_behind_in_django(valkey: Server, how: str) -> None:
    """Replayed, done again, or (what cannot be kept) refused as done."""
    make, status, times = OUTCOMES[how]
    shop.outcomes[how] = make
    first, again = [
        _whole(sent(Client(raise_request_exception=False), f"/replay/{how}/")) for _ in range(2)
    ]
    _check_outcome(how, first, again, status, times)


@pytest.mark.parametrize("how", [how for how in OUTCOMES if how != "file"])
async def test_what_an_async_answer_leaves_behind(valkey: Server, how: str) -> None:
    """The same, where the view is async: templates are rendered beside the event loop."""
    make, status, times = OUTCOMES[how]
    if how == "stream":

        async def pieces() -> AsyncIterator[bytes]:
            for piece in (b"one ", b"two"):
                yield piece

        make = lambda request: StreamingHttpResponse(pieces())  # noqa: E731
    shop.outcomes[how] = make
    async with visiting() as client:
        first = await sent(client, f"/areplay/{how}/")
        if first.streaming:
            first.read = b"".join([piece async for piece in first])
            first.close()
            while not valkey.client().get(valkey.keys()[0]).startswith(b"dibs1 done"):  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        again = await sent(client, f"/areplay/{how}/")
        _check_outcome(how, first, again, status, times)


def _whole(response: Any) -> Any:
    if response.streaming:
        response.read = b"".join(response)
        response.close()
    return response


def _check_outcome(how: str, first: Any, again: Any, status: int, times: int) -> None:
    assert first.status_code == status and shop.runs.count(how) == abs(times)
    if times == -1:
        assert is_problem(body(again), again.headers, 409)
        assert body(again)["type"] == "urn:dibs:already-done"
    else:
        assert again.status_code == status and is_replay(again) is (times == 1)
        content = first.read if first.streaming else first.content
        assert again.content == content or status == 500


def test_cookies_are_not_replayed() -> None:
    """Neither those of the view nor the session's; other headers are."""

    def baking(request: Any) -> Any:
        response = HttpResponse("baked", headers={"X-Total": "1"})
        response.set_cookie("session", "of one person")
        return response

    shop.outcomes["bake"] = baking
    first, again = [sent(Client(), "/replay/bake/") for _ in range(2)]
    assert first.cookies and not again.cookies and is_replay(again)
    assert again.headers["X-Total"] == "1" and again.headers["Content-Length"] == "5"


@pytest.mark.parametrize("is_read", [True, False])
def test_a_stream_is_guarded_until_its_end_in_django(valkey: Server, is_read: bool) -> None:
    """While it flows a second one is refused; when it is read, or left, the claim ends."""
    shop.outcomes["stream"] = lambda request: StreamingHttpResponse([b"one ", b"two"])
    first = Client().post("/release/stream/")
    pieces = iter(first)
    assert next(pieces) == b"one " and Client().post("/release/stream/").status_code == 429
    if is_read:
        assert next(pieces) == b"two"
    first.close()
    assert valkey.keys() == []


async def test_an_async_stream_is_guarded_until_its_end(valkey: Server) -> None:
    """The same under ASGI, sent by Django itself."""
    from django.core.handlers.asgi import ASGIHandler

    gate = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        await gate.wait()
        yield b"two"

    shop.outcomes["stream"] = lambda request: StreamingHttpResponse(pieces())
    app: Any = ASGIHandler()
    async with visiting():
        call = Call(app, "POST /arelease/stream/")
        first = call.start()
        while len(call.sent) < 2:
            await asyncio.sleep(0.01)
        assert (await Call(app, "POST /arelease/stream/").run()).status == 429
        gate.set()
        await first
        assert call.body == b"one two"
        while valkey.keys():
            await asyncio.sleep(0.01)


# ---- what was sent


def test_forms_and_files_in_django() -> None:
    """A file reaches the view, and counts; so do the values of a field, in order."""
    from io import BytesIO

    seen: list[Any] = []

    def upload(request: Any) -> Any:
        seen.append((request.POST.getlist("tag"), request.FILES["file"].read()))
        return HttpResponse(status=201)

    shop.order = lambda request, how="": upload(request)  # type: ignore[method-assign]
    sent = [(["a", "b"], b"0"), (["a", "b"], b"0"), (["b", "a"], b"0"), (["a", "b"], b"1")]
    for tags, content in sent:
        file = BytesIO(content)
        file.name = "a.png"
        Client().post("/wide/", {"tag": tags, "file": file})
    assert seen == sent[1:]


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_that_is_put_counts_as_what_it_is(kind: str) -> None:
    """Django itself reads only posted ones; two different ones are not the same."""

    def form(value: str) -> tuple[bytes, str]:
        if kind != "multipart/form-data":
            return f"a={value}".encode(), kind
        head = 'Content-Disposition: form-data; name="a"'
        return f"--x\r\n{head}\r\n\r\n{value}\r\n--x--\r\n".encode(), f"{kind}; boundary=x"

    statuses: list[int] = []
    for value in ("1", "1", "2"):
        content, content_type = form(value)
        statuses.append(Client().put("/wide/", content, content_type=content_type).status_code)
    assert statuses == [201, 429, 201]


def test_the_view_reads_what_was_sent_in_django() -> None:
    """The body, the form and the stream: the guard has taken nothing away."""
    shop.outcomes["body"] = lambda request: HttpResponse(request.body)
    shop.outcomes["read"] = lambda request: HttpResponse(request.read())
    shop.outcomes["form"] = lambda request: JsonResponse(request.POST.getlist("a"), safe=False)
    kind = "application/x-www-form-urlencoded"
    for how, expected in (("body", b"a=1&a=2"), ("read", b"a=1&a=2"), ("form", b'["1", "2"]')):
        answer = Client().post(f"/release/{how}/", b"a=1&a=2", content_type=kind)
        assert answer.content == expected


def test_a_body_that_was_read_before_is_not_guessed_in_django(valkey: Server) -> None:
    """Django's own exception; nothing is claimed, nothing runs. A form it has read is known."""
    with override_settings(MIDDLEWARE=[f"{__name__}.reader"]):
        with pytest.raises(RawPostDataException):
            sent(Client(), "/wide/")
        assert shop.runs == [] and valkey.keys() == []


def test_a_body_that_django_does_not_hold_in_memory_is_a_stream(valkey: Server) -> None:
    """A view may read it as without the guard, and its content is compared; `request.body` is
    Django's own 4xx, and what exceeds the limit of the policy a 413, for which nothing runs.
    """
    shop.outcomes["read"] = lambda request: HttpResponse(str(len(request.read())))
    shop.outcomes["body"] = lambda request: HttpResponse(request.body)
    long = b"x" * 3_000_000
    for how, status in (("read", 200), ("body", 400)):
        answer = Client().post(f"/release/{how}/", long, content_type="text/plain")
        assert answer.status_code == status, how
    assert shop.runs == ["read", "body"]
    replies = [
        Client().post("/replay/read/", sent, content_type="text/plain", headers=KEYED)
        for sent in (long, long, long[:-1] + b"y")
    ]
    assert [each.status_code for each in replies] == [200, 200, 422] and is_replay(replies[1])
    assert replies[1].content == b"3000000"
    answer = Client().post("/narrow/", long, content_type="text/plain")
    assert answer.status_code == 413 and shop.runs == ["read", "body", "read"]


async def test_a_long_body_is_a_stream_under_asgi(valkey: Server) -> None:
    """There Django has a file of it already."""
    shop.outcomes["read"] = lambda request: HttpResponse(str(len(request.read())))
    async with visiting() as client:
        for replayed in (False, True):
            answer = await client.post(
                "/areplay/read/", b"x" * 3_000_000, content_type="text/plain", headers=KEYED
            )
            assert answer.content == b"3000000" and is_replay(answer) is replayed


# ---- the middleware


POLICIES = [
    Policy("POST /m/{how}/", window=60, after="replay", key="required"),
    Policy("POST /am/{how}/", window=60, after="replay", key="required"),
    Policy("PUT /m/{how}/", window=60, after="hold", by=["path.how"]),
]
guarded = override_settings(MIDDLEWARE=[f"{__name__}.login", MIDDLEWARE], DIBS_POLICIES=POLICIES)


@guarded
def test_the_middleware_guards_routes() -> None:
    """By their policies; what the view answers is what is replayed, errors included."""
    shop.outcomes["409"] = lambda request: HttpResponse("taken", status=409)
    shop.outcomes["page"] = _page
    for how, status in (("x", 201), ("409", 409), ("page", 200)):
        first, again = [sent(Client(), f"/m/{how}/") for _ in range(2)]
        assert first.status_code == again.status_code == status
        assert first.content == again.content and is_replay(again)
    assert shop.runs == ["x", "409", "page"]
    assert sent(Client(), "/m/x/", {"other": 1}).status_code == 422
    assert sent(Client(), "/m/x/", headers={}).status_code == 400


@guarded
def test_the_middleware_knows_the_parts_of_a_path() -> None:
    """Though it comes before Django has found the route."""
    statuses = [Client().put(f"/m/{how}/").status_code for how in ("a", "a", "b")]
    assert statuses == [201, 429, 201]


@guarded
def test_the_middleware_frees_a_key_when_a_view_breaks() -> None:
    """500 as ever; the next one runs."""
    shop.outcomes["broken"] = _raises(LookupError)
    client = Client(raise_request_exception=False)
    assert [sent(client, "/m/broken/").status_code for _ in range(2)] == [500, 500]
    assert shop.runs == ["broken", "broken"]


@guarded
async def test_the_middleware_is_async_where_django_is() -> None:
    """And sync views behind it, and users."""
    async with visiting() as client:
        for place in ("/am/x/", "/m/x/"):
            for login in ("42", "43"):
                headers = {**KEYED, "x-login": login}
                first, again = [await sent(client, place, headers=headers) for _ in range(2)]
                assert first.status_code == 201 and not is_replay(first) and is_replay(again)


@guarded
def test_a_request_without_a_policy_is_not_touched(own_server: Server) -> None:
    """It runs each time, and needs no store."""
    own_server.kill()
    for _ in range(2):
        assert Client().get("/m/x/").status_code == 201
        assert Client().delete("/m/x/").status_code == 201
    assert len(shop.runs) == 4


def test_settings_that_make_no_sense() -> None:
    """UsageError, and what is missing."""
    with override_settings(MIDDLEWARE=[MIDDLEWARE], DIBS_POLICIES=[Policy(window=1)]):
        with pytest.raises(UsageError, match="needs a route"):
            Client().post("/m/x/")
    with override_settings(DIBS_URL=None), pytest.raises(UsageError, match="DIBS_URL"):
        sent(Client(), "/replay/x/")


# ---- outages


def test_in_an_outage_the_policy_decides_in_django(own_server: Server) -> None:
    """Open: it runs, unguarded. Closed: 503, and nothing is done."""
    client = Client()
    client.post("/open/")
    own_server.freeze()
    assert client.post("/open/").status_code == 201
    refused = client.post("/closed/")
    assert is_problem(body(refused), refused.headers, 503)
    assert refused.headers["retry-after"] == "1" and shop.runs == ["/open/", "/open/"]
    own_server.thaw()
