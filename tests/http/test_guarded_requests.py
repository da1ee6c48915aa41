"""What every integration does with a guarded request, beside its claim."""

import hashlib
import io
from typing import Any

import pytest

from dibs import UsageError
from dibs._http.bodies import drain, file_hash
from dibs._http.policy import Policy, mark_guarded, unmark_guarded
from dibs._http.responses import Recording
from dibs.integrations._async.http_claims import how_it_ended
from dibs.integrations._request_transaction import NotFinal, OpenTransaction

REPLAYING = Policy(window=1, after="replay", store=(400, 409))


class Claim:
    """As much of a claim as the end of a request needs."""

    is_open = True

    def __init__(self) -> None:
        self.completed: list[Any] = []
        self.ended: list[str] = []

    def complete(self, response: Any) -> None:
        self.completed.append(response)

    async def end(self, how: str) -> None:
        self.ended.append(how)


class Work:
    """A transaction that says what was done with it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def commit(self, *, effects: bool) -> None:
        assert not effects, "dependencies end before what waits for the commit"
        self.calls.append("commit")

    async def roll_back(self, error: BaseException, *, effects: bool) -> None:
        assert isinstance(error, NotFinal) and not effects
        self.calls.append("roll back")


def recorded(status: int, limit: int | None = 100, **headers: str) -> Recording:
    recording = Recording(limit)
    recording.begin(status, [(name.replace("_", "-"), text) for name, text in headers.items()])
    recording.add(b"body")
    return recording


async def _call(method: Any, *arguments: Any) -> None:
    await method(*arguments)


@pytest.mark.parametrize(
    ("status", "headers", "how", "is_stored"),
    [
        (200, {}, "returned", True), (200, {"retry_after": "5"}, "returned", True),
        (399, {"retry_after": "5"}, "returned", True), (409, {}, "returned", True),
        (400, {}, "returned", True), (400, {"retry_after": "5"}, "released", False),
        (409, {"retry_after": "5"}, "released", False), (422, {}, "released", False),
        (500, {}, "raised", False),
    ],
)  # fmt: skip
async def test_a_final_response_is_handed_to_the_claim(
    status: int, headers: dict[str, str], how: str, is_stored: bool
) -> None:
    """And commits; one that is not final rolls back, and no duplicate gets it."""
    claim, work = Claim(), Work()
    transaction = OpenTransaction(work, _call)  # type: ignore[arg-type]
    ending = how_it_ended(claim, REPLAYING, recorded(status, **headers))  # type: ignore[arg-type]
    await transaction.end(ending)
    assert [each.status for each in claim.completed] == ([status] if is_stored else [])
    assert ending == how
    assert work.calls == (["commit"] if how == "returned" else ["roll back"])


def test_a_response_that_was_not_recorded_is_only_done() -> None:
    """Too long, or not to be stored."""
    claim: Any = Claim()
    assert how_it_ended(claim, REPLAYING, recorded(200, None)) == "returned"
    assert how_it_ended(claim, REPLAYING, recorded(200, 2)) == "returned"
    assert claim.completed == []


async def test_a_transaction_ends_once() -> None:
    """Nothing after its response ends it again."""
    work = Work()
    transaction = OpenTransaction(work, _call)  # type: ignore[arg-type]
    await transaction.roll_back()
    await transaction.roll_back()
    assert work.calls == ["roll back"]
    committed = Work()
    transaction = OpenTransaction(committed, _call)  # type: ignore[arg-type]
    await transaction.end("returned")
    await transaction.end("returned")
    await transaction.roll_back()
    assert committed.calls == ["commit"]


def test_a_request_is_guarded_once() -> None:
    """A second guard would refuse what the first has let through; then its scope may be reused."""
    marks: dict[str, Any] = {}
    mark_guarded(marks)
    with pytest.raises(UsageError, match="guarded already"):
        mark_guarded(marks)
    unmark_guarded(marks)
    unmark_guarded(marks)
    mark_guarded(marks)


def test_no_more_is_drained_than_was_promised() -> None:
    """In pieces of at most 64 KiB; and a body that ends early is no endless loop."""
    sizes: list[int] = []
    body = io.BytesIO(bytes(200_000))

    def read(size: int) -> bytes:
        sizes.append(size)
        return body.read(size)

    drain(read, 100_000)
    assert sizes == [65_536, 34_464]
    drain(read, 1_000_000)
    assert body.tell() == 200_000 and max(sizes) == 65_536


def test_the_hash_of_a_file_is_of_all_of_it() -> None:
    """Wherever it was read to, and it stays there."""
    content = bytes(range(256)) * 4096
    file = io.BytesIO(content)
    file.seek(100)
    assert file_hash(file) == hashlib.sha256(content).hexdigest()
    assert file.tell() == 100
