"""Keys: missing, doubled, quoted, too long, and not even text."""

from __future__ import annotations

from ..case import case
from ..exchange import Exchange
from ..news import expect
from ..trial import Trial

# What a lenient server lets through: Latin-1, no UTF-8 at all, a tab, a line of two values.
ODD = {
    "Latin-1": b"caf\xe9-%s",
    "not UTF-8": b"\xff\xfe\xfd%s",
    "a tab": b"a\t%s",
    "an open quote": b'"%s',
}


def _is_malformed(trial: Trial, answer: Exchange, what: str) -> None:
    expect(trial.runs == 0, f"{what}: the app ran")
    refused = answer.complete and answer.status in trial.adapter.malformed
    expect(refused, f"{what}: {answer.seen}")


@case("required key")
async def missing_key(trial: Trial) -> None:
    """Where a key is required, a request without one is refused and does not run."""
    _is_malformed(trial, await trial.ask(keys=[]), "no key")


@case("required key")
async def empty_key(trial: Trial) -> None:
    """Where a key is required, an empty one, quoted or not, is none."""
    for empty in (b"", b"  ", b'""'):
        _is_malformed(trial, await trial.ask(keys=[empty]), f"the key {empty!r}")


@case("key")
async def two_keys(trial: Trial) -> None:
    """A request with two keys is refused and does not run: nobody can know which one counts."""
    _is_malformed(trial, await trial.ask(keys=[trial.key.encode(), b"another"]), "two keys")


@case("key", "memory")
async def quoted_key(trial: Trial) -> None:
    """A key in quotes, as the draft of the header has it, and a bare one are the same key."""
    trial.answered(await trial.ask(keys=[b'"%s"' % trial.key.encode()]))
    await trial.remembered()


@case("key")
async def long_key(trial: Trial) -> None:
    """A key of 5000 bytes is refused and does not run."""
    _is_malformed(trial, await trial.ask(keys=[b"k" * 5000]), "a key of 5000 bytes")


@case("key")
async def odd_key(trial: Trial) -> None:
    """A key of odd bytes is refused, not an error of the server, and does not run."""
    for what, pattern in ODD.items():
        answer = await trial.ask(keys=[pattern % trial.key.encode()])
        _is_malformed(trial, answer, f"a key with {what}")


@case("key", "prompt refusal")
async def key_is_not_echoed(trial: Trial) -> None:
    """A refusal does not repeat the key: it may be personal, and answers end up in logs."""
    duplicate = await trial.refusal()
    key = trial.key.encode()
    said = [duplicate.body, *(value for _, value in duplicate.headers)]
    expect(not any(key in each for each in said), "the key is in the refusal")
