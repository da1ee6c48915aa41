"""The state machine of connections, driven by facts in every order, with a simulated clock."""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dibs._core.causes import cause_for
from dibs._core.cluster_slots import asking
from dibs._core.connection import (
    MOST_CLOSED,
    MOST_LOSSES,
    SLICES,
    Attempt,
    Circuit,
    Next,
    Outage,
    Outbox,
    TimeLimit,
    pause_after,
    unserved,
)
from dibs._core.multiplexer import Multiplexer, Redelivery
from dibs._core.request import (
    MORE,
    REPEATED,
    Channel,
    ClientInfo,
    ErrorReply,
    Request,
    can_end,
    pack,
)

BUDGET = 0.25
SLICE = BUDGET / SLICES
SILENT = cause_for("silent")


class Waiter:
    """Who waits for a reply, and is answered once at most."""

    def __init__(self) -> None:
        self.outcome: Any = None
        self.answers = 0

    def done(self) -> bool:
        return self.answers > 0

    def set_result(self, result: Any, /) -> None:
        self.answers += 1
        self.outcome = result

    def set_exception(self, exception: Exception, /) -> None:
        self.set_result(exception)


def replies(*values: Any) -> Any:
    """A parser that has these replies, and then needs more bytes."""
    left = deque(values)
    return lambda: left.popleft() if left else MORE


def request(*, release: bool = False) -> Request:
    return Request(b"x", 1, b"k", float("inf") if release else 0.0)


def sent(channel: Channel, waiter: Waiter | None, asked: Request) -> None:
    """Written at once, as a transport with room does."""
    channel.queue.append((waiter, asked))
    channel.written += len(asked.payload)


def connected() -> tuple[Multiplexer[Channel], Channel]:
    machine, channel = Multiplexer[Channel](BUDGET), Channel()
    assert machine.opened() is Next.USE
    assert machine.use(channel, 0.0) == []
    return machine, channel


# ---- silence


def looks_until(machine: Multiplexer[Channel], wanted: Next, elapsed: float = SLICE) -> int:
    """How many looks in a row it takes until the machine says *wanted*."""
    channel = machine.current
    assert channel is not None
    for number in range(1, 100):
        if machine.look(elapsed, channel.written) is wanted:
            return number
    pytest.fail(f"never {wanted}")


def test_a_silent_server_is_out_after_one_budget() -> None:
    """A request is written and nothing comes: half a budget for a second try, one budget in all."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    # One more: in the first slice the request was still on its way out.
    assert looks_until(machine, Next.OPEN) == SLICES // 2 + 1
    assert looks_until(machine, Next.TRIP) == SLICES // 2


def test_time_in_which_the_process_was_busy_counts_as_two_slices() -> None:
    """Looks that come half a second late: no trip before there were many of them."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    assert looks_until(machine, Next.TRIP, elapsed=0.5) == SLICES // 2 + 1


def test_arriving_bytes_are_not_silence() -> None:
    """A large value that arrives for ten seconds: never a trip."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    for _ in range(int(10 / SLICE)):
        channel.receive(replies(), lambda push: None)
        assert machine.look(SLICE, channel.written) is Next.NOTHING


def test_a_large_request_that_is_still_being_sent_is_not_silence() -> None:
    """The server cannot answer what it has not got; but one that takes nothing is silent."""
    machine, channel = connected()
    sent(channel, Waiter(), Request(b"x" * 1000, 1, b"k"))
    machine.started()
    for delivered in range(0, 1000, 10):
        assert machine.look(SLICE, delivered) in (Next.NOTHING, None)
    for _ in range(SLICES):
        last = machine.look(SLICE, 990)
    assert last is Next.TRIP


def test_a_request_that_is_not_written_yet_is_not_waited_for() -> None:
    """It waits for a loop that has not written it yet."""
    machine, channel = connected()
    channel.queue.append((Waiter(), request()))
    channel.unsent.append(b"x")
    machine.started()
    for _ in range(3 * SLICES):
        assert machine.look(SLICE, 0) is Next.NOTHING


def test_new_requests_do_not_hide_the_silence_of_an_old_one() -> None:
    """A hung server under traffic: the oldest request decides."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    for _ in range(2 * SLICES):
        sent(channel, Waiter(), request())
        if machine.look(SLICE, channel.written) is Next.TRIP:
            return
    pytest.fail("never an outage")


def test_nothing_unanswered_ends_the_looking() -> None:
    """No timer runs while no request waits."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    channel.receive(replies(b"OK"), lambda push: None)
    assert machine.look(SLICE, channel.written) is None


def test_looking_may_begin_again_while_there_is_no_connection() -> None:
    """The one that was looked at broke."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    machine.look(SLICE, channel.written)
    machine.lost(channel, EOFError(), 1.0)
    machine.started()
    assert machine.look(SLICE, 0) is None


def test_an_allowance_is_spent_in_slices() -> None:
    """Late slices count twice at most, and what comes resets it."""
    time_limit = TimeLimit(1.6)
    assert time_limit.slice == pytest.approx(0.1)
    assert not any(time_limit.count(60.0) for _ in range(7))
    assert time_limit.count(60.0)
    time_limit.reset()
    assert not time_limit.count(60.0)


def looks_until_outage(size: int) -> int:
    """How often the server is looked at before the silence after such a request is an outage."""
    machine, channel = connected()
    sent(channel, Waiter(), Request(bytes(size), 1, b"k"))
    machine.started()
    looks = 1
    while machine.look(SLICE, channel.written) is not Next.TRIP:
        looks += 1
    return looks


def test_a_large_request_gives_the_server_more_time() -> None:
    """While a server stores a hundred megabytes, it does not answer: 2 s more than the budget."""
    assert looks_until_outage(100_000_000) - looks_until_outage(1) == round(2.0 / SLICE)


def test_the_pauses_between_attempts_take_less_than_a_budget() -> None:
    """And no two of them are the same."""
    pauses = [pause_after(number) for number in range(1, MOST_CLOSED)]
    assert sum(pauses) < BUDGET
    assert len(set(pauses)) == len(pauses)


# ---- requests


def test_unanswered_requests_move_to_the_next_connection() -> None:
    """After a loss: in order; a release whose first execution was not seen is recognised."""
    machine, channel = connected()
    take, give = Waiter(), Waiter()
    sent(channel, take, request())
    sent(channel, give, request(release=True))
    assert machine.lost(channel, EOFError(), 1.0) is Next.OPEN
    fresh = Channel()
    assert machine.opened() is Next.USE
    for pending in machine.use(fresh, 1.0):
        sent(fresh, *pending)
    fresh.receive(replies(None, 0), lambda push: None)
    assert (take.answers, take.outcome) == (1, None)
    assert (give.answers, give.outcome) == (1, REPEATED)


def test_a_second_connection_takes_over_only_where_the_first_is_silent() -> None:
    """One that is well keeps its requests; the surplus connection is closed."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    assert machine.opened() is Next.CLOSE


def test_both_connections_may_answer_and_the_first_answer_counts() -> None:
    """The silent one answers after all: no request gets two answers."""
    machine, channel = connected()
    waiter = Waiter()
    sent(channel, waiter, request())
    machine.started()
    looks_until(machine, Next.OPEN)
    assert machine.opened() is Next.USE
    fresh = Channel()
    for pending in machine.use(fresh, 1.0):
        sent(fresh, *pending)
    channel.receive(replies(b"first"), lambda push: None)
    fresh.receive(replies(b"second"), lambda push: None)
    assert (waiter.answers, waiter.outcome) == (1, b"first")


def test_a_request_that_is_silent_on_two_connections_is_an_outage() -> None:
    """Half of the budget each, also if the second opens at once; bytes in between restart the
    time."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    looks_until(machine, Next.OPEN)
    fresh = Channel()
    fresh.has_received = True  # the handshake
    for pending in machine.use(fresh, 1.0):
        sent(fresh, *pending)
    assert machine.look(SLICE, 0) is Next.NOTHING
    assert looks_until(machine, Next.TRIP) <= SLICES // 2 + 1
    fresh.has_received = True
    assert machine.look(SLICE, 0) is Next.NOTHING
    looks_until(machine, Next.OPEN)


def named(number: int, server: str = "server:6379") -> ClientInfo:
    return ClientInfo(b"%d" % number, b"client:%d" % number, server.encode())


def superseding(channel: Channel) -> tuple[Multiplexer[Channel], Waiter, list[Any]]:
    """A silent connection, *channel* in its place: who waits, and what is written to it."""
    machine, silent = connected()
    silent.client = named(1)
    waiter = Waiter()
    sent(silent, waiter, request())
    machine.started()
    looks_until(machine, Next.OPEN)
    written = machine.use(channel, 1.0)
    silent.receive(replies(), lambda push: None)
    return machine, waiter, written


def test_the_server_ends_the_old_connection_before_anything_is_repeated() -> None:
    """By id and both addresses, as the server names it; the old one's answers do not count."""
    fresh = Channel()
    fresh.client = named(2)
    machine, waiter, written = superseding(fresh)
    assert machine.superseded == set()
    kill = pack(*b"CLIENT KILL ID 1 ADDR client:1 LADDR server:6379".split())
    assert [each.payload for _, each in written] == [kill, b"x"]
    for pending in written:
        sent(fresh, *pending)
    fresh.receive(replies(0, b"second"), lambda push: None)
    assert (waiter.answers, waiter.outcome) == (1, b"second")
    assert not machine.abandoned.clients, "0 on the same server: it was gone already"


@pytest.mark.parametrize("client", [None, named(2, "another:6379")])
def test_a_connection_that_cannot_be_ended_may_still_answer(client: ClientInfo | None) -> None:
    """The right is refused, or another server answers: it could say anything about the old one."""
    fresh = Channel()
    fresh.client = client
    machine, _, written = superseding(fresh)
    assert len(machine.superseded) == 1
    assert [each.payload for _, each in written] == [b"x"]
    assert {*machine.fail_all(1.0, SILENT)} >= {fresh} and machine.fail_all(1.0, SILENT) == []


def test_the_end_of_the_old_connection_is_no_sign_of_life() -> None:
    """The repeated request has the other half of the budget, and no third connection is tried."""
    fresh = Channel()
    fresh.client = named(2)
    machine, _, written = superseding(fresh)
    for pending in written:
        sent(fresh, *pending)
    machine.started()
    assert machine.look(SLICE, fresh.written) is Next.NOTHING
    fresh.receive(replies(1), lambda push: None)
    assert looks_until(machine, Next.TRIP) <= SLICES // 2 + 1


def test_what_was_left_is_ended_until_the_server_confirms_it() -> None:
    """A connection that breaks meanwhile is ended as well; a confirmed one is not ended again."""
    machine, channel = connected()
    channel.client = named(1)
    sent(channel, Waiter(), request())
    for number in (2, 3):
        machine.lost(channel, EOFError(), 1.0)
        channel = Channel()
        channel.client = named(number)
        written = machine.use(channel, 1.0)
        for pending in written:
            sent(channel, *pending)
    assert [each.replies for _, each in written] == [2, 1]
    channel.receive(replies(0, ErrorReply("BUSY a script runs")), lambda push: None)
    assert list(machine.abandoned.clients) == [named(2)]


def test_an_outage_leaves_connections_to_end() -> None:
    """Before what must still be delivered."""
    machine, channel = connected()
    channel.client = named(1)
    sent(channel, Waiter(), request(release=True))
    assert machine.fail_all(1.0, SILENT) == [channel]
    fresh = Channel()
    fresh.client = named(2)
    kill, release = machine.use(fresh, 2.0)
    assert b"KILL" in kill[1].payload and release[1].payload == b"x"


def test_an_idle_connection_is_not_ended() -> None:
    """Nothing of it can arrive late."""
    machine, channel = connected()
    channel.client = named(1)
    machine.lost(channel, EOFError(), 1.0)
    assert not machine.abandoned.clients


def broken(machine: Multiplexer[Channel], channel: Channel) -> tuple[Next, Channel]:
    """What follows when *channel* breaks, and the next connection with its requests."""
    found = machine.lost(channel, EOFError(), 1.0)
    fresh = Channel()
    for pending in machine.use(fresh, 1.0):
        sent(fresh, *pending)
    return found, fresh


def test_a_request_that_loses_six_connections_is_an_outage() -> None:
    """Without an answer in between: the request may be what breaks them."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    sent(channel, Waiter(), request())
    for _ in range(5):
        found, channel = broken(machine, channel)
        assert found is Next.OPEN
    assert machine.lost(channel, EOFError(), 1.0) is Next.TRIP


def test_connections_that_break_under_other_requests_are_no_outage() -> None:
    """However often: each of them has answered something."""
    machine, channel = connected()
    for _ in range(10):
        sent(channel, Waiter(), request())
        found, channel = broken(machine, channel)
        channel.receive(replies(None), lambda push: None)
        assert found is Next.OPEN


def test_a_request_of_a_thread_is_sent_twice_where_the_server_is_silent() -> None:
    """Half a budget on each of two connections; a known outage ends it at once."""
    attempt = Attempt(Circuit())
    assert attempt.silent() is Next.OPEN
    assert attempt.silent() is Next.TRIP
    circuit = Circuit()
    circuit.trip(0.0, SILENT)
    assert Attempt(circuit).silent() is Next.TRIP
    assert Attempt(circuit).lost() is Next.TRIP


def test_losses_of_other_threads_do_not_count() -> None:
    """A proxy that restarts ends the connections of all threads; each opens another one."""
    circuit = Circuit()
    assert all(Attempt(circuit).lost() is Next.OPEN for _ in range(50))
    attempt = Attempt(circuit)
    opened = [Next.OPEN] * (MOST_LOSSES - 1)
    assert [attempt.lost() for _ in range(MOST_LOSSES)] == [*opened, Next.TRIP]


def test_the_outbox_keeps_what_is_worth_delivering() -> None:
    """Releases of leases that still run; the oldest go first where there are too many."""
    outbox = Outbox()
    outbox.add(Request(b"a", 1, b"k", until=5.0), now=1.0)
    outbox.add(Request(b"b", 1, b"k"), now=1.0)
    outbox.add(Request(b"c", 1, b"k", until=9.0), now=1.0)
    waiting = outbox.take(now=6.0)
    assert [each.payload for each in waiting] == [b"c"]
    assert not outbox
    outbox.give_back(waiting)
    assert outbox


# ---- every order of facts


class EveryOrder(RuleBasedStateMachine):
    """No request is answered twice, none is forgotten, and nothing trips without silence."""

    @initialize()
    def start(self) -> None:
        self.machine = Multiplexer[Channel](BUDGET)
        self.now = 0.0
        self.waiters: list[Waiter] = []
        self.releases: list[Request] = []
        self.is_looking = False
        self.silence = 0.0
        self.heard_since_look = True
        self.head: Any = None
        self.opened = 0
        self.left: set[ClientInfo] = set()

    # -- what callers do

    @rule(release=st.booleans())
    def submit(self, release: bool) -> None:
        machine, asked = self.machine, request(release=release)
        if machine.breaker.is_open:
            assert isinstance(machine.refuse(asked, self.now), Outage)
            assert not release or asked in list(machine.outbox._requests)
            return
        waiter = Waiter()
        self.waiters.append(waiter)
        if machine.current is None:
            machine.backlog.append((waiter, asked))
        else:
            machine.current.queue.append((waiter, asked))
            machine.current.unsent.append(asked.payload)

    @rule(index=st.integers(0, 30))
    def cancel(self, index: int) -> None:
        if index < len(self.waiters) and not self.waiters[index].done():
            self.waiters[index].set_result("cancelled")

    # -- what the transport reports

    @precondition(lambda self: self.machine.current is not None)
    @rule()
    def write(self) -> None:
        channel = self.machine.current
        assert channel is not None
        channel.written += sum(map(len, channel.unsent))
        channel.unsent.clear()
        if channel.queue and not self.is_looking:
            self.is_looking = True
            self.machine.started()
            self.head, self.silence, self.heard_since_look = channel.head, 0.0, False

    @precondition(lambda self: self.machine.current is not None and self.machine.current.head)
    @rule(count=st.integers(1, 3))
    def answer(self, count: int) -> None:
        channel = self.machine.current
        assert channel is not None
        written = len(channel.queue) - len(channel.unsent)
        ending = channel.queue[0][1]
        number = ending.replies if b"KILL" in ending.payload else min(count, written)
        channel.receive(replies(*[1] * number), lambda push: None)
        if b"KILL" in ending.payload:  # that is no sign of life
            self.left -= {each for each in self.left if each.addr in ending.payload}
            self.head = channel.head if self.head and self.head[1] is ending else self.head
        else:
            self.heard_since_look = True

    @rule(count=st.integers(1, 3))
    def answer_from_a_superseded_connection(self, count: int) -> None:
        for channel in list(self.machine.superseded):
            written = len(channel.queue) - len(channel.unsent)
            channel.receive(replies(*[b"late"] * min(count, written)), lambda push: None)

    @precondition(lambda self: self.machine.current is not None)
    @rule()
    def a_piece_of_a_reply_arrives(self) -> None:
        assert self.machine.current is not None
        self.machine.current.receive(replies(), lambda push: None)
        self.heard_since_look = True

    @precondition(lambda self: self.is_looking)
    @rule(elapsed=st.sampled_from([SLICE, SLICE, SLICE, 0.05, 0.5, 30.0]))
    def look(self, elapsed: float) -> None:
        self.now += elapsed
        channel = self.machine.current
        head = channel.head if channel is not None else None
        is_silent = not self.heard_since_look and head is not None and head is self.head
        self.silence = self.silence + min(elapsed, 2 * SLICE) if is_silent else 0.0
        self.head, self.heard_since_look = head, False
        found = self.machine.look(elapsed, 0 if channel is None else channel.written)
        if found is None:
            self.is_looking = False
        elif found is Next.TRIP:
            assert self.silence >= BUDGET - SLICE, "a trip without silence"
            self.trip()
        if self.silence > BUDGET + SLICE:
            assert found is Next.TRIP, "silence without a trip"

    @precondition(lambda self: self.machine.wants_connection)
    @rule(server=st.sampled_from(["", "a:1", "a:1", "b:1"]))
    def open(self, server: str) -> None:
        machine, channel, old = self.machine, Channel(), self.machine.current
        if server:
            self.opened += 1
            channel.client = named(self.opened, server)
        assert machine.opened() is Next.USE
        if old is not None and can_end(old.client, channel.client):
            self.leave_behind(old)
        written = machine.use(channel, self.now)
        assert old is None or (old in machine.superseded) == bool(
            not can_end(old.client, channel.client)
        )
        self.left = {each for each in self.left if can_end(each, channel.client)}
        first = written[0][1].payload if written else b""
        assert all(each.addr in first for each in self.left), "repeated before the old one is ended"
        for pending in written:
            channel.queue.append(pending)
            channel.unsent.append(pending[1].payload)
        machine.breaker.close(self.now)
        self.head = None

    @rule()
    def fail_to_open(self) -> None:
        if self.machine.failed_to_open() is Next.TRIP:
            assert self.machine.current is None
            self.trip()

    @precondition(lambda self: self.machine.current is not None)
    @rule(pause=st.sampled_from([0.0, 0.1, 1.0]))
    def lose(self, pause: float) -> None:
        self.now += pause
        assert self.machine.current is not None
        self.leave_behind(self.machine.current)
        if self.machine.lost(self.machine.current, EOFError(), self.now) is Next.TRIP:
            self.trip()

    @rule()
    def switch(self) -> None:
        self.leave_behind(self.machine.current)
        self.machine.leave(self.now)

    def leave_behind(self, channel: Channel | None) -> None:
        """It is closed; what was written on it may still reach the server."""
        if channel is not None and channel.client is not None and channel.head is not None:
            self.left.add(channel.client)

    def trip(self) -> None:
        for channel in [self.machine.current, *self.machine.superseded]:
            self.leave_behind(channel)
        self.machine.trip(self.now, SILENT)
        self.machine.fail_all(self.now, SILENT)
        assert all(waiter.done() for waiter in self.waiters), "forgotten at a trip"
        self.is_looking = False

    # -- what always holds

    @invariant()
    def nobody_is_answered_twice(self) -> None:
        assert all(waiter.answers <= 1 for waiter in getattr(self, "waiters", []))

    @invariant()
    def nobody_is_forgotten(self) -> None:
        if not hasattr(self, "machine"):
            return
        queue = self.machine.current.queue if self.machine.current is not None else ()
        known = {id(getattr(waiter, "_waiter", waiter)) for waiter, _ in [*queue]}
        known |= {id(getattr(each, "_waiter", each)) for each, _ in self.machine.backlog}
        assert all(waiter.done() or id(waiter) in known for waiter in self.waiters)


class TestEveryOrder(EveryOrder.TestCase):  # type: ignore[name-defined]
    settings = settings(max_examples=300, stateful_step_count=60, deadline=None)


def test_what_the_server_could_not_serve_is_still_owed() -> None:
    """BUSY and its like are worth another try; a mistake in the request is not."""
    one, two = Request(b"", 1, b"k", until=5.0), Request(b"", 2, b"k", until=5.0)
    busy, wrong = ErrorReply("BUSY a script runs"), ErrorReply("WRONGTYPE no lease")
    assert unserved([one], 1) == ([], [])
    assert unserved([one], busy) == ([one], [])
    assert unserved([two, one], ["OK", busy, wrong]) == ([two], [])
    for elsewhere in ("MOVED 1 a:1", "ASK 1 a:1"):
        assert unserved([two, one], ["OK", busy, ErrorReply(elsewhere)]) == ([two], [one])


# ---- servers that close, requests that may have been executed


def test_a_server_that_closes_each_connection_is_out() -> None:
    """No request waits for ever; and the attempts before a connection was open do not count."""
    machine = Multiplexer[Channel](BUDGET)
    for _ in range(2):
        attempts = [machine.failed_to_open(was_closed=True) for _ in range(MOST_CLOSED - 1)]
        assert set(attempts) == {Next.NOTHING}
        machine.use(Channel(), 0.0)
        machine.leave(0.0)
    assert [machine.failed_to_open(was_closed=True) for _ in range(MOST_CLOSED)][-1] is Next.TRIP
    assert Multiplexer[Channel](BUDGET).failed_to_open() is Next.TRIP


def outcome_of(machine: Multiplexer[Channel], waiter: Waiter) -> bool:
    """Whether a request may have been executed, after an outage."""
    machine.fail_all(0.0, SILENT)
    assert isinstance(waiter.outcome, Outage)
    return waiter.outcome.sent


@pytest.mark.parametrize("end", ["lost", "left", "out"])
def test_a_request_that_was_on_a_connection_may_have_been_executed(end: str) -> None:
    """For any end of the connection; one that waited all the time was not, nor one after it."""
    machine, channel = connected()
    waiter = Waiter()
    sent(channel, waiter, request())
    if end == "lost":
        assert machine.lost(channel, ConnectionError(), 0.0) is Next.OPEN
    elif end == "left":
        assert machine.leave(0.0) is channel
    assert outcome_of(machine, waiter) is True
    machine.backlog.append((later := Waiter(), request()))
    assert outcome_of(machine, later) is False
    assert Circuit().refuse(request(), 0.0).sent is False


@pytest.mark.parametrize("is_lost", [True, False])
def test_requests_that_were_served_do_not_make_others_doubtful(is_lost: bool) -> None:
    """A connection that ended without requests on it, or whose requests the next one has taken."""
    machine, channel = connected()
    machine.backlog.append((waiter := Waiter(), request()))
    if is_lost:
        assert machine.lost(channel, ConnectionError(), 0.0) is Next.OPEN
    else:
        machine.leave(0.0)
    assert outcome_of(machine, waiter) is False
    machine.use(channel, 0.0)
    sent(channel, Waiter(), request())
    machine.lost(channel, ConnectionError(), 0.0)
    machine.use(Channel(), 0.0)
    machine.leave(0.0)
    machine.backlog.append((waiter := Waiter(), request()))
    assert outcome_of(machine, waiter) is False


def test_losses_before_an_outage_do_not_count_after_it() -> None:
    """A release that lost six connections has six again when the server is back."""
    machine, channel = connected()
    asked = request(release=True)
    for turn in range(2):
        for loss in range(MOST_LOSSES):
            sent(channel, Waiter(), asked)
            is_last = loss == MOST_LOSSES - 1
            wanted = Next.TRIP if is_last else Next.OPEN
            assert machine.lost(channel, ConnectionError(), 0.0) is wanted, (turn, loss)
            if is_last:
                machine.fail_all(0.0, SILENT)
            machine.use(channel, 0.0)


def test_what_nobody_waits_for_is_sent_again_or_to_another_node() -> None:
    """Where it was not served, or the key is elsewhere; in a cluster only."""
    asked, again, on = request(release=True), list[Request](), list[Request]()
    for reply in (1, ErrorReply("WRONGTYPE"), ErrorReply("BUSY a"), ErrorReply("MOVED 1 a:1")):
        for send_on in (on.append, None):
            Redelivery(again.append, send_on, asked).set_result(reply)
    assert (again, on) == ([asked, asked], [asked])


def test_what_was_sent_behind_asking_is_sent_on_as_well() -> None:
    """Its replies are two: the error is that of the second command."""
    again, on = list[Request](), list[Request]()
    asked = asking(Request(pack("DEL", "k"), 1, b"k", float("inf")))
    Redelivery(again.append, on.append, asked).set_result([b"OK", ErrorReply("MOVED 1 a:1")])
    Redelivery(again.append, on.append, asked).set_result([b"OK", ErrorReply("LOADING a")])
    assert (again, on) == ([asked], [asked])


def test_timers_may_run_a_moment_early() -> None:
    """Eight looks that come 5 % early are half of sixteen; a new limit is not used up at all."""
    limit = TimeLimit(BUDGET)
    assert limit.counted == 0
    for _ in range(SLICES // 2):
        assert not limit.is_half_over()
        limit.count(0.95 * SLICE)
    assert limit.is_half_over()


def test_what_has_ended_just_now_is_not_delivered() -> None:
    """The lease has run out by itself."""
    outbox = Outbox()
    outbox.add(Request(b"x", 1, b"k", 5.0), 5.0)
    assert not outbox


def test_when_another_idle_connection_is_not_trusted() -> None:
    """After a silent one, and after two that broke: a firewall forgets all of them at once."""
    attempt = Attempt(Circuit())
    assert attempt.needs_new_connection is False
    attempt.lost()
    assert attempt.needs_new_connection is False
    attempt.lost()
    assert attempt.needs_new_connection is True
    silent = Attempt(Circuit())
    silent.silent()
    assert silent.needs_new_connection is True


def test_a_limit_is_over_half_a_slice_early() -> None:
    """Timers may fire a moment early, and another slice would be waited for."""
    limit = TimeLimit(BUDGET)
    slices = [limit.count(SLICE) for _ in range(SLICES - 2)]
    assert not any(slices)
    assert not limit.count(0.9 * SLICE)
    assert limit.count(0.7 * SLICE), "0.6 slices before the end is too early, 0.4 is not"


def test_what_is_sent_behind_the_oldest_request_is_no_progress_of_it() -> None:
    """Its bytes have left; those of later requests do not hide that the server is silent."""
    machine, channel = connected()
    sent(channel, Waiter(), request())
    machine.started()
    channel.receive(replies(), lambda push: None)
    assert machine.look(SLICE, channel.written) is Next.NOTHING
    first = channel.written
    sent(channel, Waiter(), Request(b"x" * 1000, 1, b"k"))
    channel.receive(replies(), lambda push: None)
    assert machine.look(SLICE, first) is Next.NOTHING
    looks = [machine.look(SLICE, first + 10 * number) for number in range(1, SLICES + 1)]
    assert looks.index(Next.OPEN) == SLICES // 2 - 1


def test_a_connection_that_nobody_uses_may_break() -> None:
    """There is nothing to do."""
    machine, _ = connected()
    assert machine.lost(Channel(), ConnectionError(), 0.0) is Next.NOTHING
