"""What counts as the same: who submits, where to, and every byte of what is submitted."""

from __future__ import annotations

from ..application import Call
from ..asgi import Headers
from ..case import case
from ..exchange import Exchange
from ..harness import Harness
from ..notifier import expect

PREFIXES = (64, 200 * 1024)  # bytes that two payloads have in common: more than a hasty look reads
FORM = b"application/x-www-form-urlencoded"
BOUNDARY = b"torture-boundary"
MULTIPART = b"multipart/form-data; boundary=" + BOUNDARY


def _not_taken_for(harness: Harness, first: Exchange, other: Exchange, what: str) -> str:
    """Something else was submitted: it ran, or a key that was used before is refused."""
    expect(other.complete, f"{what} got no whole answer: {other.seen}")
    if harness.runs == 2:
        harness.expect_response(other)
        return "runs"
    expect(other.response != first.response, f"{what} got the answer to the first")
    expect(harness.adapter.header is not None, f"{what} did not run: {other.seen}")
    expect(other.status in harness.adapter.mismatch, f"{what} got {other.seen}")
    return f"refused with {other.status}"


def _ann(harness: Harness) -> Headers:
    assert harness.adapter.users is not None  # or the case would not have been tried
    return harness.adapter.users[0]


def _bob(harness: Harness) -> Headers:
    assert harness.adapter.users is not None
    return harness.adapter.users[1]


# ---- who


@case("users", "memory")
async def other_user(harness: Harness) -> None:
    """Users do not share submissions: the same request from another user runs."""
    first = await harness.request(headers=_ann(harness))
    harness.expect_response(first)
    other = await harness.request(headers=_bob(harness))
    expect(other.response != first.response, "another user got the answer to the first one")
    expect(harness.runs == 2, f"the same of another user did not run: {other.seen}")
    harness.expect_response(other)
    await harness.expect_remembered(first.response, headers=_ann(harness))
    await harness.expect_remembered(other.response, headers=_bob(harness))


@case("users")
async def other_user_while_running(harness: Harness) -> None:
    """While one user's request runs, the same of another user runs beside it."""
    release = harness.block_handler()
    first = harness.start_request(headers=_ann(harness))
    await harness.wait_mark("working")
    other = harness.start_request(headers=_bob(harness))
    await harness.notifier.until(
        lambda: harness.runs == 2 or other.done,
        lambda: f"another user has to wait for the first: {other.seen}",
    )
    expect(harness.runs == 2, f"the same of another user got {other.seen}")
    release.set()
    await first.ended()
    await other.ended()


@case("users", "memory")
async def other_user_by_case(harness: Harness) -> str:
    """Credentials that differ in upper and lower case are those of two users."""
    login = dict(_ann(harness)).get(b"authorization")
    if login is None:
        return "users have no Authorization header"
    scheme, _, token = login.partition(b" ")
    headers = [(b"authorization", scheme + b" " + token.swapcase())]
    first = await harness.request(headers=_ann(harness))
    harness.expect_response(first)
    other = await harness.request(headers=headers)
    expect(harness.runs == 2, f"the same of another user did not run: {other.seen}")
    return "two users"


SIGNED = (b"Digest", b"Signature", b"HMAC-SHA256", b"AWS4-ECDSA-P256-SHA256", b"SharedKey")


@case("key", "memory")
async def signed_login(harness: Harness) -> None:
    """A client that signs every attempt again is the same client: its retry does not run."""
    for scheme in SIGNED:
        harness.use_new_key()
        attempts = [
            [(b"authorization", scheme + b" Credential=ann, Signature=%d" % number)]
            for number in (1, 2)
        ]
        first = await harness.request(headers=attempts[0])
        harness.expect_response(first)
        await harness.expect_remembered(first.response, headers=attempts[1])


@case("replay")
async def unknown_client(harness: Harness) -> str:
    """Without a key and without a user, a client does not get another client's answer."""
    first = await harness.request(keys=[], headers=[(b"cookie", b"cart=1")])
    if not first.complete or first.status != 201:
        return "not taken without a key"
    more = {"client": ("192.0.2.7", 50_001)}
    other = await harness.request(keys=[], headers=[(b"cookie", b"cart=2")], scope=more)
    expect(other.response != first.response, "another user got the answer to the first one")
    return "runs" if harness.runs == 2 else f"refused with {other.status}"


@case("key", "memory")
async def cookies_change(harness: Harness) -> None:
    """A cookie that appears or changes does not make a retry with the same key another one."""
    harness.expect_response(await harness.request(headers=[(b"cookie", b"session=one")]))
    await harness.expect_remembered(headers=[(b"cookie", b"session=two")])
    await harness.expect_remembered(headers=[(b"cookie", b"session=two; tracker=1")])
    await harness.expect_remembered()


# ---- where


@case("second path", "memory")
async def other_path(harness: Harness) -> str:
    """The same submission to another path does not get the first one's answer."""
    first = await harness.request()
    harness.expect_response(first)
    other = await harness.request(route=harness.adapter.also_guarded or "")
    return _not_taken_for(harness, first, other, "the same to another path")


@case("second method", "memory")
async def other_method(harness: Harness) -> str:
    """The same submission by another method is another one."""
    first = await harness.request()
    harness.expect_response(first)
    other = await harness.request(route=harness.adapter.also_method or "")
    return _not_taken_for(harness, first, other, "the same by another method")


@case("memory")
async def other_query(harness: Harness) -> str:
    """The same submission with another query is another one."""
    first = await harness.request(scope={"query_string": b"page=1"})
    harness.expect_response(first)
    other = await harness.request(scope={"query_string": b"page=2"})
    return _not_taken_for(harness, first, other, "the same with another query")


@case("memory")
async def behind_a_root_path(harness: Harness) -> None:
    """Served below a root path, with or without it in the path, a request is guarded as ever."""
    method, _, path = harness.adapter.guarded.partition(" ")
    for where in (f"/api{path}", path):
        harness.use_new_key()
        before = harness.runs
        route, more = f"{method} {where}", {"root_path": "/api"}
        first = await harness.request(route=route, scope=more)
        harness.expect_response(first)
        retry = await harness.request(route=route, scope=more)
        expect(harness.runs == before + 1, f"{where} below /api is not guarded: {retry.seen}")


@case("key", "memory")
async def not_found_is_no_result(harness: Harness) -> None:
    """A 404 says that nothing exists there yet: it is not stored, and a retry runs."""

    async def handler(call: Call) -> None:
        await call.respond(404 if call.run == 1 else 201)

    harness.handle(handler)
    harness.expect_response(await harness.request(), status=404)
    await harness.expect_rerun()


# ---- what


@case("memory")
async def payloads_that_begin_alike(harness: Harness) -> str:
    """Payloads that differ only at their end are different, however long they begin alike."""
    said = ""
    for length in PREFIXES:
        begin = b'{"item":"%s' % (harness.key.encode() + b"x" * length)
        said = await _two_payloads(harness, begin + b'1"}', begin + b'2"}', f"{length} bytes alike")
    return said


async def _two_payloads(
    harness: Harness, one: bytes, two: bytes, what: str, *, kinds: tuple[bytes, ...] = ()
) -> str:
    harness.use_new_key()
    harness.application.runs = 0
    types = kinds or (b"application/json",) * 2
    first = await harness.request(body=[one], content_type=types[0])
    harness.expect_response(first)
    other = await harness.request(body=[two], content_type=types[1])
    return _not_taken_for(harness, first, other, f"another payload ({what})")


@case("memory")
async def other_file(harness: Harness) -> str:
    """A form with another uploaded file is another submission, all its fields being the same."""
    kinds = (MULTIPART, MULTIPART)
    one, two = _upload(harness, b"a picture"), _upload(harness, b"another one")
    return await _two_payloads(harness, one, two, "another file", kinds=kinds)


@case("memory")
async def form_with_another_boundary(harness: Harness) -> None:
    """A form that is sent again is the same: browsers choose another boundary each time."""
    first = await harness.request(body=[_upload(harness, b"a picture")], content_type=MULTIPART)
    harness.expect_response(first)
    again = _upload(harness, b"a picture").replace(BOUNDARY, BOUNDARY[::-1])
    kind = MULTIPART.replace(BOUNDARY, BOUNDARY[::-1])
    await harness.expect_remembered(first.response, body=[again], content_type=kind)


@case("by content", "memory")
async def json_written_otherwise(harness: Harness) -> None:
    """The order of keys and white space do not make another payload of JSON."""
    item = harness.key.encode()
    first = await harness.request(body=[b'{"a":1,"item":"%b"}' % item])
    harness.expect_response(first)
    await harness.expect_remembered(first.response, body=[b'{ "item": "%b",\n  "a": 1 }' % item])


def _upload(harness: Harness, file: bytes) -> bytes:
    parts = [
        b'name="item"\r\n\r\n' + harness.key.encode(),
        b'name="photo"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n' + file,
    ]
    lines = [b"--%b\r\nContent-Disposition: form-data; %b\r\n" % (BOUNDARY, part) for part in parts]
    return b"".join([*lines, b"--%b--\r\n" % BOUNDARY])


@case("memory")
async def json_is_no_form(harness: Harness) -> str:
    """A list of pairs in JSON and a form with these fields are different submissions."""
    kinds = (b"application/json", FORM)
    return await _two_payloads(harness, b'[["a","1"]]', b"a=1", "a form", kinds=kinds)


# ---- without a key


@case("keyless runs", "memory")
async def keyless_runs(harness: Harness) -> None:
    """Where only requests with a key are guarded, equal ones without a key all run."""
    for number in (1, 2, 3):
        harness.expect_response(await harness.request(keys=[]))
        expect(harness.runs == number, "an equal request without a key did not run")


@case("keyless guarded", "users", "memory")
async def keyless_is_guarded(harness: Harness) -> None:
    """Where requests without a key are guarded by their content, an equal one does not run."""
    first = await harness.request(keys=[], headers=_ann(harness))
    harness.expect_response(first)
    await harness.expect_not_rerun(first.response, keys=[], headers=_ann(harness))
