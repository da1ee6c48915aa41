# Printed from src/dibs/_async/client.py by tools/unasync.py – do not edit.
"""What users call."""

import os
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from .._core.breaker import Limits
from .._core.cache import CacheOptions, make_recipe, slot_of
from .._core.fingerprint import fingerprint
from .._core.keys import (
    Seconds,
    beside,
    checked_namespace,
    checked_paths,
    expand,
    public_name,
    seconds,
)
from .._core.lease import (
    Holding,
    OnLate,
    OutagePolicy,
    Plan,
    checked_at_least,
    checked_max_hold,
    checked_on_late,
    checked_policy,
    is_disabled,
    milliseconds,
)
from .._core.once import NO_PAYLOAD, After, ClaimOptions, OnError, Terms, make_terms
from .._core.shapes import returned_type
from .._threads import WRONG_WORLD, fits
from ..errors import Busy, Duplicate, UsageError
from ..events import Listener
from .cached import Cached, inner
from .claim import Claiming
from .exclusive import one_at_a_time
from .lease import Hold, Lease
from .ledger import Ledger
from .once import submitted_once

P = ParamSpec("P")
T = TypeVar("T")


class Dibs:
    """Only one of you should do this: short leases in Redis or Valkey.

    *target*: a URL (`redis://` `rediss://` `unix://` `valkey://` `valkeys://`
    `redis+sentinel://` `redis+cluster://` `embedded://`), or a redis-py client whose settings
    are taken over. *namespace* goes before every key. *budget*: how long the server may stay
    silent before it is an outage, in seconds. *connect*: how long opening a connection may take.
    *on_outage*: "open" goes on unguarded, "closed" raises Unavailable.

    If the environment has DIBS_DISABLED=1 when it is made, nothing is guarded: every verb goes on
    at once, with `guarded` False, and cached functions are called. A WARNING is logged.
    """

    def __init__(
        self,
        target: object,
        *,
        namespace: str = "",
        budget: Seconds = 0.25,
        connect: Seconds = 2,
        on_outage: OutagePolicy = "open",
        listeners: Iterable[Listener] = (),
    ) -> None:
        self._namespace = checked_namespace(namespace)
        self._is_disabled = off = is_disabled(os.environ.get("DIBS_DISABLED", ""))
        self._on_outage: OutagePolicy = self._policy(checked_policy(on_outage))
        limits = Limits(seconds(budget, "budget"), seconds(connect, "connect"))
        self._ledger = Ledger(target, limits, tuple(listeners), self._on_outage, off=off)

    # ---- hold

    def hold(
        self,
        key: str,
        *,
        ttl: Seconds,
        wait: Seconds = 0,
        renew: bool = False,
        max_hold: Seconds | None = None,
        at_least: Seconds = 0,
        fence: bool = False,
        on_late: OnLate = "ignore",
        on_outage: OutagePolicy | None = None,
        name: str | None = None,
    ) -> Hold:
        """Hold *key* for the length of an `with` block. Busy: somebody has it.

        *wait*: be patient that long, and be woken by the release. *renew*: keep it alive, for
        *max_hold* at most; a body whose lease is lost is cancelled and LeaseLost raised.
        *at_least*: the key stays taken that long after it was acquired, even if the block ends
        earlier. *fence*: ask for an ever-growing number. *on_late*: "raise" raises LeaseLost if
        the block ends well, but after its lease was lost. *name*: what events and errors call the
        key (default: its first word), because a key may hold personal data.
        """
        plan = self._plan(
            key, ttl, wait, fence, on_outage, name, renew, max_hold, at_least, on_late
        )
        return Hold(self._ledger, plan)

    def try_hold(
        self,
        key: str,
        *,
        ttl: Seconds,
        wait: Seconds = 0,
        at_least: Seconds = 0,
        fence: bool = False,
        on_outage: OutagePolicy | None = None,
        name: str | None = None,
    ) -> Lease | None:
        """A lease that you release yourself, or None: somebody has it."""
        plan = self._plan(key, ttl, wait, fence, on_outage, name, False, None, at_least)
        outcome = self._ledger.take(plan)
        return outcome if isinstance(outcome, Lease) else None

    def peek(self, key: str) -> Holding | None:
        """Who has *key*, and for how long; None: nobody. Unavailable: the store is out.

        If it was held here and is not any more, the lease is lost from now on.
        """
        return self._ledger.peek(expand(self._namespace, key), public_name(key))

    def exclusive(
        self,
        template: str,
        *,
        ttl: Seconds,
        busy: Callable[[Busy], Any] | None = None,
        wait: Seconds = 0,
        renew: bool = False,
        max_hold: Seconds | None = None,
        at_least: Seconds = 0,
        fence: bool = False,
        on_late: OnLate = "ignore",
        on_outage: OutagePolicy | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """One call at a time for each key: `@dibs.exclusive("sync:{account.id}", ttl=30)`.

        *template* is filled from the call's arguments. *busy* answers in place of a call that
        meets Busy; without it Busy is raised. The other options are those of `hold`.
        UsageError: the function lacks a field.
        """

        def plan_of(key: str) -> Plan:
            return self._plan(
                key, ttl, wait, fence, on_outage, template, renew, max_hold, at_least, on_late
            )

        plan_of("x")

        def decorate(
            function: Callable[P, T],
        ) -> Callable[P, T]:
            if not fits(function):
                raise UsageError(WRONG_WORLD)
            return one_at_a_time(function, self._ledger, template, plan_of, busy)

        return decorate

    # ---- once

    def claim(
        self,
        key: str,
        *,
        window: Seconds,
        after: After = "release",
        on_error: OnError = "release",
        payload: object = None,
        message: str | None = None,
        lease: Seconds | None = None,
        wait: Seconds = 0,
        codec: object = "json",
        type: Any = None,
        on_outage: OutagePolicy | None = None,
        name: str | None = None,
    ) -> Claiming:
        """Claim a submission for the length of an `with` block. Duplicate: it was made.

        *window*: how long another one is a duplicate. *after* a success: "release" leaves nothing,
        "hold" the key, "replay" the result (`claim.complete(…)`), for the rest of the window;
        *on_error* the same. *payload*: under one key, another payload is a Mismatch. *lease*: how
        long a crash blocks the key (default: the window, but 10 s at most). *wait*: how long a
        duplicate waits for the end of one that is running; then it gets its result ("replay"), or
        takes over if that one left nothing. *message*: what Duplicate says. *codec*, *type*: how a
        result is kept; see `cached`.
        """
        terms = make_terms(
            window=window, lease=lease, after=after, on_error=on_error, message=message,
            codec=codec, type=type,
        )  # fmt: skip
        seen = NO_PAYLOAD if payload is None else fingerprint(payload)
        return self._claim(key, terms, seen, on_outage, name, wait)

    def _claim(
        self,
        key: str,
        terms: Terms,
        seen: bytes,
        on_outage: OutagePolicy | None,
        name: str | None,
        wait: Seconds = 0,
    ) -> Claiming:
        """The same with terms that were checked before: integrations make them once."""
        plan = self._plan(key, terms.lease, wait, False, on_outage, name, True)
        return Claiming(self._ledger, plan, terms, seen)

    def once(
        self,
        template: str,
        *,
        window: Seconds,
        after: After = "release",
        on_error: OnError = "release",
        payload: Iterable[str] = (),
        duplicate: Callable[[Duplicate], Any] | None = None,
        message: str | None = None,
        lease: Seconds | None = None,
        wait: Seconds = 0,
        codec: object = "json",
        type: Any = None,
        on_outage: OutagePolicy | None = None,
    ) -> Callable[[Callable[P, T]], Callable[P, T]]:
        """Do each submission once: `@dibs.once("order:{user_id}:{cart_id}", window=10)`.

        *template* is filled from the call's arguments. *payload*: names or dotted paths of
        arguments that must be the same for the same key, else Mismatch. *duplicate* answers in
        place of a call that meets Duplicate. The other options are those of `claim`.
        Duplicate: it was submitted before. UsageError: a field is missing.
        """
        self._plan("x", 1, wait, False, on_outage, template)
        options = ClaimOptions(
            window=window, lease=lease, after=after, on_error=on_error, message=message,
            codec=codec,
        )  # fmt: skip
        make_terms(type=type, **options)
        paths = checked_paths(payload)

        def decorate(
            function: Callable[P, T],
        ) -> Callable[P, T]:
            if not fits(function):
                raise UsageError(WRONG_WORLD)
            # What is never kept needs no codec, whatever its type.
            of = returned_type(function) if type is None and after == "replay" else type
            terms = make_terms(type=of, **options)

            def plan_of(key: str) -> Plan:
                return self._plan(key, terms.lease, wait, False, on_outage, template, True)

            return submitted_once(
                function, self._ledger, template, plan_of, terms, paths, duplicate
            )

        return decorate

    # ---- cached

    def cached(
        self,
        template: str,
        *,
        ttl: Seconds,
        jitter: float = 0.0,
        min_ttl: Seconds = 0,
        lock_ttl: Seconds = 3,
        wait: Seconds | None = None,
        poll: Seconds = 0.08,
        stale: Seconds = 0,
        early: float = 0.0,
        negative_ttl: Seconds = 0,
        load_timeout: Seconds = 30,
        local: Seconds | bool = False,
        codec: object = "json",
        lock_key: str | None = None,
        type: Any = None,
        on_outage: OutagePolicy | None = None,
    ) -> Callable[[Callable[P, T]], Cached[P, T]]:
        """Cache a function's results: `@dibs.cached("menu:{branch_id}", ttl=180, jitter=0.2)`.

        One caller loads, in one process; all others wait for it, for *wait* at most. *stale*: how
        long past its ttl a value may be served while one refreshes it, or while loads fail.
        *early*: refresh before the end, the likelier the slower the load (1 is usual).
        *negative_ttl*: remember a failure that long. *load_timeout*: the most a load may take.
        *local*: also in this process's memory, kept true by the server. *type*: what to decode
        into (default: the function's return annotation). UsageError: an option makes no sense.
        """
        options = CacheOptions(
            ttl=ttl, jitter=jitter, min_ttl=min_ttl, lock_ttl=lock_ttl, wait=wait, poll=poll,
            stale=stale, early=early, negative_ttl=negative_ttl, load_timeout=load_timeout,
            local=local, codec=codec,
            on_outage=self._policy(on_outage),
        )  # fmt: skip
        make_recipe(template, type=type, **options)

        def decorate(function: Callable[P, T]) -> Cached[P, T]:
            if not fits(inner(function)):
                raise UsageError(WRONG_WORLD)
            of = returned_type(inner(function)) if type is None else type
            recipe = make_recipe(template, type=of, **options)
            return Cached(function, self._ledger.cache, recipe, self._namespace, lock_key)

        return decorate

    def get_or_load(
        self,
        key: str,
        loader: Callable[[], T],
        *,
        ttl: Seconds,
        jitter: float = 0.0,
        min_ttl: Seconds = 0,
        lock_ttl: Seconds = 3,
        wait: Seconds | None = None,
        poll: Seconds = 0.08,
        stale: Seconds = 0,
        early: float = 0.0,
        negative_ttl: Seconds = 0,
        load_timeout: Seconds = 30,
        local: Seconds | bool = False,
        codec: object = "json",
        lock_key: str | None = None,
        type: Any = None,
        on_outage: OutagePolicy | None = None,
        name: str | None = None,
    ) -> T:
        """The value of *key*; where there is none, what *loader* returns, kept for *ttl*.

        The options are those of `cached`.
        """
        recipe = make_recipe(
            public_name(key) if name is None else name,
            ttl=ttl, jitter=jitter, min_ttl=min_ttl, lock_ttl=lock_ttl, wait=wait, poll=poll,
            stale=stale, early=early, negative_ttl=negative_ttl, load_timeout=load_timeout,
            local=local, codec=codec, type=type,
            on_outage=self._policy(on_outage),
        )  # fmt: skip
        slot = slot_of(self._namespace, key, lock_key)
        return self._ledger.cache.get(recipe, slot, loader, (), {})

    def _plan(
        self,
        key: str,
        ttl: Seconds,
        wait: Seconds,
        fence: bool,  # noqa: FBT001 – private, and called for every hold: keywords cost time
        on_outage: OutagePolicy | None,
        name: str | None,
        renew: bool = False,  # noqa: FBT001, FBT002
        max_hold: Seconds | None = None,
        at_least: Seconds = 0,
        on_late: OnLate = "ignore",
    ) -> Plan:
        """What was asked for, checked. UsageError: before any I/O."""
        ttl = seconds(ttl, "ttl")
        data = expand(self._namespace, key)
        return Plan(
            data,
            key,
            name,
            ttl,
            milliseconds(ttl),
            seconds(wait, "wait", zero=True) if wait else 0.0,
            renew,
            None if max_hold is None else checked_max_hold(max_hold, ttl, renew=renew),
            beside(f"{self._namespace}fence:".encode(), data) if fence else None,
            self._on_outage if on_outage is None else self._policy(on_outage),
            checked_at_least(at_least, ttl) if at_least else 0.0,
            on_late if on_late == "ignore" else checked_on_late(on_late),
        )

    def _policy(self, on_outage: OutagePolicy | None) -> OutagePolicy:
        """What this call asks for, or else what was said at construction."""
        if on_outage is None:
            return self._on_outage
        policy = checked_policy(on_outage)
        return "open" if self._is_disabled else policy

    # ---- the end

    def close(self) -> None:
        """Close. Leases that are still held run out by themselves. May be called twice."""
        self._ledger.close()

    def __enter__(self) -> "Dibs":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} {self._ledger!r}>"
