"""What counts as the same: who submits, where to, and every byte of what is submitted."""

from __future__ import annotations

from ..asgi import Headers
from ..case import case
from ..exchange import Exchange
from ..news import expect
from ..stage import Call
from ..trial import Trial

PREFIXES = (64, 200 * 1024)  # bytes that two payloads have in common: more than a hasty look reads
FORM = b"application/x-www-form-urlencoded"
BOUNDARY = b"torture-boundary"
MULTIPART = b"multipart/form-data; boundary=" + BOUNDARY


def _not_taken_for(trial: Trial, first: Exchange, other: Exchange, what: str) -> str:
    """Something else was submitted: it ran, or a key that was used before is refused."""
    expect(other.complete, f"{what} got no whole answer: {other.seen}")
    if trial.runs == 2:
        trial.answered(other)
        return "runs"
    expect(other.answer != first.answer, f"{what} got the answer to the first")
    expect(trial.adapter.header is not None, f"{what} did not run: {other.seen}")
    expect(other.status in trial.adapter.mismatch, f"{what} got {other.seen}")
    return f"refused with {other.status}"


def _ann(trial: Trial) -> Headers:
    assert trial.adapter.users is not None  # or the case would not have been tried
    return trial.adapter.users[0]


def _bob(trial: Trial) -> Headers:
    assert trial.adapter.users is not None
    return trial.adapter.users[1]


# ---- who


@case("users", "memory")
async def other_user(trial: Trial) -> None:
    """What one user has submitted is nobody else's: the same of another user runs for them."""
    first = await trial.ask(headers=_ann(trial))
    trial.answered(first)
    other = await trial.ask(headers=_bob(trial))
    expect(other.answer != first.answer, "another user got the answer to the first one")
    expect(trial.runs == 2, f"the same of another user did not run: {other.seen}")
    trial.answered(other)
    await trial.remembered(first.answer, headers=_ann(trial))
    await trial.remembered(other.answer, headers=_bob(trial))


@case("users")
async def other_user_while_running(trial: Trial) -> None:
    """While one user's request runs, the same of another user runs beside it."""
    gate = trial.work_behind_a_gate()
    first = trial.post(headers=_ann(trial))
    await trial.marked("working")
    other = trial.post(headers=_bob(trial))
    await trial.news.until(
        lambda: trial.runs == 2 or other.done,
        lambda: f"another user has to wait for the first: {other.seen}",
    )
    expect(trial.runs == 2, f"the same of another user got {other.seen}")
    gate.set()
    await first.ended()
    await other.ended()


@case("replay")
async def unknown_client(trial: Trial) -> str:
    """Without a key and without a name, nobody gets the answer that somebody else got."""
    first = await trial.ask(keys=[], headers=[(b"cookie", b"cart=1")])
    if not first.complete or first.status != 201:
        return "not taken without a key"
    facts = {"client": ("192.0.2.7", 50_001)}
    other = await trial.ask(keys=[], headers=[(b"cookie", b"cart=2")], facts=facts)
    expect(other.answer != first.answer, "a stranger got the answer to the first one")
    return "runs" if trial.runs == 2 else f"refused with {other.status}"


@case("key", "memory")
async def cookies_change(trial: Trial) -> None:
    """A cookie that appears or changes does not make a retry with the same key another one."""
    trial.answered(await trial.ask(headers=[(b"cookie", b"session=one")]))
    await trial.remembered(headers=[(b"cookie", b"session=two")])
    await trial.remembered(headers=[(b"cookie", b"session=two; tracker=1")])
    await trial.remembered()


# ---- where


@case("second path", "memory")
async def other_path(trial: Trial) -> str:
    """The same submission to another path is another one; nobody gets the first one's answer."""
    first = await trial.ask()
    trial.answered(first)
    other = await trial.ask(route=trial.adapter.also_guarded or "")
    return _not_taken_for(trial, first, other, "the same to another path")


@case("memory")
async def other_query(trial: Trial) -> str:
    """The same submission with another query is another one."""
    first = await trial.ask(facts={"query_string": b"page=1"})
    trial.answered(first)
    other = await trial.ask(facts={"query_string": b"page=2"})
    return _not_taken_for(trial, first, other, "the same with another query")


@case("memory")
async def behind_a_root_path(trial: Trial) -> None:
    """Served below a root path, with or without it in the path, a request is guarded as ever."""
    method, _, path = trial.adapter.guarded.partition(" ")
    for where in (f"/api{path}", path):
        trial.renew()
        before = trial.runs
        route, facts = f"{method} {where}", {"root_path": "/api"}
        first = await trial.ask(route=route, facts=facts)
        trial.answered(first)
        retry = await trial.ask(route=route, facts=facts)
        expect(trial.runs == before + 1, f"{where} below /api is not guarded: {retry.seen}")


@case("key", "memory")
async def not_found_is_no_result(trial: Trial) -> None:
    """A 404 says that nobody is there, yet: it is not kept, and a retry runs."""

    async def handler(call: Call) -> None:
        await call.answer(404 if call.run == 1 else 201)

    trial.handle(handler)
    trial.answered(await trial.ask(), status=404)
    await trial.runs_again()


# ---- what


@case("memory")
async def payloads_that_begin_alike(trial: Trial) -> str:
    """Payloads that differ only at their end are different, however long they begin alike."""
    said = ""
    for length in PREFIXES:
        begin = b'{"item":"%s' % (trial.key.encode() + b"x" * length)
        said = await _two_payloads(trial, begin + b'1"}', begin + b'2"}', f"{length} bytes alike")
    return said


async def _two_payloads(
    trial: Trial, one: bytes, two: bytes, what: str, *, kinds: tuple[bytes, ...] = ()
) -> str:
    trial.renew()
    trial.stage.runs = 0
    types = kinds or (b"application/json",) * 2
    first = await trial.ask(body=[one], kind=types[0])
    trial.answered(first)
    other = await trial.ask(body=[two], kind=types[1])
    return _not_taken_for(trial, first, other, f"another payload ({what})")


@case("memory")
async def other_file(trial: Trial) -> str:
    """A form with another uploaded file is another submission, all its fields being the same."""
    kinds = (MULTIPART, MULTIPART)
    one, two = _upload(trial, b"a picture"), _upload(trial, b"another one")
    return await _two_payloads(trial, one, two, "another file", kinds=kinds)


def _upload(trial: Trial, file: bytes) -> bytes:
    parts = [
        b'name="item"\r\n\r\n' + trial.key.encode(),
        b'name="photo"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n' + file,
    ]
    lines = [b"--%b\r\nContent-Disposition: form-data; %b\r\n" % (BOUNDARY, part) for part in parts]
    return b"".join([*lines, b"--%b--\r\n" % BOUNDARY])


@case("memory")
async def json_is_no_form(trial: Trial) -> str:
    """A list of pairs in JSON and a form with these fields are different submissions."""
    kinds = (b"application/json", FORM)
    return await _two_payloads(trial, b'[["a","1"]]', b"a=1", "a form", kinds=kinds)


# ---- without a key


@case("keyless runs", "memory")
async def keyless_runs(trial: Trial) -> None:
    """Where only requests with a key are guarded, equal ones without a key all run."""
    for number in (1, 2, 3):
        trial.answered(await trial.ask(keys=[]))
        expect(trial.runs == number, "an equal request without a key did not run")


@case("keyless guarded", "users", "memory")
async def keyless_is_guarded(trial: Trial) -> None:
    """Where requests without a key are guarded by their content, an equal one does not run."""
    first = await trial.ask(keys=[], headers=_ann(trial))
    trial.answered(first)
    await trial.not_run_again(first.answer, keys=[], headers=_ann(trial))
