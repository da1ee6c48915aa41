"""`AsyncDibs`, the client that applications create."""

import functools
import math
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from .. import errors
from .._core.claim import NO_PAYLOAD, encoded_note
from .._core.codec_types import returned_type
from .._core.connection import DEFAULT_BUDGET, Limits
from .._core.keys import (
    OnBusy,
    OnDuplicate,
    Seconds,
    check_fields,
    check_ignored,
    checked_namespace,
    checked_paths,
    expand,
    fingerprint,
    patience,
    public_name,
    seconds,
)
from .._core.lease import HoldCall, Holding, secret_in
from .._core.lease_group import check_keys
from .._core.options import (
    ClaimKeywords,
    ClaimOptions,
    HoldKeywords,
    HoldOptions,
    OnCancel,
    OutagePolicy,
    Remembered,
    Settings,
    TryHoldKeywords,
    UntypedClaimKeywords,
    checked_policy,
    continues_when_cancelled,
    holding_of,
    is_disabled,
    takes,
)
from .._core.schedule import ScheduleKeywords, ScheduleOptions
from .._core.unit_of_work import current, use
from .._events import EventSink
from .._forks import reopen_after_fork
from .._tasks import check_function, monotonic, must_await
from ..errors import UsageError
from ..events import Listener
from .cache import AsyncCache
from .cached_functions import AsyncCaching
from .claim import AsyncClaiming, ClaimCall, once
from .committed_rows import AsyncRecords, AsyncTableQuery, FindCommitted
from .hold import AsyncHold, AsyncLease, exclusive
from .hold_all import AsyncHoldAll
from .leader import AsyncLeadership, leader_name
from .lease_table import AsyncLeases, peek
from .scheduled import AsyncScheduledFunction, AsyncScheduler, register
from .spans import traced_claiming, traced_hold
from .store import CLOSED, AsyncStore
from .streamed_functions import AsyncStreaming
from .streams import AsyncStreams
from .throttle import AsyncCounting
from .transaction import AsyncWithin
from .unit_of_work import after_commit, check_until, take

if TYPE_CHECKING:
    from .inspector import AsyncInspector
    from .job_keys import AsyncJobKeys

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncDibs(AsyncCaching, AsyncCounting, AsyncStreaming):
    """Short leases in Redis or Valkey: locks, submissions that are processed once, and a cache.

    If the environment has DIBS_DISABLED=1 when it is created, nothing is guarded: every verb
    proceeds at once, with `guarded` False, and cached functions are called; leaders wait and
    schedules pause. A WARNING is logged.

    Args:
        target: A URL (`redis://` `rediss://` `unix://` `valkey://` `valkeys://` `redis+sentinel://`
            `redis+cluster://` `embedded://`), or a redis-py client, whose settings are used.
        namespace: The prefix of every key.
        budget: How long the server may stay silent before it is an outage, in seconds.
        connect: How long opening a connection may take. None: 2 s, or *budget* if that is longer.
        on_outage: "open" proceeds unguarded, "closed" raises Unavailable.
        listeners: Callables that are called with every `Event`.
    """

    # As drivers of databases have them: a client called `dibs` hides the module of that name.
    Busy = errors.Busy
    DibsError = errors.DibsError
    Duplicate = errors.Duplicate
    Interrupted = errors.Interrupted
    LeaseLost = errors.LeaseLost
    Mismatch = errors.Mismatch
    Unavailable = errors.Unavailable
    UsageError = errors.UsageError

    def __init__(
        self,
        target: object,
        *,
        namespace: str = "",
        budget: Seconds = DEFAULT_BUDGET,
        connect: Seconds | None = None,
        on_outage: OutagePolicy = "open",
        listeners: Iterable[Listener] = (),
    ) -> None:
        namespace = checked_namespace(namespace)
        off = is_disabled(os.environ.get("DIBS_DISABLED", ""))
        policy = checked_policy(on_outage)
        allowed = None if connect is None else seconds(connect, "connect")
        limits = Limits.of(seconds(budget, "budget"), allowed)
        settings = Settings(namespace, "open" if off else policy, off)
        self._events = EventSink(tuple(listeners))
        self._store = AsyncStore(target, limits, self._events, settings.on_outage, is_disabled=off)
        self._leases = AsyncLeases(self._store, self._events)
        super().__init__(settings, AsyncCache(self._store, self._events, self._leases))
        streams = AsyncStreams(self._store, self._events, self._leases)
        reopen_after_fork(self._events, self._store, self._leases, self._cache, streams)
        holding = functools.partial(HoldOptions, settings)
        self._hold_options = Remembered(AsyncDibs.hold, holding)
        self._hold_all_options = Remembered(AsyncDibs.hold_all, holding)
        self._try_hold_options = Remembered(AsyncDibs.try_hold, holding)
        self._exclusive_options = Remembered(AsyncDibs.exclusive, holding)
        self._claim_options = Remembered(AsyncDibs.claim, ClaimOptions)
        self._once_options = Remembered(AsyncDibs.once, ClaimOptions)
        self._holding = functools.lru_cache(256)(functools.partial(holding_of, settings))
        """How the key of a claim is held; made once for each `ClaimOptions`."""
        scheduling = functools.partial(ScheduleOptions, settings)
        self._schedule_options = Remembered(AsyncDibs.scheduled, scheduling)
        AsyncCounting.__init__(self, settings, self._leases)
        AsyncStreaming.__init__(self, settings, streams)
        self._schedules: dict[str, AsyncScheduledFunction] = {}
        may_trace = self._events.may_trace
        self._new_hold = traced_hold if may_trace else AsyncHold
        self._new_claiming = traced_claiming if may_trace else AsyncClaiming

    # ---- hold

    @takes(HoldKeywords, HoldOptions)
    def hold(
        self,
        key: str,
        *,
        name: str | None = None,
        token: str | None = None,
        until: Any = None,
        **options: Unpack[HoldKeywords],
    ) -> AsyncHold:
        """Hold *key* during the `async with` block; inside a transaction, until after its commit.

        Args:
            key: The key, without the namespace.
            name: What events and errors call the key, because a key may contain personal data.
                Default: its first word.
            token: Continue the lease that another process detached; never acquire a new one.
            until: A session or connection with a transaction that dibs has not been told of: the
                key is held until that has ended. "block": to the end of the block, whatever
                transaction is around it. None: as long as the transaction of `within`.

        Raises:
            Busy: Another holder has the key.
            LeaseLost: The lease of *token* has ended, or was lost inside a transaction.
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid.
        """
        try:  # the quickest way, because this is what most programs do most
            chosen = self._hold_options.remembered(**options)
        except TypeError:
            chosen = self._hold_options(options)
        if name is None and self._events.wants_holds:
            name = public_name(key)  # once for all events
        call = HoldCall(expand(self._settings.namespace, key), key, name, chosen)
        if token is None and until is None:
            return self._new_hold(self._leases, call)
        check_until(until)
        secret = None if token is None else secret_in("hold", token)
        return self._new_hold(self._leases, call, secret=secret, until=until)

    @takes(HoldKeywords, HoldOptions)
    def hold_all(
        self, keys: Iterable[str], *, name: str | None = None, **options: Unpack[HoldKeywords]
    ) -> AsyncHoldAll:
        """Hold all of *keys* during the `async with` block, or none of them.

        Keys that share a slot, as all do outside of a cluster, are taken in one step; others in an
        order that is the same for all callers. A caller that waits keeps those that it has got.

        Args:
            keys: The keys, without the namespace.
            name: What events and errors call the keys, as in `hold`.

        Raises:
            Busy: Another holder has one of the keys: `key` says which.
            LeaseLost: A lease was lost, as in `hold`.
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid, there is no key, or one is there twice.
        """
        chosen, namespace = self._hold_all_options(options), self._settings.namespace
        calls = [HoldCall(expand(namespace, key), key, name, chosen) for key in check_keys(keys)]
        return AsyncHoldAll(self._leases, calls, self._new_hold)

    @takes(TryHoldKeywords, HoldOptions)
    def try_hold(
        self, key: str, *, name: str | None = None, **options: Unpack[TryHoldKeywords]
    ) -> Coroutine[Any, Any, AsyncLease | None]:
        """Acquire a lease that you release yourself.

        Args:
            key: The key, without the namespace.
            name: What events and errors call the key, as in `hold`.

        Returns:
            The lease, or None if another holder has the key.

        Raises:
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid.
        """
        return must_await(self._try_hold(key, name, self._try_hold_options(options)))

    async def _try_hold(self, key: str, name: str | None, chosen: HoldOptions) -> AsyncLease | None:
        call = HoldCall(expand(self._settings.namespace, key), key, name, chosen)
        since = monotonic()
        leases = self._leases
        outcome = await (take(leases, call, current()) if use.has_begun else leases.take(call))
        if self._events.wants_holds:
            self._events.taken(call, outcome, since)
        return None if isinstance(outcome, Holding) else AsyncLease(self._leases, outcome)

    def peek(self, key: str) -> Coroutine[Any, Any, Holding | None]:
        """Look up who holds *key*, and for how long.

        If this process held it and no longer does, its lease counts as lost from now on.

        Returns:
            The holder and the remaining time, or None if the key is free.

        Raises:
            Unavailable: Redis is unavailable.
        """
        key_bytes = expand(self._settings.namespace, key)
        return must_await(peek(self._leases, key_bytes, public_name(key)))

    @takes(HoldKeywords, HoldOptions)
    def exclusive(
        self,
        template: str,
        *,
        busy: OnBusy | None = None,
        until: Literal["block"] | None = None,
        **options: Unpack[HoldKeywords],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Return one call at a time for each key: `@dibs.exclusive("sync:{account.id}", ttl=30)`.

        Args:
            template: The key, with fields for the arguments of the call.
            busy: Called in place of the function, with the Busy that would be raised and, by name,
                the arguments of the call that it takes. Its result is returned.
            until: "block": to the end of the call, whatever transaction is around it.

        Raises:
            UsageError: An option is invalid, or the function lacks a field.
        """
        chosen = self._exclusive_options(options)
        if until not in (None, "block"):
            raise UsageError('until must be "block", or None: pass a session to hold')

        def decorate(
            function: Callable[P, Coroutine[Any, Any, T]],
        ) -> Callable[P, Coroutine[Any, Any, T]]:
            check_function(function)
            namespace = self._settings.namespace
            return exclusive(
                function, self._leases, namespace, template, chosen, busy, self._new_hold, until
            )

        return decorate

    async def after_commit(
        self, function: Callable[[], Coroutine[Any, Any, object] | object]
    ) -> None:
        """Have *function* called after the commit of the transaction around this call.

        Functions are called in order, before the leases of the transaction are released. What one
        raises is logged. After a rollback none is called.

        Raises:
            UsageError: No transaction is open that says when it commits.
        """
        await after_commit(self._leases, function)

    # ---- leader

    def leader(
        self,
        key: str,
        *,
        ttl: Seconds = 15,
        wait: Seconds | None = None,
        name: str | None = None,
    ) -> AsyncLeadership:
        """Lead during the `async with` block, which begins when this process is elected.

        The block gets a lease with a fence, which is renewed. If it is lost, the body is cancelled
        and LeaseLost raised. While Redis is unavailable, no process is elected.

        Args:
            key: The key, without the namespace.
            ttl: How long a leader that crashed keeps others from being elected.
            wait: How long to wait for the election. None: for ever.
            name: What events and log lines call the key. Default: the key, up to its first colon.

        Raises:
            Busy: Another process leads, and the wait is over.
            Unavailable: Redis is unavailable, and the wait is over.
            LeaseLost: The leadership was lost before the block ended.
        """
        options = functools.partial(_leader_options, self._settings, seconds(ttl, "ttl"))
        longest = patience(math.inf if wait is None else wait)
        called = leader_name(key) if name is None else name
        call = HoldCall(expand(self._settings.namespace, key), key, called, options(longest))
        return AsyncLeadership(self._leases, call, options)

    # ---- scheduled

    @takes(ScheduleKeywords, ScheduleOptions)
    def scheduled(
        self, cron: str | None = None, **options: Unpack[ScheduleKeywords]
    ) -> Callable[[F], F]:
        """Run a function by the clock, each time on one machine: `@dibs.scheduled("0 3 * * *", …)`.

        The function is returned unchanged, and runs while a `scheduler()` does. It takes no
        argument, or one that is called `run`.

        Args:
            cron: Five fields, or six with seconds first. None: pass `every`.

        Raises:
            UsageError: An option is invalid, or another function has the key.
        """
        chosen = self._schedule_options(options)
        rule = chosen.rule(cron)

        def decorate(function: F) -> F:
            check_function(function)
            scheduled_function = AsyncScheduledFunction(function, rule, chosen, self._settings)
            register(self._schedules, scheduled_function)
            return function

        return decorate

    def scheduler(self, *, drain: Seconds = 10) -> AsyncScheduler:
        """Run the scheduled functions during the `async with` block.

        Args:
            drain: How long running functions may go on when the block ends. Then they are
                cancelled, and another machine takes over. (A thread cannot be cancelled: it goes
                on.)
        """
        wait = seconds(drain, "drain", zero=True)
        return AsyncScheduler(self._leases, self._schedules, wait)

    # ---- once

    @overload
    def claim(
        self,
        key: str,
        *,
        payload: object = None,
        name: str | None = None,
        note: str | None = None,
        token: str | None = None,
        type: type[T],
        **options: Unpack[UntypedClaimKeywords],
    ) -> AsyncClaiming[T]: ...

    @overload
    def claim(
        self,
        key: str,
        *,
        payload: object = None,
        name: str | None = None,
        note: str | None = None,
        token: str | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> AsyncClaiming[Any]: ...

    @takes(ClaimKeywords, ClaimOptions)
    def claim(
        self,
        key: str,
        *,
        payload: object = None,
        name: str | None = None,
        note: str | None = None,
        token: str | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> AsyncClaiming[Any]:
        """Claim a submission during the `async with` block.

        Args:
            key: The key, without the namespace.
            payload: What must be the same for the same key.
            name: What events and errors call the key, as in `hold`.
            note: A text for duplicates (`Duplicate.note`), at most 200 characters.
            token: Continue the claim that another process detached; never make a new one.

        Raises:
            Duplicate: It was submitted before; with *token*, it is continued elsewhere, or done.
            Mismatch: It was submitted before with another payload.
            LeaseLost: The claim of *token* has ended.
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid.
        """
        try:  # as in `hold`
            chosen = self._claim_options.remembered(**options)
        except TypeError:
            chosen = self._claim_options(options)
        seen = NO_PAYLOAD if payload is None else fingerprint(payload)
        return self._claim(key, chosen, seen, name, note, token)

    def _claim(
        self,
        key: str,
        options: ClaimOptions,
        seen: bytes,
        name: str | None,
        note: str | None = None,
        token: str | None = None,
        find: FindCommitted | None = None,
    ) -> AsyncClaiming[Any]:
        """Claim with options that an integration has checked once."""
        data = expand(self._settings.namespace, key)
        call = HoldCall(data, key, name, self._holding(options))
        secret = None if token is None else secret_in("claim", token)
        table = None if find is None else AsyncTableQuery(find)
        return self._new_claiming(
            self._leases, ClaimCall(call, options, seen, encoded_note(note), secret, table)
        )

    @overload
    def once(
        self,
        template: str,
        *,
        payload: Iterable[str] = (),
        duplicate: OnDuplicate | None = None,
        within: None = None,
        retry: int = 0,
        ignore: Iterable[str] = (),
        on_cancel: OnCancel | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]: ...

    @overload  # Django: there is nothing to hand over
    def once(  # type: ignore[overload-overlap]
        self,
        template: str,
        *,
        payload: Iterable[str] = (),
        duplicate: OnDuplicate | None = None,
        within: Callable[[], AbstractAsyncContextManager[None, Any]],
        retry: int = 0,
        ignore: Iterable[str] = (),
        on_cancel: OnCancel | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]: ...

    @overload
    def once(
        self,
        template: str,
        *,
        payload: Iterable[str] = (),
        duplicate: OnDuplicate | None = None,
        within: Callable[[], AbstractAsyncContextManager[X, Any]],
        retry: int = 0,
        ignore: Iterable[str] = (),
        on_cancel: OnCancel | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> Callable[
        [Callable[Concatenate[X, P], Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]
    ]: ...

    @takes(ClaimKeywords, ClaimOptions)
    def once(
        self,
        template: str,
        *,
        payload: Iterable[str] = (),
        duplicate: OnDuplicate | None = None,
        within: Callable[[], AbstractAsyncContextManager[Any, Any]] | None = None,
        retry: int = 0,
        ignore: Iterable[str] = (),
        on_cancel: OnCancel | None = None,
        **options: Unpack[ClaimKeywords],
    ) -> Any:
        """Process each submission once: `@dibs.once("order:{user_id}:{cart_id}", window=10)`.

        Calling the function raises what entering `claim` raises.

        Args:
            template: The key, with fields for the arguments of the call.
            payload: Names or dotted paths of arguments that must be the same for the same key;
                otherwise the call raises Mismatch.
            duplicate: Called in place of the function, with the Duplicate that would be raised and,
                by name, the arguments of the call that it takes. Its result is returned.
            within: Opens a transaction of your database, such as `sessionmaker.begin`. The function
                gets what it yields as its first argument; the record of the key commits with its
                work.
            retry: How often the function is called again after a serialization failure or deadlock.
            ignore: Arguments that make no difference, where the template has no field.
            on_cancel: What becomes of the function when its caller is cancelled: "continue" lets it
                go on, and records its end; "stop" cancels it. None: "stop" with after="release",
                else "continue". A thread cannot be cancelled.

        Raises:
            UsageError: An option is invalid, a field is missing, or the template has none with
                "replay".
        """
        chosen = self._once_options(options)
        paths = checked_paths(payload)
        if within is None and retry:
            raise UsageError("retry= is for transactions: it needs within=")
        opener = None if within is None else AsyncWithin(within, retry, chosen)
        goes_on = continues_when_cancelled(on_cancel, chosen.after)

        def decorate(
            function: Callable[..., Coroutine[Any, Any, Any]],
        ) -> Callable[..., Coroutine[Any, Any, Any]]:
            check_function(function)
            shown = function if opener is None else opener.shown(function)
            terms, ignored = chosen, check_ignored(template, shown, ignore)
            if chosen.after == "replay":
                check_fields(template, shown, ignored)
            # What is never kept needs no codec, whatever its type.
            if options.get("type") is None and chosen.after == "replay":
                terms = self._once_options({**options, "type": returned_type(function)})
            namespace, holding = self._settings.namespace, self._holding(terms)
            return once(
                function, self._leases, namespace, template, terms, holding, paths, duplicate,
                self._new_claiming, opener, goes_on=goes_on,
            )  # fmt: skip

        return decorate

    @staticmethod
    def _within(opener: Any, options: ClaimOptions) -> AsyncWithin:
        """Opens the transactions of jobs and endpoints.

        Raises UsageError if *opener* cannot be called.
        """
        return AsyncWithin(opener, 0, options)

    @staticmethod
    def _committed(within: AsyncWithin) -> FindCommitted:
        """Looks up what the transactions of *within* have committed."""
        return AsyncRecords(within).find

    # ---- inspecting

    def _inspector(self) -> "AsyncInspector":
        """For the command line and the console."""
        from .inspector import AsyncInspector

        return AsyncInspector(self._store, self._settings.namespace)

    @functools.cached_property
    def _job_keys(self) -> "AsyncJobKeys":
        """For the integrations of job queues."""
        from .job_keys import AsyncJobKeys

        settings = self._settings
        return AsyncJobKeys(self._leases, settings.namespace, settings.on_outage)

    # ---- the end

    async def aclose(self) -> None:
        """Close the client; a second call does nothing. Leases that are still held expire.

        Calls of `once` functions whose callers were cancelled, and runs of streams, are waited for,
        10 s each at most; then they are cancelled.
        """
        if not self._store.is_closed:
            self._store.binding.enter()
        try:
            await self._leases.calls.finish(_DRAIN)
            await self._streams.aclose(_DRAIN)
            await self._leases.following.stop()
            await self._leases.ends.finish()
        finally:
            self._store.is_closed = True
        self._events.emit_dropped()
        await self._cache.aclose()
        await self._leases.renewer.aclose()
        await self._store.aclose()
        self._leases.waiters.wake_all()
        await self._store.leave()

    async def __aenter__(self) -> Self:
        if self._store.is_closed:
            raise UsageError(CLOSED)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            "AsyncDibs cannot be pickled or copied: its connections and leases belong to this "
            "process; create one in each process"
        )

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} at {self._store!r}, {len(self._leases.table)} held>"


_DRAIN = 10.0
"""Seconds for which closing waits for calls whose callers were cancelled."""


def _leader_options(settings: Settings, ttl: float, wait: float) -> HoldOptions:
    return HoldOptions(
        settings.never_disabled(), ttl=ttl, wait=wait, renew=True, fence=True, on_late="raise",
        on_outage="closed",
    )  # fmt: skip
