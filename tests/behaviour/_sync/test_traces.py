# Generated from tests/behaviour/_async/test_traces.py by unasync.py – do not edit.
"""Spans of a trace: what they cover, whose children they are, and how they ended."""

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from dibs import Dibs, Busy, Duplicate, Event, LeaseLost, Unavailable
from dibs.testing import Server

from .._threads import Background, eventually, sleep
from ..traces import Traces, is_child, is_linked, outcome, outcomes


def test_a_span_covers_the_block_and_is_the_parent_of_spans_in_it(valkey: Server) -> None:
    """It is a child of the caller's span; afterwards that one is the current one again."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with traces.tracer.start_as_current_span("request") as request:
            with dibs.hold("user:U4711", ttl=5):
                with traces.tracer.start_as_current_span("query"):
                    pass
            assert trace.get_current_span() is request
    hold = traces.one("hold user:*")
    assert is_child(hold, traces.one("request"))
    assert is_child(traces.one("query"), hold)
    assert dict(hold.attributes or {}) == {"dibs.name": "user:*", "dibs.outcome": "acquired"}
    assert hold.status.status_code is StatusCode.UNSET
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_holds_inside_of_one_another_are_children_of_one_another(valkey: Server) -> None:
    """The inner span ends first, and the outer one is the current one between."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with dibs.hold("outer:1", ttl=5):
            with dibs.hold("inner:1", ttl=5):
                pass
            with dibs.hold("inner:1", ttl=5):
                pass
    outer, inner = traces.one("hold outer:*"), traces.named("hold inner:*")
    assert len(inner) == 2 and all(is_child(each, outer) for each in inner)


def test_a_refusal_is_an_outcome_and_no_error(valkey: Server) -> None:
    """Busy and Duplicate are answers: of blocks, and of functions."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.exclusive("user:{id}", ttl=5, busy=lambda error: "busy")
        def exclusive(id: str) -> str:
            return "done"

        @dibs.once("order:{id}", window=5, duplicate=lambda error: "duplicate")
        def once(id: str) -> str:
            return "done"

        assert exclusive("U1") == "done" and once("U1") == "done"
        with dibs.hold("user:U1", ttl=5), dibs.claim("order:U1", window=5):
            with pytest.raises(Busy):
                with dibs.hold("user:U1", ttl=5):
                    pytest.fail("held twice")
            with pytest.raises(Duplicate):
                with dibs.claim("order:U1", window=5):
                    pytest.fail("claimed twice")
            assert exclusive("U1") == "busy" and once("U1") == "duplicate"
    assert outcomes(traces.named("hold user:*")) == ["busy", "acquired"]
    assert outcomes(traces.named("claim order:*")) == ["duplicate", "claimed"]
    assert outcomes(traces.named("hold user:{id}")) == ["acquired", "busy"]
    assert outcomes(traces.named("claim order:{id}")) == ["claimed", "duplicate"]
    assert all(span.status.status_code is StatusCode.UNSET for span in traces.spans)


def test_a_wait_is_in_the_span(valkey: Server) -> None:
    """An event where it ended, and its length in seconds."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        first = dibs.try_hold("user:U1", ttl=5)
        assert first is not None

        def second() -> None:
            with dibs.hold("user:U1", ttl=5, wait=10):
                pass

        beside = Background(second)
        sleep(0.05)
        first.release()
        beside.result()
    hold = traces.one("hold user:*")
    assert [event.name for event in hold.events] == ["acquired"]
    assert (hold.attributes or {})["dibs.wait.duration"] > 0.01  # type: ignore[operator]


def test_what_the_block_raises_is_the_status_without_its_text(valkey: Server) -> None:
    """The text of an exception may hold personal data; its class does not."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with pytest.raises(ValueError, match="U4711"):
            with dibs.hold("user:U4711", ttl=5):
                raise ValueError("no such user: U4711")
        with pytest.raises(KeyError):
            with dibs.claim("order:U4711", window=5):
                raise KeyError("U4711")
    hold, claim = traces.spans
    assert outcome(hold) == "acquired" and outcome(claim) == "claimed"
    assert [each.status.status_code for each in traces.spans] == [StatusCode.ERROR] * 2
    assert (hold.attributes or {})["error.type"] == "ValueError"
    assert "U4711" not in "".join(each.to_json() for each in traces.spans)


def test_a_lost_lease_and_an_outage_are_outcomes(valkey: Server) -> None:
    """Lost while the block ran; unguarded, because Redis was unavailable; refused by the policy."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with dibs.hold("user:1", ttl=5):
            valkey.flush()
        with pytest.raises(LeaseLost):
            with dibs.hold("late:1", ttl=5, on_late="raise"):
                valkey.flush()
    with Dibs("redis://127.0.0.1:1", listeners=[traces.listener]) as dibs:
        with dibs.hold("out:1", ttl=5), dibs.claim("out:2", window=5):
            pass
        with pytest.raises(Unavailable):
            with dibs.hold("closed:1", ttl=5, on_outage="closed"):
                pytest.fail("held")
    assert outcome(traces.one("hold user:*")) == "lost"
    assert traces.one("hold user:*").status.status_code is StatusCode.UNSET
    assert outcome(traces.one("hold late:*")) == "lost"
    assert traces.one("hold late:*").status.status_code is StatusCode.ERROR
    assert outcome(traces.one("hold out:*")) == outcome(traces.one("claim out:*")) == "unguarded"
    assert outcome(traces.one("hold closed:*")) == "unavailable"
    assert traces.one("hold closed:*").status.description == "dibs.errors.Unavailable"


def test_a_replay_and_a_hand_over_are_outcomes(valkey: Server) -> None:
    """replayed: nothing was done; detached: another process continues."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        for _ in range(2):
            with dibs.claim("order:1", window=5, after="replay") as claim:
                if not claim.replayed:
                    claim.complete("done")
        with dibs.hold("job:1", ttl=5) as lease:
            token = lease.detach(ttl=5)
        with dibs.hold("job:1", ttl=5, token=token):
            pass
    assert outcomes(traces.named("claim order:*")) == ["claimed", "replayed"]
    assert outcomes(traces.named("hold job:*")) == ["detached", "acquired"]


def test_a_hold_that_is_used_twice_keeps_its_span(valkey: Server) -> None:
    """The second use is an error with its own span."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        hold = dibs.hold("user:1", ttl=5, limit=2)
        with hold:
            with pytest.raises(ValueError, match="already in use"):
                hold.__enter__()
    assert outcomes(traces.spans) == ["failed", "acquired"]


# ---- loads


def test_a_load_is_the_parent_of_what_the_loader_does(valkey: Server) -> None:
    """It is a child of the caller's span. A hit makes no span."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.cached("menu:{branch}", ttl=60)
        def menu(branch: str) -> str:
            with traces.tracer.start_as_current_span("query"):
                return branch

        with traces.tracer.start_as_current_span("request"):
            assert menu("b1") == menu("b1") == "b1"
    load = traces.one("load menu:{branch}")
    assert is_child(load, traces.one("request")) and is_child(traces.one("query"), load)
    assert outcome(load) == "loaded" and (load.attributes or {})["dibs.load.reason"] == "miss"


def test_one_load_of_many_values_is_one_span(valkey: Server) -> None:
    """Of those that were missing."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.cached_many("menu:{branch}", ttl=60)
        def menus(branches: list[str]) -> dict[str, str]:
            return {branch: branch for branch in branches}

        menus(["b1", "b2", "b3"])
        menus(["b1", "b2", "b3"])
    assert outcomes(traces.named("load menu:{branch}")) == ["loaded"]


def test_a_load_that_fails_has_the_class_of_its_error(valkey: Server) -> None:
    """Not its text. In an outage the reason of a load is what happened to Redis."""
    traces = Traces()

    def load() -> str:
        raise ValueError("U4711")

    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with pytest.raises(ValueError, match="U4711"):
            dibs.get_or_load("user:U4711", load, ttl=60)
    with Dibs("redis://127.0.0.1:1", listeners=[traces.listener]) as dibs:
        with pytest.raises(ValueError, match="U4711"):
            dibs.get_or_load("user:U4711", load, ttl=60)
    stored, direct = traces.named("load user:*")
    assert outcome(stored) == outcome(direct) == "failed"
    assert stored.status.description == direct.status.description == "ValueError"
    assert (direct.attributes or {})["dibs.load.reason"] == "refused"
    assert "U4711" not in stored.to_json()


def test_who_waits_for_a_load_in_the_same_process_is_linked_to_it(valkey: Server) -> None:
    """One load span in the leader's trace; a wait span in the trace of each follower."""
    traces = Traces()
    began: list[bool] = []
    going: list[bool] = []
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.cached("menu:{branch}", ttl=60, wait=20)
        def menu(branch: str) -> str:
            began.append(True)
            eventually(lambda: going)
            return branch

        def request(name: str) -> str:
            with traces.tracer.start_as_current_span(name):
                return menu("b1")

        leader = Background(request, "leader")
        eventually(lambda: began)
        follower = Background(request, "follower")
        eventually(lambda: "wait menu:{branch}" in traces.begun)
        going.append(True)
        assert leader.result() == follower.result() == "b1"
    load, wait = traces.one("load menu:{branch}"), traces.one("wait menu:{branch}")
    assert is_child(load, traces.one("leader")) and is_child(wait, traces.one("follower"))
    assert is_linked(wait, load) and outcome(wait) == "shared"


def test_who_waits_for_a_load_in_another_process_has_a_span(valkey: Server) -> None:
    """There is nothing to link it to."""
    traces = Traces()
    began: list[bool] = []
    going: list[bool] = []

    def slow() -> str:
        began.append(True)
        eventually(lambda: going)
        return "menu"

    with (
        Dibs(valkey.url, budget=5) as other,
        Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs,
    ):
        leader = Background(lambda: other.get_or_load("menu:b1", slow, ttl=60))
        eventually(lambda: began)
        follower = Background(lambda: dibs.get_or_load("menu:b1", slow, ttl=60, wait=20))
        eventually(lambda: "wait menu:*" in traces.begun)
        going.append(True)
        assert leader.result() == follower.result() == "menu"
    assert set(outcomes(traces.named("wait menu:*"))) == {"followed"}
    assert traces.named("load menu:*") == []


def test_a_refresh_behind_its_readers_is_a_trace_of_its_own(valkey: Server) -> None:
    """It is linked to the reader that caused it, and is not that reader's child."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.cached("menu:{branch}", ttl=0.05, stale=60)
        def menu(branch: str) -> str:
            with traces.tracer.start_as_current_span("query"):
                return branch

        menu("b1")
        sleep(0.1)
        with traces.tracer.start_as_current_span("reader"):
            menu("b1")
        eventually(lambda: len(traces.named("load menu:{branch}")) == 2)
    reader, behind = traces.one("reader"), traces.named("load menu:{branch}")[1]
    assert behind.parent is None and is_linked(behind, reader)
    assert behind.context.trace_id != reader.context.trace_id
    assert (behind.attributes or {})["dibs.load.reason"] == "stale"
    assert is_child(traces.named("query")[1], behind)


# ---- listeners


class _Broken:
    makes_spans = True

    def __call__(self, event: Event) -> None:
        pass

    def span(self, *args: object, **kwargs: object) -> None:
        raise RuntimeError("no span")

    def origin(self) -> None:
        raise RuntimeError("no origin")


def test_a_listener_that_cannot_make_spans_hurts_nobody(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The block runs, the others get their spans, and it is logged."""
    traces = Traces()
    listeners = [_Broken(), traces.listener]
    with Dibs(valkey.url, budget=5, listeners=listeners) as dibs:
        with dibs.hold("user:1", ttl=5):
            pass
    assert outcomes(traces.spans) == ["acquired"]
    assert "could not begin a span" in caplog.text


def test_no_event_is_made_that_no_listener_wants(valkey: Server) -> None:
    """`kinds` of a listener are those it gets; others get all of them."""

    class Refusals:
        kinds = frozenset({"busy"})

        def __init__(self) -> None:
            self.seen: list[str] = []

        def __call__(self, event: Event) -> None:
            self.seen.append(event.kind)

    some, everything = Refusals(), list[str]()
    listeners = [some, lambda event: everything.append(event.kind)]
    for chosen in (listeners, listeners[:1]):
        with Dibs(valkey.url, budget=5, listeners=chosen) as dibs:
            with dibs.hold("user:1", ttl=5):
                assert dibs.try_hold("user:1", ttl=5) is None
    assert some.seen == ["busy", "busy"]
    assert everything == ["acquired", "busy", "released"]


def test_a_listener_that_begins_to_trace_meanwhile(valkey: Server) -> None:
    """An SDK was set while work was on its way to the background: it has no origin there."""
    late, traces = Traces(), Traces()
    late.listener._traces = False  # type: ignore[assignment]
    with Dibs(valkey.url, budget=5, listeners=[late.listener, traces.listener]) as dibs:
        events = dibs._events
        with traces.tracer.start_as_current_span("request"):
            origins = events.origins()
        late.listener._traces = True
        events.begin_in_background(origins)
        events.span("load", "menu:*").end("loaded")
    assert is_linked(traces.one("load menu:*"), traces.one("request"))
    assert late.one("load menu:*").links == ()
