"""The text of server-sent events."""

import pytest

from dibs._http.sse import event, read_last_event_id

RUN = "0123456789abcdef"


def test_an_event_has_its_number_and_its_run() -> None:
    """A browser sends them back when it reconnects."""
    sent = event("Hello", number=3, run=RUN)
    assert sent == b"id: 3.0123456789abcdef\ndata: Hello\n\n"
    assert read_last_event_id(f"3.{RUN}") == (3, RUN)


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\rb"])
def test_lines_stay_lines(text: str) -> None:
    """And what an item contains cannot begin another event."""
    assert event(text, name="end") == b"event: end\ndata: a\ndata: b\n\n"
    assert event("a\n\nevent: x") == b"data: a\ndata: \ndata: event: x\n\n"


@pytest.mark.parametrize(
    "value", [None, "", "3", "x.y", f"-1.{RUN}", f"{'9' * 20}.{RUN}", "3." + "G" * 16]
)
def test_a_header_that_is_none_of_ours_counts_as_none(value: str | None) -> None:
    """The stream begins with its first item."""
    assert read_last_event_id(value) == (0, "")
