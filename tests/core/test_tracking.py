"""Client tracking: what pushes say, and how often a key is registered again."""

import math
from typing import Any

from dibs._core.request import ErrorReply, Request, pack
from dibs._core.tracking import (
    LONGEST_PAUSE,
    Pushes,
    Watching,
    read_push,
    read_tracked,
    read_watch,
    tracked,
    watch_request,
)


def test_what_a_push_says() -> None:
    """Keys, everything, or nothing to us."""
    assert read_push([b"invalidate", [b"a", b"b"]]) == [b"a", b"b"]
    assert read_push([b"invalidate", None]) is None
    assert read_push([b"message", b"channel", b"text"]) == []
    assert read_push([]) == []


def test_what_watching_says() -> None:
    """Free, held, held for ever; announced, or to be polled."""
    request = watch_request(b"k")

    def answer(*replies: Any, pushes: bool = True) -> Watching:
        return read_watch(read_tracked(list(replies), [request], pushes=pushes)[0])

    assert answer(b"OK", b"OK", 1500) == Watching(1.5, tracked=True)
    assert answer(b"OK", 1500) == Watching(1.5, tracked=True)
    assert answer(b"OK", 1500, pushes=False) == Watching(1.5, tracked=False)
    assert answer(b"OK", -2).remaining == 0.0
    assert answer(b"OK", -1).remaining == math.inf
    refused = ErrorReply("NOPERM no")
    assert not answer(refused, refused, 1500).tracked


def test_many_requests_are_tracked_in_one_write() -> None:
    """Each has its own replies, and says by itself whether its key is tracked."""
    requests = [watch_request(b"a"), Request(pack("GET", b"b") + pack("PTTL", b"b"), 2, b"b")]
    asked = tracked(requests, first=True)
    assert (asked.replies, asked.key) == (6, b"a")
    assert asked.payload.count(b"CACHING") == 2
    refused = ErrorReply("NOPERM no")
    one, two = read_tracked([b"OK", b"OK", 1500, refused, b"v", 9], requests, pushes=True)
    assert (one.replies, one.tracked) == ([1500], True)
    assert (two.replies, two.tracked) == ([b"v", 9], False)


def test_pushes_without_a_change_are_answered_ever_more_slowly() -> None:
    """The pause doubles up to the longest one; then there are looks without registering."""
    pushes, pauses = Pushes().after_reading(0.0, pushed=False, changed=True), list[float]()
    now = 0.0
    for _ in range(9):
        pushes = pushes.after_reading(now, pushed=True, changed=False)
        pauses.append(pushes.pause)
        now += pushes.pause
        pushes = pushes.after_reading(now, pushed=False, changed=False)
        if pushes.pause:
            break
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1]
    assert pushes.pause == LONGEST_PAUSE, "it polls"
    assert pushes.after_reading(now + 3, pushed=False, changed=False).pause == 0, "and tries again"


def test_a_push_about_a_change_is_answered_at_once() -> None:
    """Another holder: register now, and forget the pauses. So does a registration that is kept."""
    paused = Pushes().after_reading(0.0, pushed=True, changed=False)
    assert paused.pause > 0
    assert paused.after_reading(1.0, pushed=True, changed=True) == Pushes(0.0, 0.0, 1.0)
    kept = paused.after_reading(1.0, pushed=False, changed=False)
    assert kept.pause == 0 and kept.backed_off > 0
    assert kept.after_reading(3.0, pushed=False, changed=False).backed_off == 0
