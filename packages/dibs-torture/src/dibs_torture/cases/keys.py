"""Keys: missing, doubled, quoted, too long, and not even text."""

from __future__ import annotations

from ..case import case
from ..exchange import Exchange
from ..harness import Harness
from ..notifier import expect

# What a lenient server lets through: Latin-1, no UTF-8 at all, a tab, a line of two values.
ODD = {
    "Latin-1": b"caf\xe9-%s",
    "not UTF-8": b"\xff\xfe\xfd%s",
    "a tab": b"a\t%s",
    "an open quote": b'"%s',
}


def _is_malformed(harness: Harness, answer: Exchange, what: str) -> None:
    expect(harness.runs == 0, f"{what}: the app ran")
    refused = answer.complete and answer.status in harness.adapter.malformed
    expect(refused, f"{what}: {answer.seen}")


@case("required key")
async def missing_key(harness: Harness) -> None:
    """Where a key is required, a request without one is refused and does not run."""
    _is_malformed(harness, await harness.request(keys=[]), "no key")


@case("required key")
async def empty_key(harness: Harness) -> None:
    """Where a key is required, an empty one, quoted or not, is none."""
    for empty in (b"", b"  ", b'""'):
        _is_malformed(harness, await harness.request(keys=[empty]), f"the key {empty!r}")


@case("key")
async def two_keys(harness: Harness) -> None:
    """A request with two keys is refused and does not run: it is unclear which one counts."""
    _is_malformed(
        harness, await harness.request(keys=[harness.key.encode(), b"another"]), "two keys"
    )


@case("key", "memory")
async def quoted_key(harness: Harness) -> None:
    """A key in quotes, as the draft of the header has it, and a bare one are the same key."""
    harness.expect_response(await harness.request(keys=[b'"%s"' % harness.key.encode()]))
    await harness.expect_remembered()


@case("key")
async def long_key(harness: Harness) -> None:
    """A key of 5000 bytes is refused and does not run."""
    _is_malformed(harness, await harness.request(keys=[b"k" * 5000]), "a key of 5000 bytes")


@case("key")
async def odd_key(harness: Harness) -> None:
    """A key of odd bytes is refused, not an error of the server, and does not run."""
    for what, pattern in ODD.items():
        answer = await harness.request(keys=[pattern % harness.key.encode()])
        _is_malformed(harness, answer, f"a key with {what}")


@case("key", "prompt refusal")
async def key_is_not_echoed(harness: Harness) -> None:
    """A refusal does not repeat the key: it may be personal, and answers end up in logs."""
    duplicate = await harness.refusal()
    key = harness.key.encode()
    said = [duplicate.body, *(value for _, value in duplicate.headers)]
    expect(not any(key in each for each in said), "the key is in the refusal")
