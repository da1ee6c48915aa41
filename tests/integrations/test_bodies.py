"""Bodies at every edge: long ones, cut ones, uploads, and those that do not arrive whole."""

import json

import pytest

from dibs.testing import Server

from . import Call
from .edges import EDGES, OF_WSGI, opened
from .every_edge import KEYED, REPLAY, every_edge

# ---- bodies that are changed on their way


@pytest.mark.parametrize("edge", ["asgi", "starlette", "fastapi"])
async def test_a_body_that_was_unpacked_outside_is_whole(valkey: Server, edge: str) -> None:
    """Under ASGI the server says when a client has left; the length may be that of the wire."""
    async with opened(edge, valkey, after="replay", key="required") as shop:
        headers = {**KEYED, "content-type": "application/json", "content-length": "22"}
        for replayed in (False, True):
            call = await Call(shop.app, headers=headers, body=b"{}").run()
            assert (call.status, call.is_replay) == (201, replayed)


pytestmark = pytest.mark.usefixtures("nothing_stays_open")


def multipart(content: bytes, boundary: str, *, title: str = "cat") -> tuple[bytes, dict[str, str]]:
    body = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="title"\r\n\r\n{title}\r\n'
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n'
        f"Content-Type: image/png\r\n\r\n"
    ).encode()
    kind = f"multipart/form-data; boundary={boundary}"
    return body + content + f"\r\n--{boundary}--\r\n".encode(), {"content-type": kind}


# ---- long bodies


@every_edge
@pytest.mark.parametrize("size", [100, 2 << 20], ids=["short", "2 MiB"])
async def test_a_retry_is_the_same_however_the_server_cuts_its_body(
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
async def test_without_a_key_a_long_body_is_done_once(valkey: Server, edge: str) -> None:
    """Two that differ only in their last byte are two."""
    body = b'"' + b"x" * (3 << 20) + b'"'
    async with opened(edge, valkey, after="hold") as shop:
        statuses = [(await shop.post(body=body, cuts=n)).status for n in (65_536, 70_000, 9_999)]
        assert statuses == [201, 429, 429]
        assert (await shop.post(body=body[:-2] + b'y"', cuts=65_536)).status == 201
        assert len(set(shop.runs)) == 2


@every_edge
async def test_a_body_above_the_limit_is_refused_and_not_run(valkey: Server, edge: str) -> None:
    """413, and nothing is claimed; at the limit it is taken."""
    async with opened(edge, valkey, body_limit=1000, **REPLAY) as shop:
        assert (await shop.post(body=b"[" + b" " * 998 + b"]", headers=KEYED)).status == 201
        refused = await shop.post(body=b"[" + b" " * 999 + b"]", headers=KEYED)
        assert refused.status == 413 and refused.json["type"] == "urn:dibs:too-large"
        assert len(shop.runs) == 1


@pytest.mark.parametrize("edge", [edge for edge in EDGES if edge not in OF_WSGI])
async def test_a_form_in_chunks_above_the_limit_is_refused_and_not_run(
    valkey: Server, edge: str
) -> None:
    """It says nothing about its length before."""
    body, kind = multipart(b"0" * 5000, "b")
    headers = {**kind, **KEYED, "host": "shop"}
    async with opened(edge, valkey, body_limit=1000, **REPLAY) as shop:
        call = await Call(shop.app, headers=headers, body=[body[:50], body[50:]]).run()
        assert call.status == 413 and call.json["type"] == "urn:dibs:too-large"
        assert shop.runs == [] and valkey.keys() == []


# ---- uploads that break off


@every_edge
@pytest.mark.parametrize("kind", ["json", "form", "file"])
# Werkzeug leaves the file of a form that breaks off to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_submission_that_did_not_arrive_whole_is_not_done(
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


# ---- what is compared


@every_edge
@pytest.mark.parametrize("size", [10, 2 << 20], ids=["short", "2 MiB"])
async def test_another_uploaded_file_is_another_payload(
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
async def test_json_and_a_form_are_not_the_same(valkey: Server, edge: str) -> None:
    """Though the pairs are equal."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    async with opened(edge, valkey, **REPLAY) as shop:
        assert (await shop.post(body=b'[["a","1"]]', headers=KEYED)).status == 201
        assert (await shop.post(body=b"a=1", headers={**KEYED, **form})).status == 422
