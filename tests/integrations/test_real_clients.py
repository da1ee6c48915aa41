"""What ordinary clients do, at every edge: long bodies, changing cookies, broken uploads."""

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dibs import UsageError
from dibs.claims import open_claims
from dibs.testing import Server

from . import Call
from .edges import EDGES, MIDDLEWARES, OF_WSGI, Gate, opened

KEYED = {"idempotency-key": "0b4e2f9c-5d6a-4a52-9d0e-2f4a5f0c9a11"}
REPLAY: dict[str, Any] = {"after": "replay", "key": "required"}

every_edge = pytest.mark.parametrize("edge", EDGES)
every_middleware = pytest.mark.parametrize("edge", MIDDLEWARES)


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    """Every request ends its claim, whatever becomes of it."""
    yield
    gc.collect()
    assert open_claims() == 0


def multipart(content: bytes, boundary: str, *, title: str = "cat") -> tuple[bytes, dict[str, str]]:
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="title"\r\n\r\n{title}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n'
        f"Content-Type: image/png\r\n\r\n"
    ).encode()
    kind = f"multipart/form-data; boundary={boundary}"
    return body + content + f"\r\n--{boundary}--\r\n".encode(), {"content-type": kind}


# ---- 1: long bodies


@every_edge
@pytest.mark.parametrize("size", [100, 2 << 20], ids=["short", "2 MiB"])
async def test_1_a_retry_is_the_same_however_the_server_cuts_its_body(
    valkey: Server, edge: str, size: int
) -> None:
    """With a key it is replayed, and a single other byte at the end is a 422."""
    body = json.dumps({"cart": "x" * size}).encode()
    async with opened(edge, valkey, **REPLAY) as shop:
        first = await shop.post(body=body, headers=KEYED, cuts=65_536)
        assert first.status == 201
        for cuts in (65_536, 16_384, 1_000_000):
            again = await shop.post(body=body, headers=KEYED, cuts=cuts)
            assert again.is_replay and again.body == first.body
        other = await shop.post(body=body[:-3] + b'y"}', headers=KEYED, cuts=16_384)
        assert other.status == 422 and len(shop.runs) == 1


@every_edge
async def test_1_without_a_key_a_long_body_is_done_once(valkey: Server, edge: str) -> None:
    """Two that differ only in their last byte are two."""
    body = b'"' + b"x" * (3 << 20) + b'"'
    async with opened(edge, valkey, after="hold") as shop:
        statuses = [(await shop.post(body=body, cuts=n)).status for n in (65_536, 70_000, 9_999)]
        assert statuses == [201, 429, 429]
        assert (await shop.post(body=body[:-2] + b'y"', cuts=65_536)).status == 201
        assert len(set(shop.runs)) == 2


@every_edge
async def test_1_a_body_above_the_limit_is_refused_and_not_run(valkey: Server, edge: str) -> None:
    """413, and nothing is claimed; at the limit it is taken."""
    async with opened(edge, valkey, body_limit=1000, **REPLAY) as shop:
        assert (await shop.post(body=b"[" + b" " * 998 + b"]", headers=KEYED)).status == 201
        refused = await shop.post(body=b"[" + b" " * 999 + b"]", headers=KEYED)
        assert refused.status == 413 and refused.json["type"] == "urn:dibs:too-large"
        assert len(shop.runs) == 1


@pytest.mark.parametrize("edge", [edge for edge in EDGES if edge not in OF_WSGI])
async def test_1_a_form_in_chunks_above_the_limit_is_refused_and_not_run(
    valkey: Server, edge: str
) -> None:
    """It says nothing about its length before."""
    body, kind = multipart(b"0" * 5000, "b")
    headers = {**kind, **KEYED, "host": "shop"}
    async with opened(edge, valkey, body_limit=1000, **REPLAY) as shop:
        call = await Call(shop.app, headers=headers, body=[body[:50], body[50:]]).run()
        assert call.status == 413 and call.json["type"] == "urn:dibs:too-large"
        assert shop.runs == [] and valkey.keys() == []


# ---- 2: who it is


COOKIES = ["session=a", "session=a; _ga=GA1.2", "session=resigned", "", "other=1"]


@every_edge
@pytest.mark.parametrize("after", ["replay", "hold"])
async def test_2_cookies_do_not_decide_about_a_clients_key(
    valkey: Server, edge: str, after: Any
) -> None:
    """A session that is signed anew, a tracker that appears, another address: one execution."""
    async with opened(edge, valkey, after=after, key="required") as shop:
        for number, cookie in enumerate(COOKIES):
            headers = {**KEYED, **({"cookie": cookie} if cookie else {})}
            reply = await shop.post(headers=headers, client=f"10.0.0.{number + 1}")
            assert (reply.status, reply.is_replay) == (
                (201, number > 0) if after == "replay" or number == 0 else (409, False)
            )
        assert len(shop.runs) == 1


@every_edge
async def test_2_the_application_names_its_session_cookie(valkey: Server, edge: str) -> None:
    """Then two sessions are two people, whatever else is in the header."""
    site = {"session_cookie": "sid"}
    async with opened(edge, valkey, site=site, **REPLAY) as shop:
        for number, sid in enumerate(("a", "b"), start=1):
            for cookie in (f"sid={sid}", f"_ga=1; sid={sid}", f"sid={sid}; x=y"):
                await shop.post(headers={**KEYED, "cookie": cookie})
            assert len(shop.runs) == number


@every_edge
async def test_2_a_key_with_another_payload_gets_nobodys_answer(valkey: Server, edge: str) -> None:
    """Where nothing tells who it is, the key and its payload are all there is to go by."""
    async with opened(edge, valkey, **REPLAY) as shop:
        await shop.post(body=b'{"for":"a"}', headers={**KEYED, "cookie": "session=a"})
        other = await shop.post(body=b'{"for":"b"}', headers={**KEYED, "cookie": "session=b"})
        assert other.status == 422 and len(shop.runs) == 1


@every_edge
async def test_2_a_login_that_is_signed_for_each_request_does_not_decide(
    valkey: Server, edge: str
) -> None:
    """Digest and its like send another Authorization header with every request."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number in range(3):
            login = f'Digest username="a", nc={number:08x}, response="{number}"'
            assert (await shop.post(headers={**KEYED, "authorization": login})).status == 201
        assert len(shop.runs) == 1


@every_edge
async def test_2_without_a_key_an_answer_goes_only_to_who_is_known(
    valkey: Server, edge: str
) -> None:
    """People behind one address, with one kind of browser, may be two: none gets an answer."""
    async with opened(edge, valkey, after="replay") as shop:
        assert (await shop.post()).status == 201
        refused = await shop.post()
        assert refused.status == 429 and refused.json["state"] == "done"
        login = {"authorization": "Bearer a"}
        assert not (await shop.post(headers=login)).is_replay
        assert (await shop.post(headers=login)).is_replay
        assert len(shop.runs) == 2


# ---- 3: nobody


@every_edge
async def test_3_a_user_that_is_none_is_not_known(valkey: Server, edge: str) -> None:
    """They are not one person: each is who the request says."""
    async with opened(edge, valkey, site={"user": "x-user"}, **REPLAY) as shop:
        for number, login in enumerate(("Bearer a", "Bearer b"), start=1):
            for replayed in (False, True):
                reply = await shop.post(headers={**KEYED, "authorization": login})
                assert (reply.is_replay, len(shop.runs)) == (replayed, number)
        named = {**KEYED, "x-user": "a"}
        assert not (await shop.post(headers=named)).is_replay
        assert (await shop.post(headers={**named, "authorization": "Bearer new"})).is_replay


@every_edge
async def test_3_strangers_without_a_key_are_not_joined(valkey: Server, edge: str) -> None:
    """`user=` says None of both."""
    async with opened(edge, valkey, site={"user": "x-user"}, after="replay") as shop:
        replies = [await shop.post(client=f"10.0.0.{number}") for number in (1, 2)]
        assert [reply.status for reply in replies] == [201, 201] and len(shop.runs) == 2


# ---- 4: what carries a key


@every_edge
async def test_4_only_what_carries_a_key_is_guarded(valkey: Server, edge: str) -> None:
    """Three orders without a key are three orders, and nothing is kept of them."""
    async with opened(edge, valkey, after="replay", key="only") as shop:
        for number in range(1, 4):
            assert (await shop.post()).json == {"order": number}
        assert valkey.keys() == []
        assert not (await shop.post(headers=KEYED)).is_replay
        assert (await shop.post(headers=KEYED)).is_replay
        assert (await shop.post(body=b"[]", headers=KEYED)).status == 422
        assert (await shop.post(headers={"idempotency-key": ""})).status == 400
        assert len(shop.runs) == 4


@every_middleware
async def test_4_routes_are_exempt_from_a_wildcard(valkey: Server, edge: str) -> None:
    """As the application sees them."""
    exempt = ("POST /hooks/*", "POST /login")
    async with opened(edge, valkey, route="* /*", exempt=exempt, after="hold") as shop:
        for path, second in (("/orders", 429), ("/hooks/a", 201), ("/login", 201), ("/in", 429)):
            assert (await shop.post(path)).status == 201
            assert (await shop.post(path)).status == second
            assert (await shop.post(path, root="/api")).status == second


@every_edge
async def test_15_held_without_a_key_replayed_with_one(valkey: Server, edge: str) -> None:
    """One policy for a form and for an API: each with a window of its own."""
    both: dict[str, Any] = {"key": "optional", "after": "replay", "keyless": "hold"}
    async with opened(edge, valkey, window=86_400, keyless_window=10, **both) as shop:
        assert [(await shop.post()).status for _ in range(2)] == [201, 429]
        assert [(await shop.post(headers=KEYED)).is_replay for _ in range(2)] == [False, True]
        left = sorted(valkey.client().ttl(key) for key in valkey.keys())
        assert left[0] <= 10 and left[1] > 80_000


# ---- 5: places


@every_edge
async def test_5_two_services_on_one_store_are_apart(valkey: Server, edge: str) -> None:
    """By their names; the same name is the same service."""
    for name, replayed in (("orders", False), ("menu", False), ("orders", True)):
        async with opened(edge, valkey, site={"service": name}, **REPLAY) as shop:
            assert (await shop.post(headers=KEYED)).is_replay is replayed


@every_edge
async def test_5_two_hosts_are_apart_where_the_application_says_so(
    valkey: Server, edge: str
) -> None:
    """In any spelling; else a host is only another way in."""
    hosts = (("a.example", False), ("b.example", False), ("A.example:80", True))
    for per_host in (True, False):
        async with opened(edge, valkey, site={"per_host": per_host}, **REPLAY) as shop:
            for number, (host, replayed) in enumerate(hosts):
                reply = await shop.post(headers={**KEYED, "host": host})
                assert reply.is_replay is (replayed if per_host else number > 0)
        valkey.flush()


# ---- 7: uploads that break off


@every_edge
@pytest.mark.parametrize("kind", ["json", "form", "file"])
# Werkzeug leaves the file of a form that breaks off to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_7_a_submission_that_did_not_arrive_whole_is_not_done(
    valkey: Server, edge: str, kind: str
) -> None:
    """Nothing is claimed, nothing runs, and the honest retry is new."""
    body, headers = {
        "json": (b'{"cart":[1,2,3]}' + b" " * 500, {}),
        "form": (b"a=1&b=2" * 80, {"content-type": "application/x-www-form-urlencoded"}),
        "file": multipart(b"\x89PNG" * 200, "xyz"),
    }[kind]
    async with opened(edge, valkey, **REPLAY) as shop:
        cut = await shop.post(
            body=body[: len(body) // 2], headers={**KEYED, **headers}, length=len(body)
        )
        assert cut.status in (0, 400) and shop.runs == [] and valkey.keys() == []
        whole = await shop.post(body=body, headers={**KEYED, **headers})
        assert whole.status == 201 and not whole.is_replay


# ---- 9, 10: addresses


@every_edge
async def test_9_another_query_is_another_request(valkey: Server, edge: str) -> None:
    """Also behind a path that holds a `%23`, which is no fragment."""
    async with opened(edge, valkey, **REPLAY) as shop:
        path = "/orders/a%23b" if edge in ("wsgi", "flask", "django") else "/orders/a#b"
        assert (await shop.post(f"{path}?n=1", headers=KEYED)).status == 201
        assert (await shop.post(f"{path}?n=1", headers=KEYED)).is_replay
        assert (await shop.post(f"{path}?n=2", headers=KEYED)).status == 422


@every_edge
async def test_10_a_root_path_turns_nothing_off(valkey: Server, edge: str) -> None:
    """Nor is the same request under another prefix another one."""
    policy = {"route": "POST /orders"} if edge in MIDDLEWARES else {}
    async with opened(edge, valkey, **policy, **REPLAY) as shop:
        for number, root in enumerate(("/api", "", "/v2/api")):
            reply = await shop.post(root=root, headers=KEYED)
            assert (reply.status, reply.is_replay) == (201, number > 0), root
        assert len(shop.runs) == 1


@every_middleware
async def test_10_a_route_may_be_written_with_its_prefix(valkey: Server, edge: str) -> None:
    """As the server sees it, as before."""
    async with opened(edge, valkey, route="POST /api/orders", **REPLAY) as shop:
        assert [(await shop.post(root="/api", headers=KEYED)).is_replay for _ in range(2)] == [
            False,
            True,
        ]


# ---- 11: what is compared


@every_edge
@pytest.mark.parametrize("size", [10, 2 << 20], ids=["short", "2 MiB"])
async def test_11_another_uploaded_file_is_another_payload(
    valkey: Server, edge: str, size: int
) -> None:
    """The same file with another boundary is the same; the endpoint gets it whole."""
    async with opened(edge, valkey, **REPLAY) as shop:
        body, headers = multipart(b"1" * size, "first-one")
        assert (await shop.post(body=body, headers={**KEYED, **headers}, cuts=65_536)).status == 201
        body, headers = multipart(b"1" * size, "second")
        assert (await shop.post(body=body, headers={**KEYED, **headers}, cuts=9_999)).is_replay
        body, headers = multipart(b"1" * (size - 1) + b"2", "third")
        assert (await shop.post(body=body, headers={**KEYED, **headers}, cuts=9_999)).status == 422
        assert len(shop.runs) == 1


@every_edge
async def test_11_json_and_a_form_are_not_the_same(valkey: Server, edge: str) -> None:
    """Though the pairs are equal."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    async with opened(edge, valkey, **REPLAY) as shop:
        assert (await shop.post(body=b'[["a","1"]]', headers=KEYED)).status == 201
        assert (await shop.post(body=b"a=1", headers={**KEYED, **form})).status == 422


@every_middleware
@pytest.mark.parametrize("status", [404, 405])
async def test_11_a_middleware_does_not_keep_that_nobody_is_there(
    valkey: Server, edge: str, status: int
) -> None:
    """A route may come with the next deployment."""
    async with opened(edge, valkey, **REPLAY) as shop:
        shop.status = status
        assert (await shop.post(headers=KEYED)).status == status
        assert valkey.keys() == []
        shop.status = 201
        assert (await shop.post(headers=KEYED)).status == 201


# ---- 16: keys and refusals


@every_edge
async def test_16_parameters_of_a_key_are_legal_and_mean_nothing(valkey: Server, edge: str) -> None:
    """The header is a structured field: a string, and whatever is said about it."""
    async with opened(edge, valkey, **REPLAY) as shop:
        for number, key in enumerate(("abc", '"abc"', '"abc";a=1', '"abc"; a=1;b="x,;y" ;c')):
            reply = await shop.post(headers={"idempotency-key": key})
            assert (reply.status, reply.is_replay) == (201, number > 0), key
        for key in ('"abc" x', '"abc";A', '"abc";', '"abc",a=1', '"a";b="'):
            assert (await shop.post(headers={"idempotency-key": key})).status == 400, key


@every_edge
async def test_16_a_refusal_links_to_the_documentation(valkey: Server, edge: str) -> None:
    """Where the application has some; a replay is the first answer and nothing else."""
    docs = "https://shop.example/docs#idempotency"
    async with opened(edge, valkey, docs=docs, **REPLAY) as shop:
        missing = await shop.post()
        await shop.post(headers=KEYED)
        other = await shop.post(body=b"[]", headers=KEYED)
        for refused in (missing, other):
            assert refused.headers["link"] == f'<{docs}>; rel="describedby"'
        assert "link" not in (await shop.post(headers=KEYED)).headers


# ---- 14: waiting


@every_edge
async def test_14_a_duplicate_waits_for_the_answer_of_the_first(valkey: Server, edge: str) -> None:
    """It is woken by its end, and gets what came of it; its own work is not done."""
    async with opened(edge, valkey, wait=20, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        tasks = [asyncio.create_task(shop.post(headers=KEYED)) for _ in range(2)]
        await gate.begun()
        gate.open()
        replies = await asyncio.gather(*tasks)
        assert [reply.status for reply in replies] == [201, 201] and len(shop.runs) == 1
        assert sorted(reply.is_replay for reply in replies) == [False, True]


@every_edge
async def test_14_a_duplicate_takes_over_when_the_first_fails(valkey: Server, edge: str) -> None:
    """A 5xx frees the key: who waits has its turn."""
    async with opened(edge, valkey, wait=20, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        shop.statuses = [503, 201]
        tasks = [asyncio.create_task(shop.post(headers=KEYED)) for _ in range(2)]
        await gate.begun()
        gate.open()
        replies = await asyncio.gather(*tasks)
        assert sorted(reply.status for reply in replies) == [201, 503] and len(shop.runs) == 2


@every_edge
async def test_14_patience_ends_with_a_refusal(valkey: Server, edge: str) -> None:
    """Then it is told that the first is still at work."""
    async with opened(edge, valkey, wait=0.2, **REPLAY) as shop:
        gate = Gate()
        shop.gate = gate
        first = asyncio.create_task(shop.post(headers=KEYED))
        await gate.begun()
        refused = await shop.post(headers=KEYED)
        assert refused.status == 409 and refused.json["state"] == "running"
        gate.open()
        assert (await first).status == 201


# ---- settings that make no sense


@pytest.mark.parametrize("edge", ["asgi", "wsgi", "starlette", "fastapi", "flask"])
async def test_an_empty_secret_or_session_cookie_is_refused(valkey: Server, edge: str) -> None:
    """It is what a variable of the environment is that nobody has set."""
    for site in ({"secret": ""}, {"secret": b""}, {"session_cookie": ""}):
        with pytest.raises(UsageError, match=r"must not be empty|name of a cookie"):
            async with opened(edge, valkey, site=site):
                pass


@every_edge
async def test_an_empty_user_is_not_known(valkey: Server, edge: str) -> None:
    """It is nobody's name: it would join all who have none."""
    async with opened(edge, valkey, site={"user": "x-user"}, **REPLAY) as shop:
        for login in ("Bearer a", "Bearer b"):
            headers = {**KEYED, "x-user": "", "authorization": login}
            assert not (await shop.post(headers=headers)).is_replay
        assert len(shop.runs) == 2


@every_edge
async def test_many_at_once_with_other_cookies_and_cuts_are_one(valkey: Server, edge: str) -> None:
    """The first runs; the others are told that it does, or get its answer."""
    body = b'"' + b"x" * (1 << 20) + b'"'
    async with opened(edge, valkey, **REPLAY) as shop:
        calls = [
            shop.post(
                body=body, headers={**KEYED, "cookie": f"s={number}"}, cuts=10_000 + 7919 * number
            )
            for number in range(8)
        ]
        replies = await asyncio.gather(*calls)
        assert len(shop.runs) == 1 and {reply.status for reply in replies} <= {201, 409}
