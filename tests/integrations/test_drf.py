"""Django REST framework: views, sets of views and functions, guarded after all its checks."""

# isort: off
import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any, ClassVar

import pytest

from .edges_django import REST  # sets Django up

from django.test import Client, override_settings
from django.test.client import encode_multipart
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from dibs import Dibs, UsageError
from dibs.integrations import django as edge
from dibs.integrations.drf import OnceMixin, Policy, exempt, once, prevent_duplicate_submit
from dibs.testing import Server

# isort: on

KEYED = {"idempotency-key": "k-1"}
replaying = once(window=60, after="replay", key="required")
runs: list[Any] = []


def ordered(request: Any) -> Response:
    runs.append(request.data)
    return Response({"order": len(runs)}, status=201)


class Orders(APIView):
    @replaying
    def post(self, request: Any) -> Response:
        return ordered(request)


@api_view(["POST"])
@replaying
def order(request: Any) -> Response:
    return ordered(request)


class OrderSet(ViewSet):
    @replaying
    def create(self, request: Any) -> Response:
        return ordered(request)

    @action(detail=True, methods=["post"])
    @replaying
    def pay(self, request: Any, pk: str) -> Response:
        return ordered(request)


class Mixed(OnceMixin, ViewSet):
    dibs_policy = Policy(window=60, after="replay", key="required")

    def list(self, request: Any) -> Response:
        return ordered(request)

    def create(self, request: Any) -> Response:
        return ordered(request)


class Token(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("x-token")
        return (Somebody(name), None) if name else None

    def authenticate_header(self, request: Any) -> str:
        return "Token"


class Somebody:
    is_authenticated = True

    def __init__(self, pk: str) -> None:
        self.pk = pk


class LoggedIn(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        return request.user is not None


class Curious(BasePermission):
    """Reads the body before it grants permission."""

    def has_permission(self, request: Any, view: Any) -> bool:
        return "cart" in request.data


class Never(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        return request.headers.get("x-throttled") is None


class Members(OnceMixin, APIView):
    dibs_policy = Policy(window=60, after="replay", key="required")
    authentication_classes: ClassVar[Any] = [Token]
    permission_classes: ClassVar[Any] = [LoggedIn]
    throttle_classes: ClassVar[Any] = [Never]

    def post(self, request: Any) -> Response:
        return ordered(request)


@api_view(["POST"])
@permission_classes([Curious])
@replaying
def curious(request: Any) -> Response:
    return ordered(request)


class Strict(APIView):
    @once(window=60, after="replay", key="required", on_error="hold")
    def post(self, request: Any) -> Response:
        runs.append("strict")
        raise ValidationError({"cart": "is empty"})


class Unreadable(BaseRenderer):
    media_type = "application/json"
    format = "json"

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        if len(runs) == 1:
            raise RuntimeError("cannot be rendered")
        return json.dumps(data).encode()


class Breaking(APIView):
    renderer_classes: ClassVar[Any] = [Unreadable]

    @replaying
    def post(self, request: Any) -> Response:
        return ordered(request)


class Uploads(APIView):
    parser_classes: ClassVar[Any] = [MultiPartParser, JSONParser]

    @replaying
    def post(self, request: Any) -> Response:
        runs.append(request.FILES["file"].read())
        return Response(status=201)

    put = post


class Seed(APIView):
    @prevent_duplicate_submit(interval=10, message="請稍候…")
    def post(self, request: Any) -> Response:
        return ordered(request)


class Raising(APIView):
    """The first request is refused, as any other may be: by an exception, or by its response."""

    def post(self, request: Any, how: str) -> Response:
        runs.append(how)
        if len(runs) > 1:
            return ordered(request)
        if how == "raises":
            error = APIException("sold out")
            error.status_code = 409
            raise error
        return Response("sold out", status=409)


@exempt
class Hook(APIView):
    def post(self, request: Any) -> Response:
        return ordered(request)


urlpatterns = [
    path("class/", Orders.as_view()),
    path("function/", order),
    path("set/", OrderSet.as_view({"post": "create"})),
    path("set/<pk>/pay/", OrderSet.as_view({"post": "pay"})),
    path("mixed/", Mixed.as_view({"get": "list", "post": "create"})),
    path("members/", Members.as_view()),
    path("curious/", curious),
    path("strict/", Strict.as_view()),
    path("breaking/", Breaking.as_view()),
    path("uploads/", Uploads.as_view()),
    path("seed/", Seed.as_view()),
    path("m/hook/", Hook.as_view()),
    path("m/raising/<how>/", Raising.as_view()),
    path("m/order/", api_view(["POST"])(ordered)),
]


@pytest.fixture(autouse=True)
def at(valkey: Server) -> Iterator[None]:
    runs.clear()
    with override_settings(
        DIBS_URL=valkey.url, DIBS_OPTIONS={"budget": 5}, ROOT_URLCONF=__name__, REST_FRAMEWORK=REST
    ):
        yield
        if edge._made.cache_info().currsize:
            edge._made(Dibs).close()
    edge._made.cache_clear()


def sent(place: str, data: Any = None, **headers: str) -> Any:
    body = json.dumps({"cart": 1} if data is None else data)
    client = Client(raise_request_exception=False)
    named = {**KEYED, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return client.post(place, body, content_type="application/json", headers=named)


def is_replay(response: Any) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


@pytest.mark.parametrize("place", ["class/", "function/", "set/", "set/7/pay/", "mixed/"])
def test_an_answer_is_recorded_when_it_is_rendered(place: str) -> None:
    """In views of every kind: the work is done once, and the answer is what the first one got."""
    first, again = sent(f"/{place}"), sent(f"/{place}")
    assert first.status_code == again.status_code == 201 and is_replay(again)
    assert first.content == again.content == b'{"order":1}'
    assert first.headers["content-type"] == again.headers["content-type"]
    assert sent(f"/{place}", {"cart": 2}).status_code == 422
    assert sent(f"/{place}", idempotency_key="").status_code == 400
    assert runs == [{"cart": 1}]


def test_the_mixin_leaves_methods_alone_that_change_nothing() -> None:
    """They need no key."""
    assert Client().get("/mixed/").status_code == 201
    assert Client().get("/mixed/").status_code == 201 and len(runs) == 2


def test_a_mixin_without_a_policy_is_refused_when_it_is_written() -> None:
    """It would guard nothing."""
    with pytest.raises(UsageError, match="dibs_policy"):
        type("Bare", (OnceMixin, APIView), {})


def test_checks_come_first() -> None:
    """Who is not let in, or has asked too often, gets no replay; a user is who DRF says."""
    assert not is_replay(sent("/members/", x_token="a"))
    assert is_replay(sent("/members/", x_token="a"))
    assert sent("/members/").status_code == 401
    assert sent("/members/", x_token="a", x_throttled="1").status_code == 429
    assert not is_replay(sent("/members/", x_token="b")) and len(runs) == 2


def test_a_body_that_a_permission_has_read_counts() -> None:
    """By what it says; another one is a 422."""
    assert sent("/curious/").status_code == 201
    assert is_replay(sent("/curious/"))
    assert sent("/curious/", {"cart": 2}).status_code == 422 and len(runs) == 1


def test_what_a_view_raises_is_an_answer_of_the_framework(valkey: Server) -> None:
    """An error frees the key, as any exception does."""
    for number in (1, 2):
        refused = sent("/strict/")
        assert refused.status_code == 400 and refused.json() == {"cart": "is empty"}
        assert len(runs) == number and valkey.keys() == []


def test_an_answer_that_cannot_be_rendered_frees_the_key(valkey: Server) -> None:
    """Django says 500, and the next one may try."""
    assert sent("/breaking/").status_code == 500 and valkey.keys() == []
    assert sent("/breaking/").status_code == 201
    assert is_replay(sent("/breaking/")) and len(runs) == 2


@pytest.mark.parametrize("method", ["post", "put"])
def test_another_file_is_another_payload(method: str) -> None:
    """With any boundary; the view gets the file."""

    def upload(content: bytes, boundary: str) -> Any:
        file = BytesIO(content)
        file.name = "a.png"  # type: ignore[attr-defined]
        body = encode_multipart(boundary, {"file": file})
        kind = f"multipart/form-data; boundary={boundary}"
        call = getattr(Client(), method)
        return call("/uploads/", body, content_type=kind, headers=KEYED)

    assert upload(b"cat", "one").status_code == 201
    assert is_replay(upload(b"cat", "two"))
    assert upload(b"dog", "one").status_code == 422 and runs == [b"cat"]


def test_the_seeds_decorator_refuses_while_the_first_one_runs() -> None:
    """Refuses only while the first one runs."""
    assert [sent("/seed/").status_code for _ in range(2)] == [201, 201]


def test_a_view_may_be_exempt_from_the_middleware() -> None:
    """By a decorator, on a class or a function."""
    with override_settings(
        MIDDLEWARE=["dibs.integrations.django.DibsMiddleware"],
        DIBS_POLICIES=[Policy("* /m/*", window=60, after="replay", key="required")],
    ):
        assert [is_replay(sent("/m/order/")) for _ in range(2)] == [False, True]
        assert [is_replay(sent("/m/hook/")) for _ in range(2)] == [False, False]
        assert sent("/m/hook/", idempotency_key="").status_code == 201


@pytest.mark.parametrize("how", ["raises", "returns"])
def test_what_a_view_raises_behind_the_middleware_is_not_stored(how: str) -> None:
    """Django REST framework rolls that back; a response that it returns is an answer."""
    with override_settings(
        MIDDLEWARE=["dibs.integrations.django.DibsMiddleware"],
        DIBS_POLICIES=[Policy("* /m/*", window=60, after="replay", key="required")],
    ):
        first, again = [sent(f"/m/raising/{how}/") for _ in range(2)]
        assert first.status_code == 409
        assert (again.status_code, is_replay(again)) == ((201, False), (409, True))[
            how == "returns"
        ]
