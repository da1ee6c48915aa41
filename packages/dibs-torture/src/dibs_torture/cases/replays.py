"""Replays: the same answer again, without what belonged to the first client alone."""

from __future__ import annotations

import gzip

from ..application import JSON, Call
from ..asgi import Headers
from ..case import case
from ..exchange import Exchange
from ..harness import Harness
from ..notifier import expect

# Of one connection, of one moment, or of one client.
NEVER_AGAIN: Headers = [
    (b"set-cookie", b"session=1; HttpOnly"),
    (b"connection", b"keep-alive"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-authenticate", b"Basic"),
    (b"www-authenticate", b"Basic"),
    (b"date", b"Thu, 01 Jan 1970 00:00:00 GMT"),
]
PACKED: Headers = [
    (b"content-type", b"application/octet-stream"),
    (b"content-encoding", b"gzip"),
]
PLAIN: Headers = [(b"content-type", b"text/plain; charset=utf-8")]


async def _replayed(
    harness: Harness,
    status: int,
    chunks: list[bytes],
    *,
    headers: Headers = JSON,
    asked: Headers | None = None,
) -> Exchange:
    # The last chunk ends the body, as most frameworks do it.
    async def handler(call: Call) -> None:
        await call.start(status, headers=headers)
        for place, chunk in enumerate(chunks, start=1):
            await call.chunk(chunk, more=place < len(chunks))

    harness.handle(handler)
    first = await harness.request(headers=asked or [])
    harness.expect_response(first, status=status)
    expect(first.body == b"".join(chunks), f"the first client got {first.seen}")
    replay = await harness.expect_remembered(first.response, headers=asked or [])
    lengths = [value for name, value in replay.headers if name.lower() == b"content-length"]
    is_true = not lengths or lengths == [b"%d" % len(replay.body)]
    expect(is_true, f"the replay says content-length {b', '.join(lengths)!r}")
    return replay


@case("memory")
async def answer_is_untouched(harness: Harness) -> None:
    """The first client gets every header of the app, doubles included, and every byte."""
    headers = [*JSON, (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-own", b"kept")]

    async def handler(call: Call) -> None:
        await call.respond(200, b'{ "spaced": true }', headers=headers)

    harness.handle(handler)
    first = await harness.request()
    harness.expect_response(first, status=200)
    missing = [each for each in headers if first.headers.count(each) < headers.count(each)]
    expect(not missing, f"missing from the first answer: {missing}")
    expect(first.body == b'{ "spaced": true }', f"the first client got {first.body!r}")


@case("replay")
async def replay_of_json(harness: Harness) -> None:
    """A replay has the status, the type and the very bytes of the first answer."""
    await _replayed(harness, 201, [b'{ "b": 1,\n  "a": 1.50 }'])


@case("replay")
async def replay_is_marked(harness: Harness) -> None:
    """A replay says that it is one, and the first answer does not."""
    first = await harness.request()
    replay = await harness.expect_remembered()
    names = harness.adapter.replay_headers
    expect(not any(map(first.header, names)), "the first answer is marked as a replay")
    expect(not names or any(map(replay.header, names)), f"the replay has none of {names}")


@case("replay")
async def replay_in_chunks(harness: Harness) -> None:
    """An answer that was sent in several frames is replayed whole."""
    await _replayed(harness, 200, [b"one, ", b"two, ", b"three"], headers=PLAIN)


@case("replay")
async def replay_with_an_empty_end(harness: Harness) -> None:
    """An answer whose last frame is empty is replayed whole; frameworks that stream send that."""
    await _replayed(harness, 201, [b'{"run":1}', b""])


@case("replay")
async def replay_of_text(harness: Harness) -> None:
    """An answer that is not JSON is replayed like any other."""
    await _replayed(harness, 200, ["wörtlich".encode()], headers=PLAIN)


@case("replay")
async def replay_of_nothing(harness: Harness) -> None:
    """An empty body is replayed as an empty body."""
    await _replayed(harness, 201, [b""], headers=[(b"content-length", b"0")])


@case("replay")
async def replay_of_204(harness: Harness) -> None:
    """A 204 is a success like any other, and replayed."""
    await _replayed(harness, 204, [b""], headers=[])


@case("replay")
async def replay_of_binary(harness: Harness) -> None:
    """Bytes that are no text are replayed, with the encoding that makes sense of them."""
    packed = gzip.compress(bytes(range(256)), mtime=0)
    asked = [(b"accept-encoding", b"gzip")]
    replay = await _replayed(harness, 200, [packed], headers=PACKED, asked=asked)
    encoding = replay.header("content-encoding")
    expect(encoding == b"gzip", f"the replay's content-encoding is {encoding!r}")


@case("replay")
async def replay_can_be_read(harness: Harness) -> str:
    """A client that accepts no content coding gets no coded body, even if the first did."""
    plain = bytes(range(256))

    async def handler(call: Call) -> None:
        await call.respond(200, gzip.compress(plain, mtime=0), headers=PACKED)

    harness.handle(handler)
    harness.expect_response(
        await harness.request(headers=[(b"accept-encoding", b"gzip")]), status=200
    )
    retry = await harness.request(headers=[(b"accept-encoding", b"identity")])
    expect(harness.runs == 1, "the retry ran the app again")
    coded = retry.header("content-encoding") not in (None, b"identity")
    expect(not coded, "the retry got a coding that it does not accept")
    expect(retry.status != 200 or retry.body == plain, f"the retry got {retry.seen}")
    return "unpacked" if retry.status == 200 else f"refused with {retry.status}"


@case("replay")
async def replay_keeps_location(harness: Harness) -> None:
    """The Location of what was made is part of the result."""
    replay = await _replayed(harness, 201, [b'{"id":7}'], headers=[*JSON, (b"location", b"/7")])
    expect(replay.header("location") == b"/7", "the replay has no Location")


@case("replay")
async def replay_keeps_repeated_headers(harness: Harness) -> None:
    """A header that the app has sent in several lines has all of them in a replay."""
    links = [(b"link", b"</7>; rel=self"), (b"link", b"</8>; rel=next")]
    replay = await _replayed(harness, 201, [b'{"id":7}'], headers=[*JSON, *links])
    kept = [line for line in replay.headers if line[0].lower() == b"link"]
    joined = b", ".join(value for _, value in links)
    expect(kept in (links, [(b"link", joined)]), f"the replay has {kept}")


@case("replay")
async def replay_drops_cors(harness: Harness) -> None:
    """A replay does not allow what the first answer allowed the origin of the first client."""
    cors = [(b"access-control-allow-origin", b"https://one.example")]
    replay = await _replayed(harness, 201, [b'{"run":1}'], headers=[*JSON, *cors])
    allowed = replay.header("access-control-allow-origin")
    expect(allowed is None, f"another origin gets the permission of {allowed!r}")


@case("replay")
async def replay_drops_the_personal(harness: Harness) -> None:
    """A replay has no Set-Cookie, no challenge, no Date and nothing hop-by-hop of the first."""
    replay = await _replayed(harness, 201, [b'{"run":1}'], headers=[*JSON, *NEVER_AGAIN])
    again = [name.decode() for name, value in NEVER_AGAIN if (name, value) in replay.headers]
    expect(not again, f"replayed: {', '.join(again)}")


@case("replay")
async def replay_lasts(harness: Harness) -> None:
    """Every retry gets the same answer, also several in one moment."""
    first = await harness.request()
    harness.expect_response(first)
    retries = [harness.start_request() for _ in range(4)]
    for retry in retries:
        await retry.ended()
        expect(retry.response == first.response, f"a retry got {retry.seen}")
    await harness.expect_remembered()


@case("key", "memory")
async def other_payload(harness: Harness) -> str:
    """A key that comes back with another payload is refused, and changes nothing."""
    harness.expect_response(await harness.request())
    before = harness.runs
    other = await harness.request(body=[b'{"item":"something else"}'])
    expect(harness.runs == before, "another payload ran under the same key")
    refused = other.complete and other.status in harness.adapter.mismatch
    expect(refused, f"another payload under the same key got {other.seen}")
    await harness.expect_remembered()
    return f"refused with {other.status}"


@case("key")
async def other_payload_while_running(harness: Harness) -> None:
    """A key that comes back with another payload while the first runs is refused, too."""
    release = harness.block_handler()
    first = harness.start_request()
    await harness.wait_mark("working")
    other = harness.start_request(body=[b'{"item":"something else"}'])
    await harness.wait_refused([other])
    release.set()
    await first.ended()
    harness.expect_response(first)
    await other.ended()
    statuses = (*harness.adapter.mismatch, *harness.adapter.running)
    expect(other.status in statuses, f"another payload under the same key got {other.seen}")
