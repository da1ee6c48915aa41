# Printed from src/dibs/_async/held.py by tools/unasync.py – do not edit.
"""Which keys this process has taken, so that others here are refused without a question."""

# pyright: reportPrivateUsage=false
# A lease and this table are one thing in two files: what the table touches is not for users.

import weakref
from typing import TYPE_CHECKING

from .._core.lease import Holding, Plan
from .lease import NOT_OURS, Lease

if TYPE_CHECKING:
    from .ledger import Ledger

_SWEEP = 128
"""How many entries there may be before they are looked through for old ones."""
_UNCONFIRMED = 1.0
"""After how many seconds without a word from the store an entry that refuses others is checked."""


class Kept:
    """A key that was released, but stays taken for the rest of its `at_least`."""

    __slots__ = ("_confirmed_at", "_deadline", "_is_over", "_ledger", "_plan", "_token")

    def __init__(self, ledger: "Ledger", plan: Plan, token: bytes, until: float) -> None:
        self._ledger = ledger
        self._plan = plan
        self._token = token
        self._deadline = until
        self._is_over = False
        self._confirmed_at = until - plan.at_least

    def _lose(self, cause: str) -> None:
        """Somebody deleted the key: it is free."""
        self._is_over = True
        self._ledger.held.forget(self, self._plan.key)
        self._ledger.waiters.wake_next(self._plan.key)


Entry = Lease | Kept


class Held:
    """The table. A lease that is renewed is in it by a weak reference: see `RenewedLease`."""

    def __init__(self, ledger: "Ledger") -> None:
        self.entries: dict[bytes, Entry | weakref.ref[Lease]] = {}
        self.sweep_at = _SWEEP
        self._ledger = ledger

    def known(self, key: bytes, now: float) -> Holding | None:
        """Who has *key*, if it is this process."""
        entry = self.entry(key)
        if entry is None or entry._is_over or entry._deadline <= now:
            return None
        return Holding(entry._deadline - now, self._ledger.holder)

    def record(self, key: bytes, now: float) -> tuple[bytes, float] | None:
        """The value of *key* and for how long, if this process has written it."""
        entry = self.entry(key)
        if entry is None or entry._is_over or entry._deadline <= now:
            return None
        self._check(entry, now)
        return entry._token, entry._deadline - now

    def refusal(self, key: bytes, now: float) -> Holding | None:
        """The same as `known`, for a caller who is refused because of it."""
        entry = self.entry(key)
        if entry is None or entry._is_over or entry._deadline <= now:
            return None
        self._check(entry, now)
        return Holding(entry._deadline - now, self._ledger.holder)

    def _check(self, entry: Entry, now: float) -> None:
        """Have the store asked whether the key is still ours, at most once a second.

        The caller does not wait for it. If another program deleted the key, the lease is lost,
        and the next caller may try.
        """
        if now - entry._confirmed_at > _UNCONFIRMED:
            entry._confirmed_at = now
            self._ledger.renewer.check(entry)

    def entry(self, key: bytes) -> Entry | None:
        """What is known of *key*; it may be over."""
        entry = self.entries.get(key)
        return entry() if isinstance(entry, weakref.ref) else entry

    def keep(self, lease: Lease, until: float) -> None:
        """*lease* was released, but its key stays taken *until* then."""
        kept = Kept(self._ledger, lease._plan, lease._token, until)
        self.entries.setdefault(lease._plan.key, kept)

    def forget(self, lease: Entry, key: bytes) -> None:
        """*lease* has ended."""
        entry = self.entries.get(key)
        if entry is lease or (isinstance(entry, weakref.ref) and entry() in (lease, None)):
            self.entries.pop(key, None)

    def found(self, entry: Entry | None, value: object) -> None:
        """The key of *entry* has *value*. Lost, if that is not ours.

        *entry* was in the table before the store was asked: the answer is not older than it is.
        """
        if entry is not None and not entry._is_over and value != entry._token:
            entry._lose(NOT_OURS)

    def sweep(self, now: float) -> None:
        """Forget what has expired without being released."""
        for key in list(self.entries):
            if self.known(key, now) is None:
                self.entries.pop(key, None)
        self.sweep_at = 2 * len(self.entries) + _SWEEP

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        for key in list(self.entries):
            entry = self.entry(key)
            if isinstance(entry, Lease):
                entry._become_inherited()
        self.entries.clear()
