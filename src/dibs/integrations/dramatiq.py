"""Dramatiq messages that are not queued or processed twice: a class for `dramatiq.actor`.

    @dramatiq.actor(actor_class=unique(dibs, "report:{account_id}"))
    def report(account_id): ...

    report.send(42)    # a second one, while it is queued or running: a Message with the first's id

`dibs` is a `Dibs`; producers and workers use the same store and namespace.
"""

import functools
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Unpack, cast

from . import needs

with needs("dramatiq"):
    from dramatiq import Actor, Consumer, Message, Middleware
    from dramatiq.middleware import GroupCallbacks, SkipMessage

from .. import Dibs, Duplicate, Unavailable
from ._looking import Looking
from ._sync.jobs import Run, UniqueJobs
from ._unique_jobs import (
    AGAIN_WITHIN,
    Job,
    NotRun,
    Sending,
    TransactionKeywords,
    UniqueKey,
    from_base64,
    in_base64,
    is_anothers,
    transaction_options,
)

__all__ = ["unique"]

TOKEN, KEY, SENT = "dibs_token", "dibs_key", "dibs_sent"
SENDING = "dibs_sending"
"""The options of a message that have the token, the key (arguments that were encoded may give
another one), when it was sent and, in a retry or after its turn has come, the sending."""

DUPLICATE_OF = "dibs_duplicate_of"
"""The option of a message of a group or a pipeline that is sent only to be counted."""


def unique(
    dibs: Dibs, template: str, **options: Unpack[TransactionKeywords]
) -> Callable[..., "Actor[Any, Any]"]:
    """Create an actor class for unique messages: `actor_class=unique(dibs, "x:{id}")`.

    `send` and `send_with_options` of a duplicate return a message with the id of the existing one.

    Args:
        template: Filled from the arguments of the actor; `{task}` is its name.
        **options: `TransactionOptions`.

    Raises:
        UsageError: An option is invalid; or, when the actor is declared, a field is missing, or
            another actor has the same `unique(…)` without `{task}`.
    """
    checked_options = transaction_options(options)

    def actor_class(fn: Callable[..., Any], **settings: Any) -> "Actor[Any, Any]":
        key = UniqueKey(template, fn, checked_options, settings.get("actor_name") or fn.__name__)
        return _UniqueActor(UniqueJobs(dibs, key), fn, settings)

    return actor_class


class _UniqueActor(Actor[Any, Any]):
    def __init__(self, jobs: UniqueJobs, fn: Callable[..., Any], settings: dict[str, Any]) -> None:
        super().__init__(fn, **settings)
        self.dibs_jobs = jobs
        self.dibs_runs = _runs_of(self.broker)

    def key_of(self, message: Any) -> str:
        sent: str | None = message.options.get(KEY)
        return sent or self.dibs_jobs.key_of(tuple(message.args), dict(message.kwargs))

    def send_with_options(
        self,
        *,
        args: Any = (),
        kwargs: Any = None,
        delay: timedelta | int | None = None,
        **options: Any,
    ) -> Any:
        """As Dramatiq's. A duplicate is not sent: the message has the id of the one that is."""
        if isinstance(delay, timedelta):
            delay = int(delay.total_seconds() * 1000)
        message = cast(Any, self).message_with_options(args=args, kwargs=kwargs, **options)
        if self.dibs_jobs.turns is not None:
            return cast(Any, self.broker).enqueue(message, delay=delay)
        key = self.key_of(message)
        queueing = self.dibs_jobs.queueing(key, message.message_id, (delay or 0) / 1000)

        def send_claimed(sending: Sending) -> Any:
            broker: Any = self.broker
            at = delay if sending.delay is None else int(sending.delay * 1000) or None
            return broker.enqueue(message.copy(options=_options_of(sending)), delay=at)

        with ExitStack() as stack:
            try:
                sending = stack.enter_context(queueing)
            except Duplicate as error:
                if (outer := self.dibs_jobs.inside(key)) is not None:
                    kept = self.dibs_jobs.in_queue((delay or 0) / 1000)
                    outer.send_after(message.message_id, kept, send_claimed)
                    return message
                return self.dibs_jobs.answer(
                    error, args, kwargs or {}, lambda error: message.copy(message_id=error.note)
                )
            return send_claimed(sending)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In a worker, guarded. An actor that is called as a function is not."""
        message = self.dibs_runs.take_message(self)
        if message is None:
            return super().__call__(*args, **kwargs)
        options = message.options
        if DUPLICATE_OF in options:
            self.dibs_runs.refused()
            raise SkipMessage(f"not run: a duplicate of {options[DUPLICATE_OF]}")
        job = Job(
            message.message_id, options.get(TOKEN), options.get("retries", 0),
            sent_by=options.get(SENDING), sent_at=options.get(SENT),
        )  # fmt: skip
        key = self.key_of(message)
        try:
            run = self.dibs_jobs.start(key, job, self.send_waiting)
        except Duplicate as error:
            if self.dibs_jobs.waits(error, job):
                self._wait_again(message, key, job)
                raise SkipMessage("it waits for its turn") from error
            raise self._refused(error, job, message) from error
        self.dibs_runs.started(run)
        try:
            result = run.call(super().__call__, args, kwargs)
        except NotRun as refusal:
            self.dibs_runs.ended()
            raise self._refused(refusal.error, job, message) from refusal.error
        self.dibs_runs.returned()
        return result

    def _refused(self, error: Duplicate, job: Job, message: Any) -> SkipMessage:
        """Return what ends a message that is not processed.

        It comes again, or another one does it.
        """
        self._send_again(message, self.dibs_jobs.comes_again_in(error, job))
        if is_anothers(error, job):
            self.dibs_runs.refused()
        else:
            message.options["store_results"] = False  # or None replaces the result of the other
        return SkipMessage(f"not run: {error}")

    # ---- with queue=True

    def send_in_turn(self, message: Any) -> None:
        """Send *message* now, or when it is its turn."""
        if self.dibs_jobs.turns is not None:
            key, data = self.key_of(message), in_base64(message.encode())
            self.dibs_jobs.turns.send(key, message.message_id, data, self.send_waiting)

    def send_waiting(self, data: str, sending: Sending) -> None:
        """Send a message that has waited; it may be another actor's, with the same template."""
        decode: Callable[[bytes], Any] = cast(Any, Message).decode
        broker: Any = self.broker
        options = {**_options_of(sending), SENDING: sending.sending}
        broker.enqueue(decode(from_base64(data)).copy(options=options))

    def _wait_again(self, message: Any, key: str, job: Job) -> None:
        """Put a message back to its place; this delivery is acknowledged."""
        try:
            self.dibs_jobs.wait_again(key, job, in_base64(message.encode()), self.send_waiting)
        except Unavailable:
            self._send_again(message, AGAIN_WITHIN)
        message.options["store_results"] = False  # it has none yet

    def look_after(self) -> None:
        """Send what should have been sent by a process that is dead."""
        if self.dibs_jobs.turns is not None:
            self.dibs_jobs.turns.look_after(self.send_waiting)

    def _send_again(self, message: Any, delay: float | None) -> None:
        """Send the message again, for later: this delivery is acknowledged, perhaps the last."""
        if delay is not None:
            broker: Any = self.broker
            broker.enqueue(message.copy(), delay=int(delay * 1000) + 1)


# ---- where it runs


class _Here(threading.local):
    """What this thread of a worker is doing."""

    message: Any = None
    """It is about to be processed."""
    run: Run | None = None
    has_returned = False
    """Its actor has: what other middleware sends comes after it."""
    is_duplicate = False
    """Another message is in the way of this one."""
    is_sending = False
    """The run is being sent once more, or what comes after it."""
    queueing: tuple[str, Any] | None = None
    """The id of a message that is being sent by something else than its actor, and its claim."""


class _Runs(Middleware):
    """Knows the message of each thread, and ends its run when all other middleware is done with it.

    Retries are sent before that, by another middleware: they take the claim along.
    """

    def __init__(self) -> None:
        self._here = _Here()
        self._looking = Looking()

    def after_worker_boot(self, broker: Any, worker: Any) -> None:
        actors = [each for each in broker.actors.values() if isinstance(each, _UniqueActor)]
        self._looking.start(
            (each.look_after, each.dibs_jobs.turns.look_every)
            for each in actors
            if each.dibs_jobs.turns is not None
        )

    def before_worker_shutdown(self, broker: Any, worker: Any) -> None:
        self._looking.stop()

    def take_message(self, actor: Any) -> Any:
        """Return the message for which the worker calls *actor*; None: something else calls it."""
        message, is_called = self._here.message, False
        if message is not None:
            is_called = message.actor_name == actor.actor_name
        if is_called:
            self._here.message = None
        return message if is_called else None

    def started(self, run: Run) -> None:
        """This thread runs it."""
        self._here.run = run

    def returned(self) -> None:
        """Its actor has done its work."""
        self._here.has_returned = True

    def ended(self) -> None:
        """This thread has not run it after all."""
        run, self._here.run = self._here.run, None
        if run is not None:
            run.__exit__(None, None, None)

    def refused(self) -> None:
        """The message of this thread is a duplicate of another one."""
        self._here.is_duplicate = True

    def before_process_message(self, broker: Any, message: Any) -> None:
        here = self._here
        here.message, here.run, here.is_duplicate, here.is_sending = message, None, False, False
        here.has_returned = False

    def before_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        run = self._here.run
        if run is not None and run.job_id == message.message_id:
            message.options[TOKEN] = run.hand_on((delay or 0) / 1000)
            message.options[SENDING], message.options[KEY] = run.sending, run.key
            self._here.is_sending = True
        elif not {TOKEN, KEY, DUPLICATE_OF}.intersection(message.options):
            actor = broker.actors.get(message.actor_name)
            # With a delay and queue=True, it takes its place where it runs.
            if isinstance(actor, _UniqueActor) and actor.dibs_jobs.turns is None:
                self._claim(actor, message, delay)

    def _claim(self, actor: _UniqueActor, message: Any, delay: int | None) -> None:
        """Claim the key of a message of a group or a pipeline, or enqueued by hand.

        A duplicate is sent all the same, to be skipped: a group waits for each of its messages.
        """
        key, job_id = actor.key_of(message), message.message_id
        queueing = actor.dibs_jobs.queueing(key, job_id, (delay or 0) / 1000)
        try:
            sending = queueing.__enter__()
        except Duplicate as error:
            if (claimed := self._passed_on(actor, key, job_id, delay)) is not None:
                message.options.update(claimed)
            elif error.note != job_id:  # else it is an earlier delivery of it
                message.options[DUPLICATE_OF] = error.note or "?"
            return
        message.options.update(_options_of(sending))
        self._here.queueing = (job_id, queueing)

    def _passed_on(
        self, actor: _UniqueActor, key: str, job_id: str, delay: int | None
    ) -> dict[str, Any] | None:
        """The claim of the message that has just been processed, for the next of its pipeline."""
        run = actor.dibs_jobs.inside(key) if self._here.has_returned else None
        if run is None:
            return None
        token = run.pass_on(job_id, actor.dibs_jobs.in_queue((delay or 0) / 1000))
        self._here.is_sending = True
        return {TOKEN: token, KEY: run.key}

    def after_enqueue(self, broker: Any, message: Any, delay: int | None) -> None:
        self._here.is_sending = False
        job_id, queueing = self._here.queueing or (None, None)
        if queueing is not None and job_id == message.message_id:
            self._here.queueing = None
            queueing.__exit__(None, None, None)

    def _has_turn(self, broker: Any, message: Any) -> _UniqueActor | None:
        """Return the actor of *message*, if that has to wait for its turn before it is sent."""
        run, actor = self._here.run, broker.actors.get(message.actor_name)
        if not isinstance(actor, _UniqueActor) or actor.dibs_jobs.turns is None:
            return None
        is_sent_again = run is not None and run.job_id == message.message_id
        return None if is_sent_again or TOKEN in message.options else actor

    def freeing(self, broker: Any) -> Callable[..., Any]:
        """`enqueue` of *broker*, which calls no hook if it fails: then the key is free again."""
        enqueue = broker.enqueue

        @functools.wraps(enqueue)
        def call(message: Any, *args: Any, **kwargs: Any) -> Any:
            if (
                not any(args)
                and not any(kwargs.values())
                and (actor := self._has_turn(broker, message))
            ):
                actor.send_in_turn(message)
                return message
            try:
                return enqueue(message, *args, **kwargs)
            except BaseException as error:
                _, queueing = self._here.queueing or (None, None)
                self._here.queueing = None  # a run that was being passed on is taken back later
                if queueing is not None:
                    queueing.__exit__(type(error), error, error.__traceback__)
                raise

        return call

    def naming(self, broker: Any) -> Callable[..., Any]:
        """Return *consume* of *broker*.

        Its consumers name this process where they fetch a message.
        """
        consume = broker.consume

        @functools.wraps(consume)
        def call(*args: Any, **kwargs: Any) -> Any:
            return _NamingConsumer(consume(*args, **kwargs), broker)

        return call

    def after_process_message(
        self,
        broker: Any,
        message: Any,
        *,
        result: Any = None,
        exception: BaseException | None = None,
    ) -> None:
        here = self._here
        run, here.run, uncalled, here.message = here.run, None, here.message, None
        if run is not None:
            if here.is_sending:  # it could not be sent
                run.take_back()
            kind = None if exception is None else type(exception)
            run.__exit__(kind, exception, None)
        elif uncalled is not None and message.failed:
            self._give_back(broker, message)

    def after_skip_message(self, broker: Any, message: Any) -> None:
        """A middleware did not want it, for example because it is too old: its key is free.

        A duplicate counts as processed where a group is waited for: the message that is in its
        way does the work.
        """
        uncalled, self._here.message = self._here.message, None
        if uncalled is not None:
            self._give_back(broker, message)
        elif self._here.is_duplicate:
            for middleware in broker.middleware:
                if isinstance(middleware, GroupCallbacks):
                    middleware.after_process_message(broker, message)

    def _give_back(self, broker: Any, message: Any) -> None:
        actor, token = broker.get_actor(message.actor_name), message.options.get(TOKEN)
        if token is not None and isinstance(actor, _UniqueActor):
            actor.dibs_jobs.give_back(actor.key_of(message), token, actor.send_waiting)


def _options_of(sending: Sending) -> dict[str, Any]:
    """Return what a message takes along."""
    return {TOKEN: sending.token, KEY: sending.key, SENT: sending.sent_at}


class _NamingConsumer(Consumer):
    """A consumer of a broker: what it yields may wait in this process for long."""

    def __init__(self, consumer: Any, broker: Any) -> None:
        self.dibs_consumer, self.dibs_broker = consumer, broker

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dibs_consumer, name)

    def __next__(self) -> Any:
        message = next(self.dibs_consumer)
        if message is not None:
            self._name(message)
        return message

    def _name(self, message: Any) -> None:
        actor, options = self.dibs_broker.actors.get(message.actor_name), message.options
        if isinstance(actor, _UniqueActor) and options.get(TOKEN) and options.get(KEY):
            wait = (options.get("eta") or 0) / 1000 - time.time()
            actor.dibs_jobs.fetched(options[KEY], options[TOKEN], max(wait, 0.0))

    def ack(self, message: Any) -> None:
        self.dibs_consumer.ack(message)

    def nack(self, message: Any) -> None:
        self.dibs_consumer.nack(message)

    def requeue(self, messages: Any) -> None:
        self.dibs_consumer.requeue(messages)

    def close(self) -> None:
        self.dibs_consumer.close()


def _runs_of(broker: Any) -> _Runs:
    """Return the middleware of *broker*.

    Before all others, so that what comes after a run ends here.
    """
    for middleware in broker.middleware:
        if isinstance(middleware, _Runs):
            return middleware
    runs, others = _Runs(), list(broker.middleware)
    broker.add_middleware(runs, **({"before": type(others[0])} if others else {}))
    broker.enqueue, broker.consume = runs.freeing(broker), runs.naming(broker)
    return runs
