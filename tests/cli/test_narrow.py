"""Terminals with few columns, or without UTF-8: nothing raises, nothing that matters is lost."""

import pytest

from tests.cli.conftest import Shop
from tests.cli.program import Terminal, run_child

NARROW = {"COLUMNS": "40", "LINES": "14"}
WATCH = ("watch", "--namespace", "shop:", "--count", "1")


@pytest.mark.parametrize("words", [("ls", "--namespace", "shop:"), WATCH, ("peek", "job:nightly")])
def test_a_terminal_without_the_characters_gets_others(shop: Shop, words: tuple[str, ...]) -> None:
    """A table that is cut off ends with an ellipsis, which not every encoding has."""
    shop.server.client().set("shop:茶:1", "1")
    env = {**NARROW, "PYTHONIOENCODING": "ascii", "DIBS_NAMESPACE": "shop:"}
    shown = Terminal(shop.url, *words, env=env)
    assert shown.end().code == 0 and "Traceback" not in shown.text


def test_a_pipe_without_the_characters_gets_others(shop: Shop) -> None:
    """As in a container without a locale."""
    shop.server.client().set("shop:茶:1", "1")
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    for words in (("ls", "--namespace", "shop:", "--show-keys"), WATCH):
        done = run_child(shop.url, *words, env=env)
        assert done.code == 0 and "Traceback" not in done.err, done.err


def test_every_row_and_every_remark_of_a_watch_fits_on_a_narrow_screen(shop: Shop) -> None:
    """What does not fit is counted, and the remarks below the table are not cut off."""
    for number in range(30):
        shop.dibs.try_hold(f"door:{number}", ttl=600)
    shown = Terminal(shop.url, *WATCH, "--no-show-keys", env=NARROW)
    assert shown.end().code == 0
    assert "Ctrl-C ends" in shown.text and "do not fit on this screen" in " ".join(
        shown.text.split()
    )
    assert "--show-keys shows them." in " ".join(shown.text.split())
    lines = shown.text.splitlines()
    assert len(lines) <= 14 and max(map(len, lines)) <= 40, shown.text


def test_a_narrow_table_shows_keys_and_what_they_are(shop: Shop) -> None:
    """Columns that say less are left out before keys become unreadable."""
    shown = Terminal(shop.url, "ls", "--namespace", "shop:", env=NARROW)
    assert shown.end().code == 0
    assert "job:n" in shown.text and "lease" in shown.text and "permits" in shown.text
