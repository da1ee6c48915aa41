# Generated from tests/behaviour/_async/test_streamed.py by unasync.py – do not edit.
"""What `streamed` promises: one run, all items from the first one, and never two runs in one."""

from collections.abc import Iterator, Callable
from typing import Any, NamedTuple

import pytest

from dibs import Dibs, Event, Interrupted, Unavailable, UsageError
from dibs.testing import FaultProxy, Server

from .._threads import Background, eventually, sleep
from ..events import kinds
from .generators import Failed, Model, Reader, begun

StartServer = Callable[..., Server]
WORDS = ("one ", "two ", "three ", "four")


def test_all_callers_of_all_clients_get_every_item_of_one_run(server: Server) -> None:
    """From the first item on, also who comes in the middle; later callers from the store."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        early = [Reader(here("a")), Reader(there("a"))]
        reading = [Background(each.read) for each in early]
        eventually(lambda: all(len(each.items) == 2 for each in early))
        late = [Reader(here("a")), Reader(there("a"))]
        reading += [Background(each.read) for each in late]
        eventually(lambda: all(len(each.items) == 2 for each in late))
        model.allowed = 4
        for each in reading:
            assert each.result() == list(WORDS)
        assert Reader(there("a")).read() == list(WORDS)
        assert model.runs == 1
        assert Reader(here("b")).read() == list(WORDS)
        assert model.runs == 2, "another key is another stream"


def test_a_caller_who_leaves_stops_nobody(server: Server) -> None:
    """Also the first one, with whom the run began, and who reads no more than one item."""
    model = Model(*WORDS)
    model.allowed = 1
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        first = here("a")
        assert next(first) == "one "
        follower = Reader(there("a"))
        reading = Background(follower.read)
        eventually(lambda: follower.items == ["one "])
        first.close()
        with pytest.raises(StopIteration):
            next(first)
        model.allowed = 4
        assert reading.result() == list(WORDS)
        assert model.runs == 1


def test_a_run_without_readers_comes_to_its_end_and_is_kept(server: Server) -> None:
    """It is paid for; the next caller gets all of it from the store."""
    model = Model(*WORDS)
    model.allowed = 1
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=60)(model.run)
        stream = answer("a")
        next(stream)
        del stream
        model.allowed = 4
        eventually(lambda: "loaded" in kinds(events))
        assert Reader(answer("a")).read() == list(WORDS)
        assert model.runs == 1


def test_nothing_runs_before_the_first_item_is_asked_for(valkey: Server) -> None:
    """A call alone starts nothing."""
    model = Model(*WORDS)
    with Dibs(valkey.url, budget=5) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=60)(model.run)
        stream = answer("a")
        sleep(0.05)
        assert (model.runs, repr(stream)) == (
            0,
            f"<{type(stream).__name__} of 'answer:{{prompt}}', at item 0>",
        )


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_a_stream_has_any_number_of_items(server: Server, count: int) -> None:
    """None, one, and more than are written at once; large ones and empty ones among them."""
    items = ["" if number % 7 == 0 else "x" * (number % 700) for number in range(count)]
    model = Model(*items)
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        reading = [Background(Reader(each("a")).read) for each in (here, there)]
        for each in reading:
            assert each.result() == items
        assert Reader(there("a")).read() == items
        assert model.runs == 1


class Token(NamedTuple):
    """An item with a type."""

    text: str
    logprob: float


def test_items_keep_their_type(server: Server) -> None:
    """That of the return annotation: for the caller of the run, who follows, and from the store."""

    def tokens(prompt: str) -> Iterator[Token]:
        for text in prompt:
            yield Token(text, -0.5)

    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("tokens:{prompt}", ttl=60)(tokens)
        there = two.streamed("tokens:{prompt}", ttl=60)(tokens)
        for stream in (here("ab"), there("ab"), there("ab")):
            items = [item for item in stream]
            assert items == [Token("a", -0.5), Token("b", -0.5)]
            assert type(items[0]) is Token


def test_an_item_that_cannot_be_kept_ends_the_run(server: Server) -> None:
    """With a UsageError, for who has asked; it is not yielded, and nothing is stored."""

    def odd(prompt: str) -> Iterator[Any]:
        yield "fine"
        yield object()

    with Dibs(server.url, budget=5) as dibs:
        reader = Reader(dibs.streamed("odd:{prompt}", ttl=60)(odd)("a"))
        with pytest.raises(UsageError, match="pass type= or codec="):
            reader.read()
        assert reader.items == ["fine"]
        eventually(lambda: "odd:a" not in server.keys())


def test_an_error_reaches_those_who_follow_and_is_not_kept(server: Server) -> None:
    """The items so far, then the exception; elsewhere Unavailable with its name; then a new run."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        readers, reading = begun(here, there, 2)
        model.error = Failed("the key of the account is sk-123")
        with pytest.raises(Failed):
            reading[0].result()
        with pytest.raises(Unavailable) as caught:
            reading[1].result()
        assert caught.value.failure == "Failed"
        assert "sk-123" not in str(caught.value)
        assert [each.items for each in readers] == [list(WORDS[:2])] * 2
        model.error, model.allowed = None, 4
        eventually(lambda: "answer:a" not in server.keys())
        assert Reader(there("a")).read() == list(WORDS)
        assert model.runs == 2


@pytest.mark.parametrize("by", ["here", "there"])
def test_what_is_invalidated_during_its_run_is_not_kept(server: Server, by: str) -> None:
    """Those who follow get the rest, everywhere; the next caller begins anew, everywhere."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        _readers, reading = begun(here, there, 2)
        assert (here if by == "here" else there).invalidate("a")
        newer = [Reader(here("a")), Reader(there("a"))]
        reading += [Background(each.read) for each in newer]
        eventually(lambda: all(len(each.items) == 2 for each in newer))
        assert model.runs == 2
        model.allowed = 4
        for each in reading:
            assert each.result() == list(WORDS)
        assert model.runs == 2
        assert here.invalidate("a")
        assert Reader(there("a")).read() == list(WORDS)
        assert model.runs == 3, "what is stored is forgotten as well"


def test_what_is_longer_than_it_may_be_is_not_kept_and_never_cut(server: Server) -> None:
    """Here all of it is yielded; elsewhere it ends with Unavailable, and the next one runs anew."""
    model = Model(*WORDS)
    model.allowed = 1
    events: list[Event] = []
    listeners = [events.append]
    with (
        Dibs(server.url, budget=5, listeners=listeners) as one,
        Dibs(server.url, budget=5) as two,
    ):
        here = one.streamed("answer:{prompt}", ttl=60, most=20)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60, most=20)(model.run)
        _readers, reading = begun(here, there, 1)
        model.allowed = 4
        assert reading[0].result() == list(WORDS)
        with pytest.raises(Unavailable) as caught:
            reading[1].result()
        assert caught.value.cause == "too_long"
        assert [event.cause for event in events if event.kind == "rejected_write"] == ["too_long"]
        eventually(lambda: "answer:a" not in server.keys())
        assert Reader(here("a")).read() == list(WORDS)
        assert model.runs == 2


def test_what_is_kept_ends_with_its_ttl(server: Server) -> None:
    """Counted from the end of the run; the next caller begins a new one."""
    model = Model(*WORDS)
    with Dibs(server.url, budget=5) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=0.2)(model.run)
        assert Reader(answer("a")).read() == list(WORDS)
        eventually(lambda: "answer:a" not in server.keys())
        assert Reader(answer("a")).read() == list(WORDS)
        assert model.runs == 2


def test_who_has_received_items_is_told_that_the_run_has_died(
    own_server: Server, line: FaultProxy
) -> None:
    """Interrupted, with their number; who follows the run in its own process gets all of it."""
    model = Model(*WORDS)
    model.allowed = 2
    events: list[Event] = []
    with (
        Dibs(line.url, budget=5) as one,
        Dibs(own_server.url, budget=5, listeners=[events.append]) as two,
    ):
        here = one.streamed("answer:{prompt}", ttl=60, lease=0.5)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60, lease=0.5)(model.run)
        readers, reading = begun(here, there, 2)
        line.silence()
        line.refuse()
        with pytest.raises(Interrupted) as caught:
            reading[1].result()
        assert (caught.value.items, readers[1].items) == (2, list(WORDS[:2]))
        assert [event.count for event in events if event.kind == "interrupted"] == [2]
        model.allowed = 4
        assert Reader(there("a")).read() == list(WORDS)
        assert reading[0].result() == list(WORDS)
        assert model.runs == 2
        line.heal()
        line.accept()


def test_who_has_received_nothing_does_not_notice_that_the_run_has_died(
    own_server: Server, line: FaultProxy
) -> None:
    """Another process takes over."""
    model = Model(*WORDS)
    model.allowed = 0
    with Dibs(line.url, budget=5) as one, Dibs(own_server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60, lease=0.5)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60, lease=0.5)(model.run)
        dying = Background(Reader(here("a")).read)
        eventually(lambda: model.runs == 1)
        following = Background(Reader(there("a")).read)
        line.silence()
        line.refuse()
        eventually(lambda: model.runs == 2)
        model.allowed = 4
        assert following.result() == list(WORDS)
        assert dying.result() == list(WORDS)
        line.heal()
        line.accept()


def test_another_run_may_begin_where_one_has_died(
    own_server: Server, line: FaultProxy
) -> None:
    """With on_restart="restart": the exception is yielded, then the other run from its first."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(line.url, budget=5) as one, Dibs(own_server.url, budget=5) as two:
        options = {"ttl": 60, "lease": 0.5, "on_restart": "restart"}
        here = one.streamed("answer:{prompt}", **options)(model.run)
        there = two.streamed("answer:{prompt}", **options)(model.run)
        readers, reading = begun(here, there, 2)
        line.silence()
        line.refuse()
        eventually(lambda: readers[1].told == [2])
        model.allowed = 4
        assert reading[1].result() == list(WORDS)
        assert reading[0].result() == list(WORDS)
        assert (model.runs, readers[0].told) == (2, [])
        line.heal()
        line.accept()


def test_another_process_may_continue_a_run(own_server: Server, line: FaultProxy) -> None:
    """With on_restart="resume": it is given the items so far, and nobody notices."""
    given: list[list[str]] = []
    allowed = [2]

    def count(prompt: str, so_far: Any = ()) -> Iterator[str]:
        given.append(list(so_far))
        for number in range(len(so_far), 4):
            while number >= allowed[0]:
                sleep(0.01)
            yield f"{len(given)}:{number}"

    with Dibs(line.url, budget=5) as one, Dibs(own_server.url, budget=5) as two:
        options = {"ttl": 60, "lease": 0.5, "on_restart": "resume"}
        here = one.streamed("count:{prompt}", **options)(count)
        there = two.streamed("count:{prompt}", **options)(count)
        _readers, reading = begun(here, there, 2)
        line.silence()
        line.refuse()
        eventually(lambda: len(given) == 2)
        allowed[0] = 4
        assert given == [[], ["1:0", "1:1"]]
        assert reading[1].result() == ["1:0", "1:1", "2:2", "2:3"]
        # Two runs are never one: the first process has its own, of which this one knows nothing.
        assert reading[0].result() == ["1:0", "1:1", "2:2", "2:3"]
        line.heal()
        line.accept()
        assert Reader(there("a")).read() == ["1:0", "1:1", "2:2", "2:3"]
        with pytest.raises(UsageError, match="so_far is passed by dibs"):
            there("a", so_far=["1:0"])


def test_an_outage_in_the_middle_of_a_run_loses_nothing(own_server: Server) -> None:
    """Its own process notices nothing; others wait, and get the rest when Redis is back."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(own_server.url) as one, Dibs(own_server.url) as two:
        here = one.streamed("answer:{prompt}", ttl=60, stall=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60, stall=60)(model.run)
        readers, reading = begun(here, there, 2)
        own_server.freeze()
        model.allowed = 4
        assert reading[0].result() == list(WORDS)
        assert readers[1].items == list(WORDS[:2])
        own_server.thaw()
        assert reading[1].result() == list(WORDS)
        assert model.runs == 1
        eventually(lambda: b" over " in own_server.client().get("answer:a"))


def test_who_follows_elsewhere_waits_no_longer_than_they_may(own_server: Server) -> None:
    """After `stall`: Unavailable, with the cause of the outage."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(own_server.url) as one, Dibs(own_server.url) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60, stall=0.3)(model.run)
        _readers, reading = begun(here, there, 2)
        own_server.freeze()
        with pytest.raises(Unavailable):
            reading[1].result()
        own_server.thaw()
        model.allowed = 4
        assert reading[0].result() == list(WORDS)


def test_an_outage_at_the_call_runs_it_in_each_process(own_server: Server) -> None:
    """Once for all callers of a process; with the policy "closed" they get Unavailable."""
    own_server.kill()
    model = Model(*WORDS)
    model.allowed = 1
    with Dibs(own_server.url) as one, Dibs(own_server.url) as two:
        streams = [each.streamed("answer:{prompt}", ttl=60)(model.run) for each in (one, one, two)]
        readers = [Reader(streams[0]("a")), Reader(streams[0]("a")), Reader(streams[2]("a"))]
        reading = [Background(each.read) for each in readers]
        eventually(lambda: all(len(each.items) == 1 for each in readers))
        model.allowed = 4
        for each in reading:
            assert each.result() == list(WORDS)
        assert model.runs == 2
        closed = one.streamed("other:{prompt}", ttl=60, on_outage="closed")(model.run)
        with pytest.raises(Unavailable):
            Reader(closed("a")).read()
        assert model.runs == 2


def test_a_full_store_keeps_nothing_and_cuts_nothing(start_server: StartServer) -> None:
    """Followers in this process get all of it; others are interrupted."""
    server = start_server("valkey")
    model = Model(*["x" * 100] * 10)
    model.allowed = 2
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        _readers, reading = begun(here, there, 2)
        server.client().config_set("maxmemory", "1")
        model.allowed = 10
        assert reading[0].result() == model.items
        with pytest.raises(Interrupted):
            reading[1].result()
        eventually(lambda: server.keys() == [])


def test_a_server_that_cannot_push_is_asked(start_server: StartServer) -> None:
    """With RESP2 there is no client tracking; who follows gets all items all the same."""
    server = start_server("valkey", config=("--rename-command", "HELLO", ""))
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        _readers, reading = begun(here, there, 2)
        model.allowed = 4
        for each in reading:
            assert each.result() == list(WORDS)


def test_items_of_another_type_are_not_read(server: Server) -> None:
    """A stream of a codec or a type of before is run anew: as with `cached`, it counts as none."""
    events: list[Event] = []
    model = Model(*WORDS)
    listeners = [events.append]
    with (
        Dibs(server.url, budget=5) as one,
        Dibs(server.url, budget=5, listeners=listeners) as two,
    ):
        before = one.streamed("answer:{prompt}", ttl=60, codec="json+zlib")(model.run)
        after = two.streamed("answer:{prompt}", ttl=60)(model.run)
        assert Reader(before("a")).read() == list(WORDS)
        eventually(lambda: b" over " in server.client().get("answer:a"))
        assert Reader(after("a")).read() == list(WORDS)
        assert model.runs == 2
        assert "poison" in kinds(events)


def test_items_that_are_gone_are_run_anew(server: Server) -> None:
    """Evicted, or deleted by another program: the record alone is worth nothing."""
    model = Model(*WORDS)
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        assert Reader(here("a")).read() == list(WORDS)
        eventually(lambda: b" over " in server.client().get("answer:a"))
        [items] = [key for key in server.keys() if key.startswith("stream:")]
        server.client().delete(items)
        assert Reader(there("a")).read() == list(WORDS)
        assert model.runs == 2


def test_the_key_of_a_lease_is_refused(server: Server) -> None:
    """Nor is that of a claim or a cached value touched."""
    model = Model(*WORDS)
    with Dibs(server.url, budget=5) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=60)(model.run)
        with dibs.hold("answer:a", ttl=60) as lease:
            with pytest.raises(UsageError, match="needs another one"):
                Reader(answer("a")).read()
            with pytest.raises(UsageError, match="needs another one"):
                answer.invalidate("a")
            lease.check()
            assert lease.extend(60)
        assert model.runs == 0


def test_peek_tells_what_is_stored(server: Server) -> None:
    """Whether it is running or done, and how many items there are. It never runs."""
    model = Model(*WORDS)
    model.allowed = 2
    with Dibs(server.url, budget=5) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=60)(model.run)
        assert answer.peek("a") is None
        reader = Reader(answer("a"))
        reading = Background(reader.read)
        eventually(lambda: len(reader.items) == 2)
        while (found := answer.peek("a")) is None or found.items < 2:
            sleep(0.01)
        assert found.state == "running"
        model.allowed = 4
        reading.result()
        while (found := answer.peek("a")) is None or found.state == "running":
            sleep(0.01)
        assert (found.items, found.age >= 0, model.runs) == (4, True, 1)


def test_a_stream_begins_where_it_is_told_to(valkey: Server) -> None:
    """`skip`: the items before were received earlier, as by a browser that reconnects."""
    model = Model(*WORDS)
    with Dibs(valkey.url, budget=5) as dibs:
        answer = dibs.streamed("answer:{prompt}", ttl=60)(model.run)
        assert Reader(answer("a").skip(3)).read() == ["four"]
        stream = answer("a")
        next(stream)
        with pytest.raises(UsageError, match="no item was taken"):
            stream.skip(2)
        with pytest.raises(UsageError, match="whole number"):
            answer("a").skip(-1)


def test_closing_waits_for_the_run_of_this_process(server: Server) -> None:
    """So that others get the whole of it."""
    model = Model(*WORDS)
    model.allowed = 1
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        stream = here("a")
        next(stream)
        reader = Reader(there("a"))
        reading = Background(reader.read)
        eventually(lambda: len(reader.items) == 1)
        closing = Background(one.close)
        sleep(0.05)
        model.allowed = 4
        closing.result()
        assert reading.result() == list(WORDS)
        assert model.runs == 1


def test_a_method_has_a_stream_for_each_object(valkey: Server) -> None:
    """`self` is an argument like any other."""

    class Bot:
        def __init__(self, name: str) -> None:
            self.name = name

        def answer(self, prompt: str) -> Iterator[str]:
            yield f"{self.name}: {prompt}"

    with Dibs(valkey.url, budget=5) as dibs:
        Bot.answer = dibs.streamed("bot:{self.name}:{prompt}", ttl=60)(Bot.answer)  # type: ignore[assignment]
        assert [item for item in Bot("a").answer("x")] == ["a: x"]
        assert [item for item in Bot("b").answer("x")] == ["b: x"]
        assert Bot("a").answer.invalidate("x")  # type: ignore[attr-defined]


def test_events_tell_who_ran_and_who_followed(valkey: Server) -> None:
    """miss, loaded: the run. followed: a caller joined it. hit: it came from the store."""
    events: list[Event] = []
    later: list[Event] = []
    model = Model(*WORDS)
    with (
        Dibs(valkey.url, budget=5, listeners=[events.append]) as one,
        Dibs(valkey.url, budget=5, listeners=[later.append]) as two,
    ):
        here = one.streamed("answer:{prompt}", ttl=60)(model.run)
        there = two.streamed("answer:{prompt}", ttl=60)(model.run)
        model.allowed = 1
        _, reading = begun(here, here, 1)
        model.allowed = 4
        for each in reading:
            each.result()
        eventually(lambda: b" over " in valkey.client().get("answer:a"))
        Reader(there("a")).read()
        there.invalidate("a")
        assert kinds(events) == ["miss", "followed", "loaded"]
        assert kinds(later) == ["hit", "invalidated"]
        assert {event.name for event in (*events, *later)} == {"answer:{prompt}"}
