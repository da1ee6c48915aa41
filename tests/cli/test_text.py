"""Words, tables and changes: pure, without a server and without a terminal."""

import pytest

from dibs._internal_api import MOST_SHOWN, KeyInfo, Permit, printable
from dibs._key_texts import as_object, duration, facts, meaning, risk, row, size, who
from dibs.cli.terminal import plain
from dibs.cli.watching import changes

LEASE = KeyInfo("job:1", "lease", "held", 30.0, "web-1:7", token_hint="012345-1")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0031, "3 ms"), (0.4, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
     (59.7, "1m00s"), (192, "3m12s"), (7500, "2h05m"), (356400, "4d03h"), (None, "never")],
)  # fmt: skip
def test_times_are_short(seconds: float | None, text: str) -> None:
    """Two units at most."""
    assert duration(seconds, "never") == text


def test_sizes_are_short() -> None:
    """In powers of a thousand."""
    assert [size(each) for each in (None, 58, 2100, 3_400_000)] == ["", "58 B", "2.1 kB", "3.4 MB"]


def test_control_characters_are_written_out() -> None:
    """Everything else stays, in any script."""
    assert printable("a\x1b[2J\nb") == r"a\x1b[2J\nb" and printable("訂單:1") == "訂單:1"


@pytest.mark.parametrize("key", ["x" * 500_000, f"{'x' * 500_000}:1", f"lock:{{{'x' * 500_000}}}"])
def test_a_very_long_key_is_cut(key: str) -> None:
    """dibs has none, but others may; every row of the table would be as wide."""
    entry = KeyInfo(key, "lock", "loading", 3.0, of=key)
    for whole in (True, False):
        assert len("".join(row(entry, whole=whole))) < 2 * MOST_SHOWN + 100
    assert len(str(as_object(entry, whole=False))) < 2 * MOST_SHOWN + 500
    assert as_object(entry, whole=True)["key"] == key  # a program asked for it


def test_columns_are_aligned_and_empty_ones_left_out() -> None:
    """Wide characters take two columns."""
    lines = plain(("KEY", "NOTE", "LEFT"), [["訂單", "", "5 s"], ["menu:1", "", "10 s"]])
    assert lines == ["KEY     LEFT", "訂單     5 s", "menu:1  10 s"]


def test_marks_above_a_letter_take_no_column() -> None:
    """Accents may be separate characters."""
    lines = plain(("KEY", "LEFT"), [["cafe\u0301", "5 s"], ["menu", "5 s"]])
    assert lines == ["KEY   LEFT", "cafe\u0301   5 s", "menu   5 s"]


def test_the_holder_of_permits_is_the_first_one_and_the_number_of_others() -> None:
    """All of them are in `peek`."""
    permits = (Permit("web-1:7", 5.0, "012345-1"), Permit("web-2:8", 9.0, "012345-2"))
    entry = KeyInfo("gpu", "permits", "held", 9.0, permits=permits, taken=30)
    assert who(entry) == "web-1:7 +29"
    assert [value for name, value in facts(entry, whole=False) if name == "permit"][-1] == (
        "… 28 more"
    )


def test_every_kind_has_a_meaning_and_a_risk() -> None:
    """In sentences; a key without expiry says so."""
    for kind in ("lease", "permits", "claim", "done", "cached", "lock", "schedule", "fence", "tag",
                 "foreign"):  # fmt: skip
        entry = LEASE._replace(kind=kind)
        assert meaning(entry).endswith(".") and risk(entry).endswith(".")
        assert len(row(entry, whole=False)) == 7
    assert "never" in meaning(LEASE._replace(remaining=None))
    assert "it has none" in risk(LEASE) and "17" in risk(LEASE._replace(fence=17))


@pytest.mark.parametrize(
    ("now", "change"),
    [
        (LEASE._replace(remaining=29.0), None),
        (LEASE._replace(remaining=30.0), "renewed"),
        (LEASE._replace(remaining=None), "renewed"),
        (LEASE._replace(token_hint="012345-2"), "taken"),
        (LEASE._replace(note="other"), "changed"),
        (LEASE._replace(kind="done", state="done", token_hint="012345-1-done"), "changed"),
    ],
)
def test_a_change_between_two_looks_has_a_name(now: KeyInfo, change: str | None) -> None:
    """A second has passed between them."""
    found = changes({"job:1": LEASE}, {"job:1": now}, 1.0)
    assert [each.change for each in found] == ([] if change is None else [change])


def test_keys_that_come_and_go_are_named() -> None:
    """The first look finds what is present."""
    assert [each.change for each in changes(None, {"a": LEASE}, 0.0)] == ["present"]
    assert [each.change for each in changes({"a": LEASE}, {"b": LEASE}, 1.0)] == ["gone", "new"]


def test_of_a_list_that_is_not_whole_nothing_is_concluded_from_what_it_lacks() -> None:
    """A limit or a silent node hides keys: they are not gone, and not new when they are seen."""
    before, now = {"a": LEASE}, {"b": LEASE}
    assert [each.change for each in changes(before, now, 1.0, is_whole=False)] == ["new"]
    assert [each.change for each in changes(before, now, 1.0, was_whole=False)] == ["gone"]


def test_a_value_that_was_loaded_anew_has_changed() -> None:
    """Its age has fallen."""
    value = KeyInfo("menu", "cached", "value", 60.0, age=50.0)
    found = changes({"menu": value}, {"menu": value._replace(age=0.5, remaining=99.0)}, 1.0)
    assert [each.change for each in found] == ["changed"]
