# Generated from src/dibs/_async/transaction.py by unasync.py – do not edit.
"""The work of a submission and the record of its key, in one transaction of the user's database.

`once(within=…)` opens the transaction, `claim.within(…)` takes one that is open. The row is taken
before the work begins and completed after it; Redis gets *done* only after a commit that was seen.
"""

import contextlib
import functools
import itertools
import logging
import os
import weakref
from collections.abc import Generator, Callable
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Literal, Protocol

from .._core.claim import Replay, answer_recorded, fingerprint_in
from .._core.done_table import (
    ELSEWHERE,
    NOT_COMMITTED,
    NOT_THE_SAME,
    ONE_WRITER,
    READ_ONLY,
    WRONG_HALF,
    YIELDS_NOTHING,
    DoneRecord,
    Ours,
    RecordAnswer,
    Recorded,
    RefusedByTable,
    Statement,
    TableRows,
    create,
    database_failure,
    ddl,
    file,
    finish,
    hands_over,
    look,
    prune,
    row_key,
    shown,
    take,
    undo,
)
from .._core.keys import milliseconds
from .._core.lease import HoldCall, LeaseState
from .._core.lease_value import secret_of
from .._core.options import ClaimOptions
from .._core.unit_of_work import Outcome, Unit, current, enter
from .._databases import NotOurs, Transaction, transaction_of
from .._threads import KIND, current_task, maybe_await, monotonic, sleep
from ..errors import Duplicate, Mismatch, UsageError
from .lease_table import Leases
from .unit_of_work import OpenedUnit, given_unit, look_at

_log = logging.getLogger("dibs")

Opener = Callable[[], AbstractContextManager[Any, Any]]

_PRUNE_EVERY = 200
"""After how many first calls of a function old rows are removed."""
_MOST_CONFLICTS = 20
"""How often the row is tried for in new transactions if the database refuses that as a conflict."""
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.25


class Failed(Exception):
    """TAKE failed in a way that another transaction can mend: the work has not begun."""

    def __init__(self, failure: str, error: Exception) -> None:
        super().__init__(failure)
        self.failure = failure
        self.error = error


# ---- steps


def run(transaction: Transaction, steps: Generator[Statement, TableRows, Any]) -> Any:
    """Execute the statements of *steps*, and return what they come to."""
    rows: Any = None
    while True:
        try:
            sql, parameters = steps.send(rows)
        except StopIteration as end:
            return end.value
        rows = maybe_await(transaction.execute(sql, parameters))


def taken(transaction: Transaction, record: DoneRecord) -> RecordAnswer:
    """Return who has the row. Raises UsageError if such a transaction cannot lock it."""
    maybe_await(transaction.start())
    _check_writers(transaction)
    try:
        answer = run(transaction, take(transaction.dialect, record))
        if isinstance(answer, Ours) and transaction.dialect.file is not None:
            _writers.set((*open_writers(), (weakref.ref(transaction), weakref.ref(current_task()))))
        return answer
    except Exception as error:
        failure = database_failure(error)
        if failure == "locked":
            return ELSEWHERE
        if failure == "readonly":
            raise UsageError(READ_ONLY) from error
        if failure in ("missing", "conflict"):
            raise Failed(failure, error) from None
        raise


_Writer = tuple[weakref.ref[Transaction], weakref.ref[Any]]
_writers: ContextVar[tuple[_Writer, ...]] = ContextVar("dibs_writers", default=())
"""Transactions with a record on databases that have one writer, and whose they are."""


def open_writers() -> tuple[_Writer, ...]:
    """Return those of this task, or thread, that are open."""
    here = current_task()
    return tuple(
        (each, owner)
        for each, owner in _writers.get()
        if owner() is here and (transaction := each()) is not None and transaction.is_open
    )


def _check_writers(transaction: Transaction) -> None:
    """Raise UsageError if *transaction* would wait for one around it, which waits for its end."""
    if transaction.dialect.file is None or not _writers.get():
        return
    for each, _ in open_writers():
        around = each()
        if around is None or around.driver is transaction.driver:
            continue
        paths = [run(one, file(one.dialect)) for one in (around, transaction)]
        if _is_same(*paths):
            raise UsageError(ONE_WRITER)


def _is_same(one: str | None, other: str | None) -> bool:
    with contextlib.suppress(OSError):
        return one is not None and other is not None and os.path.samefile(one, other)
    return False


def checked(transaction: Transaction, *, opened: bool) -> Transaction:
    """Return *transaction*. Raises UsageError if it is for the other half of dibs."""
    if transaction.kind != KIND:
        raise UsageError(WRONG_HALF)
    transaction.is_opened_here = opened
    return transaction


# ---- the record of a claim

CommitState = Literal["untold", "pending", "committed", "recorded"]
"""untold: nothing is written to Redis, the table answers. pending: the transaction is open, and
says how it ends. recorded: an earlier transaction has committed the key."""


class ClaimView(Protocol):
    """What is used of a claim here."""

    result: Any
    replayed: bool

    def complete(self, value: Any) -> Any:
        """Set the result."""
        ...

    def encoded(self) -> bytes | None:
        """Return the result as it is stored. Raises UsageError if the codec cannot hold it."""
        ...

    @property
    def is_released(self) -> bool:
        """Return True if nothing may be left behind."""
        ...


class Recording:
    """The record of one claim in the table, until Redis has heard how it ended."""

    def __init__(
        self, leases: Leases, lease: LeaseState, options: ClaimOptions, row: bytes | None
    ) -> None:
        """*row*: the key of the row, if that is another one; then Redis gets no copy of it."""
        check_options(options)
        self._has_copy = row is None
        self._leases = leases
        self._lease = lease
        self.options = options
        key, token = lease.call.key, secret_of(lease.token).decode()
        seen = fingerprint_in(lease.token).decode()
        self.record = DoneRecord(row_key(row or key), token, seen, milliseconds(options.window))
        self._state: CommitState = "untold"
        self._left: tuple[bytes, int] = b"", 0
        """What Redis will have in the place of the claim, and for how long."""
        self._is_written = False
        """The transaction that ends has the record."""
        self._has_ended = False
        """The block of the claim has ended."""
        self.claim: Any = None
        """Keeps the claim alive that waits for the end of the transaction."""
        self.transaction: Transaction | None = None
        """Keeps the transaction of the caller alive, by which others see that it is open."""

    @property
    def call(self) -> HoldCall:
        """The call that holds the key."""
        return self._lease.call

    def written(self, result: bytes | None) -> None:
        """The transaction has the record."""
        self._left = result or b"", self.record.window_ms
        self._state, self._is_written = "pending", True

    # ---- answers

    def answer(self, refusal: NotOurs) -> Replay | RefusedByTable:
        """Return what a duplicate gets that has not had the row."""
        if not isinstance(refusal.answer, Recorded):
            return self.running()
        answer = self.answered(refusal.answer)
        if refusal.transaction.end == "open":  # it may itself have written the record
            self.unseen()
        return answer

    def answered(self, recorded: Recorded) -> Replay | RefusedByTable:
        """Return what a duplicate gets of a committed record, with which Redis is filled again."""
        seen, call, events = self.record.fingerprint, self.call, self._leases.events
        if recorded.fingerprint == seen:
            self._left = recorded.result or b"", milliseconds(recorded.left)
            self._state = "recorded"
        answer = answer_recorded(self.options, call, seen.encode(), recorded)
        if isinstance(answer, Replay):
            events.emit("replayed", call.name, source="table")
            return answer
        if isinstance(answer, Mismatch):
            events.emit("mismatch", call.name, source="table")
        else:
            facts: dict[str, Any] = {"retry_after": answer.retry_after, "state": "done"}
            events.emit("duplicate", call.name, source="table", **facts)
        return RefusedByTable(answer)

    def running(self) -> RefusedByTable:
        """The answer while another transaction has the key."""
        call, wait = self.call, self.options.lease
        facts: dict[str, Any] = {"retry_after": wait, "state": "running"}
        self._leases.events.emit("duplicate", call.name, source="table", **facts)
        details = (self.options.message, call.name, None, "table")
        return RefusedByTable(Duplicate(call.text, wait, "running", *details))

    # ---- the end

    def transaction_ended(self, committed: bool) -> None:  # noqa: FBT001 - a callback
        """The outermost transaction has ended. Do not block: it is the user's commit."""
        self._state = "committed" if committed and self._is_written else "untold"
        if self._has_ended:
            self._leases.ends.add(self._tell)

    def unseen(self) -> None:
        """Whether the transaction commits cannot be seen."""
        self._state = "untold"

    @property
    def is_committed(self) -> bool:
        """Return whether the transaction that ended here was seen to commit."""
        return self._state == "committed"

    def follow(self, transaction: Transaction, unit: Unit) -> None:
        """Have *unit* end with a transaction that does not say when that is."""
        look_at(unit, self._leases, transaction)

    def join_unit(self, transaction: Transaction) -> None:
        """Let what is done from now on wait for the end of *transaction*, which the caller ends."""
        unit = given_unit(self._leases, transaction)
        if unit.outcome is None and current() is not unit:
            enter(unit)

    def found_in(self, transaction: Transaction) -> None:
        """The record was found in *transaction*, which may itself have written it."""
        if self._state == "recorded":
            self._state, self._is_written = "pending", True
            if not transaction.on_end(self.transaction_ended):
                self.unseen()

    def end(self, claim: Any) -> bool:
        """The block of *claim* has ended: tell Redis, or wait for the transaction."""
        self._has_ended = True
        if self._state == "pending":
            self.claim = claim
            return True
        return self._tell()

    def _tell(self) -> bool:
        try:
            if self._state == "untold" or not self._has_copy:
                return self._leases.end(self._lease)
            return self._leases.copy(self._lease, *self._left)
        finally:
            self.claim = None  # not before: a claim that is garbage ends its lease


def write(
    recording: Recording, transaction: Transaction, ours: Ours, claim: ClaimView
) -> None:
    """The last statement: the result of *claim*; nothing stays of one that was released."""
    result = claim.encoded()  # before the commit: what cannot be stored is rolled back
    maybe_await(transaction.flush())
    try:
        if claim.is_released:
            run(transaction, undo(transaction.dialect, recording.record))
            return
        run(transaction, finish(transaction.dialect, recording.record, ours, result))
    except Exception as error:
        if database_failure(error) == "savepoint":
            raise UsageError(NOT_THE_SAME) from error
        raise
    recording.written(result)


def check_options(options: ClaimOptions) -> None:
    """Raise UsageError if these options do not go with a record in a database."""
    if options.after == "release":
        raise UsageError(
            'within= records what was done: write after="replay", or "hold" to refuse duplicates'
        )
    if options.on_error == "hold":
        raise UsageError('within= rolls back what failed, its record, too: on_error="hold" cannot')


# ---- once(within=…)


class Work:
    """One transaction, in which the row of a claim is taken and the work is done.

    It is open until it is committed with the result of the claim, or rolled back.
    """

    def __init__(self, within: "Within", claim: ClaimView, recording: Recording) -> None:
        self._within = within
        self._manager = within.transaction()
        self._claim = claim
        self.recording = recording
        self.result: Any = None
        """What the function has returned."""
        self.is_watched = False
        """The transaction says how it ends."""
        self.committed: bool | None = None
        """What it has said."""
        self._unit: OpenedUnit | None = None
        """What waits for its end."""

    def take(self) -> None:
        """Open the transaction, and take the row. NotOurs: another has it, or had it."""
        self.transaction, self._value = self._manager.__enter__()
        try:
            answer = taken(self.transaction, self.recording.record)
            if not isinstance(answer, Ours):
                raise NotOurs(answer, self.transaction)
        except BaseException as error:
            self.roll_back(error)
            raise
        self._ours = answer
        self._unit = OpenedUnit(self.transaction)

    def do(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Call *function*, with what the transaction hands over. What it raises rolls back."""
        try:
            self.result = function(*self._within.handed(self._value, args), **kwargs)
        except BaseException as error:
            self._fail(error)
            raise

    def commit(self, *, effects: bool = True) -> None:
        """Write the result of the claim, and commit. UsageError: there was no commit.

        Then carry out what has waited for it. *effects*: False if the caller calls `carry_out`,
        after what is to end before.
        """
        assert self._unit is not None
        try:
            self._unit.check()
            write(self.recording, self.transaction, self._ours, self._claim)
            self.is_watched = self.transaction.on_end(self._on_end)
        except BaseException as error:
            self._fail(error)
            raise
        try:
            self._end(self._unit)
        except BaseException:
            self._unit.decide("unknown")
            self.carry_out()
            raise
        if effects:
            self.carry_out()

    def _end(self, unit: OpenedUnit) -> None:
        try:
            self._manager.__exit__(None, None, None)
        except BaseException as error:
            self.recording.unseen()
            # The reply to the COMMIT may be lost, and the COMMIT not.
            if not self._within.has_committed(self.recording.record, error):
                raise
            self.recording.transaction_ended(committed=True)
            unit.decide("committed")
        else:
            self._within.committed(self)
            look = functools.partial(self.recording.follow, self.transaction)
            seen = self.recording.is_committed
            unit.left(is_watched=self.is_watched, is_committed=seen, look=look)

    def carry_out(self) -> None:
        """Carry out what has waited for the end of the transaction, if that was not done."""
        if self._unit is not None:
            self._unit.carry_out()

    def roll_back(self, error: BaseException, *, effects: bool = True) -> bool:
        """End the transaction by *error*. True: its context manager keeps that to itself.

        *effects*: as in `commit`.
        """
        try:
            trace = error.__traceback__
            return bool(self._manager.__exit__(type(error), error, trace))
        finally:
            self.recording.unseen()
            if self._unit is not None:
                self._unit.decide("rolled_back")
            if effects:
                self.carry_out()

    def _fail(self, error: BaseException) -> None:
        if self.roll_back(error):
            raise UsageError(NOT_COMMITTED) from error

    def _on_end(self, committed: bool) -> None:  # noqa: FBT001 - a callback
        self.committed = committed
        self.recording.transaction_ended(committed)
        if self._unit is not None:
            self._unit.on_end(committed)


class Within:
    """`within=` of one function: opens transactions, and knows what has been seen of them."""

    def __init__(self, opener: Opener, retry: int, options: ClaimOptions) -> None:
        """Raise UsageError if *opener* cannot be called, or an option does not go with it."""
        is_entered = hasattr(type(opener), "__enter__") or hasattr(type(opener), "__enter__")
        if is_entered or not callable(opener):
            raise UsageError(
                "within= must be called to open a transaction, such as engine.begin without ()"
            )
        if type(retry) is not int or retry < 0:
            raise UsageError(f"retry must be a number of times, not {retry!r}")
        check_options(options)
        self._opener = opener
        self._retry = retry
        self._hands_over = hands_over(opener)
        """The function gets what the context manager yields."""
        self._is_proven = False
        """A commit of such a transaction was seen, where the driver does not tell."""
        self._first_calls = itertools.count(1)

    def shown(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return *function* as its callers see it, without what it is handed."""
        return shown(self._opener, function)

    def handed(self, value: Any, args: Any) -> Any:
        """Return the arguments of the function, with what the context manager has yielded."""
        return (value, *args) if self._hands_over else args

    def call(
        self,
        claim: ClaimView,
        recording: Recording,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        wait: float,
    ) -> Any:
        """The result; or `Refused`, the answer to a duplicate. What the function or driver raises.

        *wait*: how long another transaction with the key is waited for. One in which nothing was
        written is rolled back, and its connection returned, before the wait.
        """
        retries, pause = self._retry, FIRST_PAUSE
        while True:
            try:
                work = self.begin(claim, recording, function, args, kwargs, wait)
                if isinstance(work, NotOurs):
                    answer = recording.answer(work)
                    return answer.value if isinstance(answer, Replay) else answer
                claim.complete(work.result)
                work.commit()
                return work.result
            except Exception as error:
                if database_failure(error) != "conflict" or not retries:
                    raise
            retries -= 1
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def begin(
        self,
        claim: ClaimView,
        recording: Recording,
        function: Callable[..., Any],
        args: Any,
        kwargs: Any,
        wait: float,
    ) -> Work | NotOurs:
        """Do the work in a transaction, which is open then; NotOurs: it is another's."""
        work = self._taken(claim, recording, wait)
        if isinstance(work, Work):
            work.do(function, args, kwargs)
        return work

    def run(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return the result of *function* in a transaction without a record."""
        outcome: Outcome = "rolled_back"
        unit: OpenedUnit | None = None
        try:
            with self.transaction() as (transaction, value):
                unit = OpenedUnit(transaction)
                result = function(*self.handed(value, args), **kwargs)
                unit.check()
                is_watched = transaction.note() and transaction.on_end(unit.on_end)
                outcome = "unknown"
            unit.left(is_watched=is_watched, is_committed=not is_watched)
        except BaseException:
            if unit is not None:
                unit.decide(outcome)
                unit.carry_out()
            raise
        unit.carry_out()
        return result

    def _taken(
        self, claim: ClaimView, recording: Recording, wait: float
    ) -> Work | NotOurs:
        """Return a transaction that has the row; one of another is waited for, up to *wait*."""
        deadline, pause = monotonic() + wait, FIRST_PAUSE
        conflicts = _MOST_CONFLICTS
        while True:
            work = Work(self, claim, recording)
            try:
                work.take()
                return work
            except NotOurs as refusal:
                if isinstance(refusal.answer, Recorded) or monotonic() >= deadline:
                    return refusal
            except Failed as error:
                if error.failure == "missing":
                    self._create()
                elif not conflicts:
                    raise error.error from None
                conflicts -= 1
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def has_committed(self, record: DoneRecord, error: BaseException) -> bool:
        """Return whether the transaction whose end has failed has committed.

        False: not known, too.
        """
        if (
            not isinstance(error, Exception)
            or isinstance(error, UsageError)
            or database_failure(error)
        ):
            return False
        try:
            return self._is_there(record)
        except Exception:
            return False

    @contextmanager
    def transaction(self) -> Generator[tuple[Transaction, Any]]:
        """Yield a transaction, and what its context manager yields."""
        manager = self._opener()
        if not hasattr(manager, "__enter__"):
            raise UsageError(WRONG_HALF)
        transaction: Transaction | None = None
        try:
            with manager as value:
                transaction = checked(transaction_of(value, manager), opened=True)
                if (value is not None) is not self._hands_over:
                    raise UsageError(YIELDS_NOTHING)
                inner = transaction.begin()
                if inner is None:
                    yield transaction, value
                else:
                    with inner:
                        yield transaction, value
        finally:
            if transaction is not None:
                transaction.close()

    # ---- its end

    def committed(self, work: Work) -> None:
        """The context manager of *work* has ended. Raises UsageError if it has not committed."""
        self._prove(work)
        self._prune_sometimes()

    def _prove(self, work: Work) -> None:
        """Tell the claim whether the commit was seen. Raises UsageError if there was none."""
        if work.is_watched:
            if work.committed is False:
                raise UsageError(NOT_COMMITTED)
            return  # None: a transaction around it is open, and says later how it ends
        end = work.transaction.end
        if end == "unknown":
            end = self._looked_up(work.recording.record)
        if end == "rolled_back":
            work.recording.unseen()
            raise UsageError(NOT_COMMITTED)
        work.recording.transaction_ended(committed=end == "committed")

    def _looked_up(self, record: DoneRecord) -> str:
        """Return the outcome of the transaction, seen from another one; once for each function."""
        if self._is_proven:
            return "committed"
        try:
            self._is_proven = self._is_there(record)
        except Exception:
            return "open"  # not known: nothing is written to Redis, the table answers
        return "committed" if self._is_proven else "rolled_back"

    def _is_there(self, record: DoneRecord) -> bool:
        """Return whether the row with our token has been committed. What the driver raises."""
        row: Recorded | None = None
        with self.transaction() as (transaction, _):
            maybe_await(transaction.start())
            row = run(transaction, look(transaction.dialect, record.key))
        return row is not None and row.token == record.token

    # ---- the table

    def _create(self) -> None:
        """Create the table. Raises UsageError if this user may not."""
        statements = ""
        try:
            with self.transaction() as (transaction, _):
                maybe_await(transaction.start())
                statements = ddl(transaction.dialect)
                run(transaction, create(transaction.dialect))
        except Exception as error:
            failure = database_failure(error)
            if failure == "denied":
                raise UsageError(
                    f"there is no table dibs_done, and this user may not create it:\n{statements}"
                ) from error
            if failure == "readonly":
                raise UsageError(READ_ONLY) from error
            if failure != "exists":  # another process was quicker
                raise

    def _prune_sometimes(self) -> None:
        """Remove some old rows, at each so-many-th first call. Never raises."""
        if next(self._first_calls) % _PRUNE_EVERY:
            return
        try:
            with self.transaction() as (transaction, _):
                maybe_await(transaction.start())
                run(transaction, prune(transaction.dialect))
        except Exception as error:
            _log.warning("old rows of dibs_done could not be removed: %s", type(error).__name__)
