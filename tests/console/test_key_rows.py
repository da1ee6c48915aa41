"""What was read of a server, as rows and counts: pure, no server, no clock."""

from typing import Any

import pytest

from dibs._internal_api import MOST_SHOWN, KeyInfo, Page, Permit, ScheduledRun
from dibs._key_texts import Alive
from dibs.console.key_rows import (
    MOST_ROWS,
    MOST_TEXTS,
    PAGE,
    Search,
    Survey,
    SurveyView,
    page_of,
    search_of,
    view_of,
)

FIRST = SurveyView()


def lease(number: int, **facts: Any) -> KeyInfo:
    facts = {"remaining": 5.0 + number, "holder": "web-1:7", "token_hint": f"abc-{number}", **facts}
    return KeyInfo(f"order:{number}", "lease", "held", **facts)


def swept(*pages: Page, now: float = 100.0) -> Survey:
    survey = Survey()
    for page in pages:
        survey.next_cursor(now)
        survey.read(page, now)
    return survey


def shown(
    survey: Survey, view: SurveyView = FIRST, now: float = 100.0, **rights: bool
) -> dict[str, Any]:
    rights = {"keys": False, "release": False, **rights}
    sweep = survey.shown_for(search_of(view, keys=rights["keys"]))
    assert sweep is not None
    return page_of(sweep, view, now, look, **rights)


def look(holder: str | None) -> Alive:
    """The processes of one machine, as their names say."""
    return "ended" if holder == "web-1:dead" else "stopped" if holder == "web-1:halt" else "unknown"


def test_keys_are_shortened_and_notes_left_out_without_the_right_to_see_them() -> None:
    """The same key is shortened alike, so that it can be recognised; nothing else of it is sent."""
    survey = swept(Page([lease(42, note="for Ann"), lease(43, of="order:77")], None))
    text = str(shown(survey))
    assert "order:42" not in text and "Ann" not in text and "order:77" not in text
    assert shown(survey)["rows"][0]["key"].startswith("order:~")
    assert shown(survey) == shown(survey)
    whole = shown(survey, keys=True)["rows"][0]
    assert (whole["key"], whole["note"]) == ("order:42", "for Ann")


def test_what_a_release_compares_is_only_for_those_who_may_release() -> None:
    """Of permits as well."""
    permits = KeyInfo(
        "gpu", "permits", "held", 9.0, permits=(Permit("a:1", 9.0, "perm-1"),), taken=1
    )
    survey = swept(Page([lease(1), permits], None))
    everything = [str(shown(survey, SurveyView(group))) for group in ("leases", "permits")]
    assert not any("abc-1" in text or "perm-1" in text for text in everything)
    assert shown(survey, release=True)["rows"][0]["seen"] == "abc-1"
    [row] = shown(survey, SurveyView("permits"), release=True)["rows"]
    assert row["permits"][0]["seen"] == "perm-1"


def test_remaining_times_run_on_between_two_readings() -> None:
    """A row that was read three seconds ago has three seconds less, and never less than none."""
    survey = swept(Page([lease(1, age=10.0)], None), now=100.0)
    [row] = shown(survey, now=103.0)["rows"]
    assert (row["remaining"], row["age"]) == (3.0, 13.0)
    assert shown(survey, now=200.0)["rows"][0]["remaining"] == 0.0


def test_rows_are_paged_sorted_and_filtered() -> None:
    """Fifty on a page; a page that is not there is the last one."""
    survey = swept(Page([lease(number) for number in range(PAGE + 10)], None))
    first, beyond = shown(survey), shown(survey, SurveyView(number=9))
    assert len(first["rows"]) == PAGE and first["pages"] == 2
    assert beyond["page"] == 2 and len(beyond["rows"]) == 10
    last_first = shown(survey, SurveyView(order="ends last"), keys=True)["rows"]
    assert last_first[0]["key"] == f"order:{PAGE + 9}"
    found = shown(survey, SurveyView(text="ORDER:33"), keys=True)
    assert [row["key"] for row in found["rows"]] == ["order:33"]
    assert shown(survey, SurveyView(text="web-1"))["matching"] == PAGE + 10


def test_a_part_of_a_hidden_key_cannot_be_searched_for() -> None:
    """Or it could be guessed, letter by letter."""
    survey = swept(Page([lease(42)], None))
    assert shown(survey, SurveyView(text="42"), keys=True)["matching"] == 1
    short = shown(survey)["rows"][0]["key"]
    assert shown(survey, SurveyView(text="42"))["matching"] == 0
    assert shown(survey, SurveyView(text=short))["matching"] == 1


def test_a_very_long_key_is_cut_and_still_told_from_others() -> None:
    """dibs has none, but others may: they are megabytes, to be kept and sent once a second."""
    long = "x" * 500_000
    keys = [f"{long}:1", f"{long}:2", f"big:{long}", f"lock:{{{long}}}"]
    entries = [KeyInfo(key, "foreign", "string", of=key) for key in keys]
    survey = swept(Page(entries, "1"), Page(entries, None))
    for keys_too in (False, True):
        rows = shown(survey, SurveyView("others"), keys=keys_too)["rows"]
        assert len({row["id"] for row in rows}) == len(rows) == 4
        assert len(str(rows)) < 4 * 3 * MOST_SHOWN
    assert survey.last is not None and survey.last.counts["others"] == 4
    assert shown(survey, SurveyView("others", text="BIG:xx"), keys=True)["matching"] == 1


def test_memory_is_bounded_and_everything_is_counted() -> None:
    """The first rows of each kind are kept, all others are counted; one kind does not displace
    another."""
    many = [lease(number) for number in range(MOST_ROWS + 500)]
    cached = KeyInfo("menu:1", "cached", "value", 60.0)
    survey = swept(Page(many, "1"), Page([cached], None))
    assert survey.last is not None
    assert survey.last.counts["leases"] == MOST_ROWS + 500
    assert shown(survey)["listed"] == MOST_ROWS
    assert shown(survey, SurveyView("cached"))["matching"] == 1


def test_rows_are_sorted_over_all_keys() -> None:
    """What ends last is found among all of them, whenever it was read."""
    many = [lease(number) for number in range(5 * MOST_ROWS)]
    pages = [Page(many[at : at + 500], "1") for at in range(0, len(many), 500)]
    survey = swept(*pages[:-1], pages[-1]._replace(cursor=None))
    first, last = shown(survey), shown(survey, SurveyView(order="ends last"))
    assert first["rows"][0]["remaining"] == 5.0
    assert last["rows"][0]["remaining"] == 5.0 + len(many) - 1
    assert first["listed"] == MOST_ROWS and first["matching"] == len(many)


def test_a_whole_key_is_found_although_keys_are_shortened() -> None:
    """Its capitals count, as they do in the key."""
    survey = swept(Page([lease(42), KeyInfo("order:Ann", "lease", "held")], None))
    for text, number in (("order:42", 1), ("order:Ann", 1), ("order:ann", 0), ("order:4", 0)):
        assert len(shown(survey, SurveyView(text=text))["rows"]) == number, text


def test_a_text_is_looked_for_in_all_keys() -> None:
    """In the sweep that begins next, at once; until then among the rows that are kept."""
    # Ends that lie between those of others: it is in no list of first ones.
    many = [lease(number, holder=f"web-{number}:1") for number in range(5 * MOST_ROWS)]
    survey, wanted = swept(Page(many, None)), 5 * MOST_ROWS // 2
    view = SurveyView(text=f"WEB-{wanted}:")
    assert shown(survey, view)["rows"] == [] and not shown(survey, view)["searched"]
    assert not survey.is_due(100.1, 2.0)
    search = search_of(view, keys=False)
    assert search is not None
    survey.want(search, 100.1)
    assert survey.is_due(100.1, 2.0)
    survey.next_cursor(100.1)
    survey.read(Page(many, None), 100.2)
    page = shown(survey, view)
    assert page["searched"] and page["matching"] == len(page["rows"]) == 1
    for number in range(3 * MOST_TEXTS):
        survey.want(Search(str(number), False), 100.3)
    survey.next_cursor(100.3)
    assert survey.current is not None and len(survey.current.found) == MOST_TEXTS
    survey.look_again()
    survey.next_cursor(500.0)
    assert survey.current is not None and not survey.current.found, "nobody looks for them"


def test_a_text_is_looked_for_in_the_last_of_very_many_keys() -> None:
    """Until then it is not said that there is none; what is found is shown at once."""
    survey, view = swept(Page([lease(1)], None)), SurveyView(text="web-9")
    search = search_of(view, keys=False)
    assert search is not None
    survey.want(search, 200.0)
    entries = [lease(number) for number in range(1000)]
    for _ in range(400):
        survey.next_cursor(200.0)
        survey.read(Page(entries, "7"), 200.0)
        assert not shown(survey, view)["searched"]
    survey.read(Page([lease(5000, holder="web-9:1")], "7"), 201.0)
    page = shown(survey, view)
    assert page["matching"] == 1 and not page["searched"]
    survey.read(Page([], None), 202.0)
    assert shown(survey, view)["searched"]


def test_a_sweep_ends_where_there_are_too_many_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and the next one begins at the start."""
    monkeypatch.setattr("dibs.console.key_rows.MOST_KEYS", 3000)
    survey = Survey()
    entries = [lease(number) for number in range(1000)]
    for _ in range(3):
        survey.next_cursor(1.0)
        done = survey.read(Page(entries, "7"), 1.0)
    assert done and survey.last is not None and survey.last.is_cut
    assert survey.next_cursor(2.0) == ""


def test_a_key_that_is_named_twice_is_one_row() -> None:
    """SCAN may name a key twice while the server resizes its table."""
    survey = swept(Page([lease(1)], "5"), Page([lease(1), lease(2)], None))
    assert survey.last is not None and survey.last.counts["leases"] == 2


def test_the_last_complete_sweep_is_shown_while_the_next_is_under_way() -> None:
    """Before the first is complete, what was read so far is shown."""
    survey = swept(Page([lease(1)], "5"))
    assert shown(survey)["matching"] == 1 and survey.last is None
    survey.read(Page([lease(2)], None), 101.0)
    survey.next_cursor(102.0)
    survey.read(Page([], "5"), 102.0)
    assert shown(survey)["matching"] == 2


def test_a_failure_keeps_what_was_read_and_ends_with_the_next_page() -> None:
    """The first moment of the failure is kept, too."""
    survey = swept(Page([lease(1)], None))
    survey.failed("refused", 110.0)
    survey.failed("refused", 112.0)
    assert survey.failed_at == 110.0 and shown(survey)["matching"] == 1
    survey.next_cursor(113.0)
    survey.read(Page([], None), 113.0)
    assert survey.failure is None


def test_a_sweep_that_takes_long_is_followed_by_a_pause_as_long() -> None:
    """At least two seconds lie between two readings; a change makes the next one due."""
    survey = swept(Page([], "3"), now=100.0)
    survey.read(Page([], None), 130.0)
    assert not survey.is_due(150.0, 2.0) and survey.is_due(160.0, 2.0)
    survey.look_again()
    assert survey.is_due(131.0, 2.0)


def test_an_old_sweep_gives_way_to_the_beginning_of_a_new_one() -> None:
    """A viewer who comes back after an hour does not see what was listed an hour ago."""
    survey = swept(Page([lease(1), lease(2)], None), now=100.0)
    survey.failed("refused", 3000.0)
    assert shown(survey)["matching"] == 2
    survey.next_cursor(3600.0)
    survey.read(Page([lease(3)], "7"), 3600.0)
    assert shown(survey)["matching"] == 1


def test_a_view_that_makes_no_sense_is_the_first_one() -> None:
    """Queries come from anywhere."""
    assert view_of({}) == SurveyView()
    assert view_of({"group": "x", "order": "y", "page": "-1"}) == SurveyView()
    assert view_of({"page": "²"}) == SurveyView()
    assert view_of({"page": "9" * 5000}) == SurveyView()
    assert view_of({"group": "cached", "page": "3"}) == SurveyView("cached", number=3)


def test_what_is_stuck_comes_first() -> None:
    """Before what ends first: a key that never expires, and those whose process has ended or is
    stopped; the row says which it is."""
    stuck_ones = [
        lease(70, remaining=None),
        lease(80, holder="web-1:dead"),
        KeyInfo("gpu", "permits", "held", 900.0, permits=(Permit("web-1:halt", 9.0, "p-1"),)),
        KeyInfo("old", "lock", "resting", 2.0),
    ]
    survey = swept(Page([lease(1), *stuck_ones, KeyInfo("menu", "cached", "value", 1.0)], None))
    rows = shown(survey, keys=True)["rows"]
    assert [(row["key"], row["stuck"]) for row in rows] == [
        ("order:80", "its process has ended"),
        ("gpu", "its process is stopped"),
        ("order:70", "it never expires"),
        ("old", ""),
        ("order:1", ""),
    ]


def test_who_waits_is_on_the_row_of_the_lease() -> None:
    """By the note that waiters leave, which is a key of its own."""
    note = KeyInfo("waiting:{order:1}", "waiters", "waiting", 30.0, of="order:1", taken=2)
    rows = shown(swept(Page([lease(1), lease(2), note], None)), keys=True)["rows"]
    assert [row["waiting"] for row in rows] == [2, 0]


def test_schedules_are_sorted_by_their_next_run() -> None:
    """Not by how long their record is kept; one that is overdue is the first."""
    run = ScheduledRun(1.0, "web-1:7", "finished", 0.1, 3.2, 60.0)
    late, soon = (
        KeyInfo(f"scheduled-last:{name}", "schedule", "recorded", 9e6, runs=(run,), due=due)
        for name, due in (("late", -120.0), ("soon", 300.0))
    )
    survey = swept(Page([soon, late], None), now=100.0)
    rows = shown(survey, SurveyView("schedules"), now=110.0, keys=True)["rows"]
    assert [(row["due"], row["ended"]) for row in rows] == [
        (-130.0, "finished in 3.2 s"),
        (290.0, "finished in 3.2 s"),
    ]


def test_what_changed_between_two_readings_is_remembered() -> None:
    """The latest first: taken, freed, handed on to another holder, done; of permits each."""
    permits = (Permit("a:1", 9.0, "p-1"), Permit("a:2", 9.0, "p-2"))
    gpu = KeyInfo("gpu", "permits", "held", 9.0, permits=permits, taken=2)
    running = KeyInfo("pay:7", "claim", "running", 5.0, "web-1:7", token_hint="c-1")
    before = Page([lease(1), lease(2), gpu, running], None)
    after = Page(
        [
            lease(2, holder="web-2:9", token_hint="abc-9"),
            lease(3),
            gpu._replace(permits=permits[1:], taken=1),
            KeyInfo("pay:7", "done", "done", 90.0, token_hint="c-1-done"),
        ],
        None,
    )
    survey = swept(before)
    assert not survey.changes, "nothing is known of the time before"
    survey.next_cursor(102.0)
    survey.read(after, 102.0)
    found = {(each.row.entry.key, each.what, each.holder) for each in survey.changes}
    assert found == {
        ("order:1", "freed", "web-1:7"),
        ("gpu", "freed", "a:1"),
        ("pay:7", "done", "web-1:7"),
        ("order:2", "handed on", "web-2:9"),
        ("order:3", "taken", "web-1:7"),
    }
    survey.next_cursor(104.0)
    survey.read(Page([lease(number) for number in range(MOST_ROWS + 1)], None), 104.0)
    assert len(survey.changes) == len(found), "not all rows are kept, so nothing is compared"
