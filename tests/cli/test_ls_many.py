"""`dibs ls --limit 0` with many keys: they are printed as they are read, and not kept."""

import contextlib
import gc
import io
import json
import os
from collections.abc import Iterator
from unittest import mock

import pytest

from dibs._internal_api import KeyInfo
from dibs.cli import main
from dibs.testing import Server
from tests.cli.program import Terminal, environment, run

MANY = 5_000
WORDS = ("ls", "--all", "--limit", "0", "--show-keys")


@pytest.fixture(scope="module")
def full() -> Iterator[Server]:
    """A server with more keys than are sorted by default."""
    with Server.start("valkey") as server:
        server.client().mset({f"job:{number:04}": "1" for number in range(MANY)})
        yield server


class Counting(io.StringIO):
    """An output that notes how many entries there are in this process when it is written to."""

    most = 0
    writes = 0

    def write(self, text: str) -> int:
        self.writes += 1
        if self.writes % 1000 == 0:
            alive = sum(type(each) is KeyInfo for each in gc.get_objects())
            self.most = max(self.most, alive)
        return super().write(text)


def listed(server: Server, *words: str) -> Counting:
    """What was printed."""
    out = Counting()
    with (
        mock.patch.dict(os.environ, environment(server.url), clear=True),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()),
    ):  # fmt: skip
        assert main([*WORDS, *words]) == 0
    return out


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_entries_that_were_printed_are_not_kept(full: Server, words: tuple[str, ...]) -> None:
    """So the memory of the program does not grow with the number of keys."""
    gc.collect()
    before = sum(type(each) is KeyInfo for each in gc.get_objects())
    out = listed(full, *words)
    assert out.writes >= MANY and 0 < out.most - before < MANY / 2


def test_the_json_is_one_object_with_every_key_once(full: Server) -> None:
    """On one line, with the same fields as a short one."""
    text = listed(full, "--json").getvalue()
    assert text.count("\n") == 1 and text.endswith("}\n")
    found = json.loads(text)
    assert list(found) == ["entries", "complete", "left_out", "unreachable"]
    assert {each["key"] for each in found["entries"]} == {f"job:{n:04}" for n in range(MANY)}
    assert len(found["entries"]) == MANY and found["complete"] is True


def test_the_text_is_one_table(full: Server) -> None:
    """One heading, columns at the same place in every row, and the sum of all."""
    done = run(full.url, *WORDS)
    heading, *rows = done.lines
    assert heading.startswith("KEY") and len({row.split()[0] for row in rows}) == MANY
    assert {row.index("foreign string") for row in rows} == {heading.index("WHAT")}
    assert done.err.startswith(f"{MANY} keys: {MANY} foreign") and "not sorted" in done.err


def test_the_order_that_is_asked_for_is_kept(full: Server) -> None:
    """For that all of them are read first."""
    keys = [f"job:{number:04}" for number in range(MANY)]
    for words, wanted in ((["--sort", "key"], keys), (["--reverse"], keys[::-1])):
        done = run(full.url, *WORDS, *words)
        assert [row.split()[0] for row in done.lines[1:]] == wanted and "not sorted" not in done.err


def test_few_keys_are_sorted_all_the_same(full: Server) -> None:
    """As many as are listed without `--limit`."""
    done = run(full.url, *WORDS, "job:00*")
    assert [row.split()[0] for row in done.lines[1:]] == [f"job:{n:04}" for n in range(100)]
    assert "not sorted" not in done.err


def test_a_terminal_gets_a_heading_now_and_then(full: Server) -> None:
    """The table of rich knows its columns only for what it prints at once."""
    shown = Terminal(full.url, *WORDS)
    assert shown.end().code == 0 and "Traceback" not in shown.text
    assert shown.text.count("job:") == MANY and 2 <= shown.text.count("WHAT") <= 10
