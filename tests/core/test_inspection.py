"""What a key is, from the first bytes of its value: without a server, without a clock."""

import json
from typing import Any

import pytest

from dibs._core.claim import done_record, running_record
from dibs._core.codec import frame, loading_mark
from dibs._core.inspection import (
    HEAD,
    KeyInfo,
    KeyReading,
    classify,
    entry_request,
    exactly,
    is_denied,
    is_gone,
    is_shortened,
    named_secret,
    next_node,
    pattern_for,
    proof_in,
    read_info,
    read_members,
    read_scan,
    scan_request,
    shorten,
    token_hint,
    with_companions,
)
from dibs._core.lease_value import token_maker
from dibs._core.options import Settings
from dibs._core.request import ErrorReply
from dibs._core.stream import StreamOptions, items_head, new_record

NOW = 1_800_000_000.0
SECRET = b"0123456789abcdef01-2a"
TOKEN = token_maker(b"0123456789abcdef01", b"web-1:77", 42)()


def seen(key: str, value: bytes, pttl: int = 5000, namespace: str = "") -> KeyInfo:
    return classify(
        namespace, KeyReading((namespace + key).encode(), b"string", [pttl, value]), NOW
    )


def test_a_lease_says_who_has_it_and_for_how_long() -> None:
    """The holder, the remaining time; of the token only what tells two holdings apart."""
    found = seen("user:1", TOKEN)
    assert found == KeyInfo(
        "user:1", "lease", "held", 5.0, "web-1:77", None, len(TOKEN), "012345-2a"
    )
    assert SECRET.decode() not in repr(found)


def test_a_stream_says_who_runs_it_and_since_when() -> None:
    """And, when it is over, how many items it has, and how long it took."""
    options = StreamOptions(Settings("", "open"), ttl=60)
    run = b"0123456789abcdef"
    record = new_record(options, run, run, NOW - 3, "web-1:77")
    found = seen("answer:1", record.encoded())
    assert (found.kind, found.state, found.holder) == ("stream", "running", "web-1:77")
    assert found.age == pytest.approx(3) and found.took is None
    over = seen("answer:1", record._replace(is_over=True, took=2.5, items=7).encoded())
    assert (over.state, over.taken, over.took) == ("done", 7, 2.5)
    items = seen(
        "stream:{shop:answer:1}:" + run.decode(), items_head(run, 0, 4) + b"1:a", 5, "shop:"
    )
    assert (items.kind, items.state, items.of) == ("items", "running", "answer:1")


def test_a_key_without_expiry_has_no_remaining_time() -> None:
    """None, which is not the same as 0 s."""
    assert seen("user:1", TOKEN, pttl=-1).remaining is None
    assert seen("user:1", TOKEN, pttl=0).remaining == 0.0


def test_a_running_claim_says_since_when_and_what_it_said_about_itself() -> None:
    """By the wall clock of its holder."""
    record = running_record(TOKEN, b"-", NOW - 3, b"\njob 7")
    found = seen("order:1", record)
    assert (found.kind, found.state, found.note) == ("claim", "running", "job 7")
    assert found.holder == "web-1:77" and found.token_hint == "012345-2a"
    assert found.age == pytest.approx(3)


def test_a_claim_that_was_continued_is_a_claim() -> None:
    """Behind its secret is noted how long the key had been kept before that."""
    record = running_record(TOKEN, b"-", NOW - 3, b"\njob 7").replace(b" ", b"~59994 ", 1)
    found = seen("order:1", record)
    assert (found.kind, found.note, found.token_hint) == ("claim", "job 7", "012345-2a")


def test_what_a_claim_left_behind_is_done() -> None:
    """With its age where a result was kept."""
    running = running_record(TOKEN, b"-", NOW - 3, "\nfür 7".encode())
    result = frame("json", "-", NOW - 2, 0.5, b"{}")
    found = seen("order:1", done_record(running, result))
    assert (found.kind, found.note, found.age) == ("done", "für 7", pytest.approx(2))
    assert seen("order:1", done_record(running, b"")).age is None


@pytest.mark.parametrize(
    ("value", "state", "loading", "age"),
    [
        (frame("json", "-", NOW - 9, 0.25, b"1"), "value", None, 9.0),
        (frame("!", "-", NOW - 9, 0.25, b"KeyError"), "failed", None, 9.0),
        (loading_mark(TOKEN), "loading", "web-1:77", None),
        (loading_mark(TOKEN) + b" 3600000\n" + frame("json", "-", NOW - 9, 0.25, b"1"), "loading",
         "web-1:77", 9.0),
    ],
)  # fmt: skip
def test_a_cached_value_says_how_old_it_is_and_who_loads_it(
    value: bytes, state: str, loading: str | None, age: float | None
) -> None:
    """A value, a remembered failure, a load under way, and a value that is loaded again."""
    found = seen("menu:1", value)
    assert (found.kind, found.state, found.loading, found.age) == ("cached", state, loading, age)


def test_only_the_beginning_of_a_value_is_needed() -> None:
    """The length is asked for where the value is longer than what was read."""
    head = frame("json", "-", NOW, 0.25, b"x" * 10_000)[:HEAD]
    found = classify("", KeyReading(b"menu:1", b"string", [1000, head], 10_040), NOW)
    assert (found.kind, found.state, found.size) == ("cached", "value", 10_040)


@pytest.mark.parametrize(
    ("key", "value", "kind", "of"),
    [
        ("lock:{shop:menu:1}", TOKEN, "lock", "menu:1"),
        ("lock:shop:menu:{1}", TOKEN, "lock", "menu:{1}"),
        ("lock:{shop:menu:1}", b"!", "lock", "menu:1"),
        ("fence:{shop:user:1}", b"1800000000000000", "fence", "user:1"),
        ("lock:door", TOKEN, "lease", None),
        ("fence:garden", b"12", "foreign", None),
        ("scheduled-last:nightly", b"1799999990000 web-1:77", "schedule", None),
        ("tag:branch:7", b"0123456789abcdef", "tag", None),
        ("tag:branch:7", b"0123456789", "foreign", None),
        ("counter", b"12", "foreign", None),
        ("dibs1", b"dibs1 something else", "foreign", None),
    ],
)
def test_a_string_is_told_by_its_key_and_its_beginning(
    key: str, value: bytes, kind: str, of: str | None
) -> None:
    """A lock and a fence name the key that they belong to."""
    found = seen(key, value, namespace="shop:")
    assert (found.kind, found.of) == (kind, of)


def test_the_first_record_of_a_schedule_is_no_run() -> None:
    """Written at the start of a new schedule: it has no age, for no run was executed."""
    found = seen("scheduled-last:nightly", b"1799999990000 web-1:77 new")
    assert (found.kind, found.state, found.holder) == ("schedule", "new", "web-1:77")
    assert found.age is None
    found = seen("scheduled-last:nightly", b"1799999990000 web-1:77")
    assert (found.state, found.holder, found.age) == ("recorded", "web-1:77", 10.0)


def test_permits_are_listed_with_their_holders() -> None:
    """Flat as in RESP2, and nested as in RESP3; a sorted set of another program is foreign."""
    score = NOW * 1000 + 4000
    for members in ([TOKEN, b"%d" % score], [[TOKEN, score]]):
        found = classify("", KeyReading(b"gpu", b"zset", [4000, 3, members]), NOW)
        assert (found.kind, found.taken, len(found.permits)) == ("permits", 3, 1)
        assert found.permits[0] == ("web-1:77", pytest.approx(4), "012345-2a")
    other = classify("", KeyReading(b"top", b"zset", [-1, 1, [b"alice", b"7"]]), NOW)
    assert (other.kind, other.state) == ("foreign", "zset")


def test_other_types_are_foreign() -> None:
    """Their values are not read."""
    assert entry_request(b"k", b"hash", NOW).payload.count(b"*") == 1
    found = classify("", KeyReading(b"k", b"hash", [-1]), NOW)
    assert (found.kind, found.state, found.size) == ("foreign", "hash", None)


def test_a_key_that_the_user_may_not_see_is_named_and_nothing_else() -> None:
    """A user without the right to a command is another matter."""
    for text in ("NOPERM No permissions to access a key", "NOPERM … one of the keys used as args"):
        assert classify("", KeyReading(b"k", ErrorReply(text), []), NOW).state == "denied"
    assert not is_denied(ErrorReply("NOPERM User u has no permissions to run the 'type' command"))


def test_a_key_that_ended_meanwhile_is_gone() -> None:
    """Between SCAN and TYPE, or between TYPE and PTTL."""
    assert is_gone(KeyReading(b"k", b"none", [-2])) and is_gone(
        KeyReading(b"k", b"string", [-2, b""])
    )
    assert not is_gone(KeyReading(b"k", b"string", [-1, b""]))


def test_companion_keys_add_the_fence_and_who_loads() -> None:
    """The fence is the server's time of the acquisition, so it says how old the lease is."""
    clock: Any = [b"1800000000", b"500000"]
    lease = with_companions(seen("user:1", TOKEN), [clock, b"1799999990500000", b"", [], []])
    assert (lease.fence, lease.age) == (1799999990500000, pytest.approx(10))
    value = seen("menu:1", frame("json", "-", NOW - 9, 0.25, b"1"))
    assert with_companions(value, [clock, b"", TOKEN, None, None]).loading == "web-1:77"
    assert with_companions(value, [clock, b"", b"!", None, None]).loading is None


def test_a_shortened_key_hides_what_may_be_personal() -> None:
    """The first word stays; the same key is always shortened alike."""
    assert shorten("order:alice@example.org:7") == shorten("order:alice@example.org:7")
    assert shorten("order:alice:7").startswith("order:~") and "alice" not in shorten("order:alice")
    assert shorten("order:1") != shorten("order:2")
    assert shorten("alice").startswith("~")
    assert is_shortened(shorten("order:1")) and is_shortened(shorten("alice"))
    assert not is_shortened("order:1")


def test_a_pattern_takes_the_namespace_as_it_is() -> None:
    """Glob characters in it match themselves."""
    assert pattern_for("a*[b]?:", "user:*") == rb"a\*\[b\]\?:user:*"
    assert exactly("a^b") == r"a\^b"
    assert scan_request(b"7", b"x*", 100).replies == 2


def test_a_scan_names_a_key_once() -> None:
    """A server may return one twice in one page."""
    clock: Any = [b"1800000000", b"0"]
    assert read_scan([[b"0", [b"a", b"b", b"a"]], clock]) == (b"0", [b"a", b"b"], NOW)


def test_a_cursor_goes_from_node_to_node() -> None:
    """A node that has left is skipped, and the next one begun at its start."""
    nodes = ["a:1", "b:2", "c:3"]
    assert next_node([""], "") == ("", b"0", None)
    assert next_node([""], "17@") == ("", b"17", None)
    assert next_node(nodes, "") == ("a:1", b"0", "0@b:2")
    assert next_node(nodes, "9@b:2") == ("b:2", b"9", "0@c:3")
    assert next_node(nodes, "9@b:1") == ("b:2", b"0", "0@c:3")
    assert next_node(nodes, "9@d:1") == ("c:3", b"0", None)


def test_a_token_is_known_in_each_of_its_forms() -> None:
    """As a lease has it, and as `detach` returns it."""
    for text in (TOKEN.decode(), f"hold:{SECRET.decode()}", f"claim:{SECRET.decode()}"):
        assert named_secret(text) == SECRET
    record = running_record(TOKEN, b"-", NOW)
    for value in (TOKEN, record, done_record(record, b"")):
        assert proof_in(value) is not None and proof_in(value)[0] == SECRET  # type: ignore[index]
        is_done = value.startswith(b"dibs1 done ")
        assert token_hint(value) == ("012345-2a-done" if is_done else "012345-2a")
    assert proof_in(b"1") is None and token_hint(b"1") is None


def test_the_proof_ends_behind_the_secret() -> None:
    """So that the holding with the number 2 is never taken for the one with the number 2a."""
    proof = proof_in(token_maker(b"0123456789abcdef01", b"h", 2)())
    assert proof is not None and not TOKEN.startswith(proof[1])


def test_members_and_facts_are_read() -> None:
    """The tokens of ZSCAN, the fields of INFO."""
    assert read_members([b"3", [TOKEN, b"1"]]) == (b"3", [TOKEN])
    assert read_info(b"# Server\r\nredis_version:7.2.4\r\nrole:master\r\n") == {
        "redis_version": "7.2.4",
        "role": "master",
    }


@pytest.mark.parametrize(
    ("key", "kind", "values"),
    [
        (b"fence:{a}", b"string", [5, b"9" * 400]),
        (b"a", b"string", [5, b"dibs1 json - inf nan\n1"]),
        (b"a", b"zset", [5, 1, [b"0123456789abcdef01-3@web", b"inf"]]),
    ],
)
def test_numbers_that_nobody_can_use_are_no_error_and_become_json(
    key: bytes, kind: bytes, values: list[Any]
) -> None:
    """One strange key must not hide all others from a list, nor make its JSON invalid."""
    entry = classify("", KeyReading(key, kind, values), 1.0)
    json.dumps(entry, allow_nan=False)
