# Generated from src/dibs/_async/claim_within.py by unasync.py – do not edit.
"""`claim.within(…)`: the record of a claim in a transaction that its caller opens and ends."""

import logging
from types import TracebackType
from typing import Any

from .._core.claim import Replay
from .._core.done_table import (
    OpenElsewhere,
    Ours,
    RecordAnswer,
    Recorded,
    RefusedByTable,
    ddl,
    undo,
)
from .._databases import django, transaction_of
from .._threads import monotonic, sleep
from ..errors import UsageError
from .transaction import (
    FIRST_PAUSE,
    LONGEST_PAUSE,
    Recording,
    ClaimView,
    Failed,
    checked,
    run,
    taken,
    write,
)

_log = logging.getLogger("dibs")


class Done:
    """What an earlier transaction has recorded for the key of a claim."""

    __slots__ = ("_result", "replayed")

    def __init__(self, replay: Replay | None) -> None:
        self.replayed = replay is not None
        """True: it has committed, and `result` is its result. Do not do the work again."""
        self._result = replay

    @property
    def result(self) -> Any:
        """The result that was committed. Raises UsageError if this is the first submission."""
        if self._result is None:
            raise UsageError("this submission is the first one: it has no result yet")
        return self._result.value

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {'replayed' if self.replayed else 'first'}>"


class ClaimWithin:
    """`with claim.within(session) as done:`; the record of a claim, in that transaction."""

    __slots__ = ("_claim", "_ours", "_recording", "_transaction")

    def __init__(
        self, claim: ClaimView, recording: Recording, value: Any, using: str | None
    ) -> None:
        transaction = django(using) if value is None else transaction_of(value)
        self._claim = claim
        self._recording = recording
        self._transaction = recording.transaction = checked(transaction, opened=False)
        self._ours: Ours | None = None

    def __enter__(self) -> Done:
        self._transaction.begin()
        answer = self._take()
        if isinstance(answer, Ours):
            self._ours = answer
            self._recording.join_unit(self._transaction)
            return Done(None)
        recording = self._recording
        reply = recording.answered(answer) if isinstance(answer, Recorded) else recording.running()
        recording.found_in(self._transaction)
        if isinstance(reply, RefusedByTable):
            raise reply.error
        self._claim.replayed, self._claim.result = True, reply.value
        return Done(reply)

    def _take(self) -> RecordAnswer:
        """The answer; another transaction that has the key is waited for, up to `wait`."""
        deadline, pause = monotonic() + self._recording.options.wait, FIRST_PAUSE
        while True:
            try:
                answer = taken(self._transaction, self._recording.record)
            except Failed as failed:
                if failed.failure != "missing":
                    raise failed.error from None
                raise UsageError(
                    "there is no table dibs_done; create it by a migration:\n"
                    f"{ddl(self._transaction.dialect)}"
                ) from failed.error
            if not isinstance(answer, OpenElsewhere) or monotonic() >= deadline:
                return answer
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ours, self._ours = self._ours, None
        if ours is None:
            return
        if error is not None:
            if isinstance(error, Exception):
                self._undo()
            return
        write(self._recording, self._transaction, ours, self._claim)
        if not self._transaction.on_end(self._recording.transaction_ended):
            self._recording.unseen()

    def _undo(self) -> None:
        """The work has failed, and the caller may commit all the same."""
        try:
            run(self._transaction, undo(self._transaction.dialect, self._recording.record))
        except Exception as error:  # the transaction is aborted: it cannot commit
            _log.debug("the record of a failed submission was not deleted: %s", type(error))
