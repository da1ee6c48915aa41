"""What another program wrote to the server is not obeyed by the terminal of an operator."""

import shlex
import unicodedata

import pytest

from dibs.testing import Server

from .program import ESCAPES, Terminal, run

HOSTILE = [
    "\x1b]0;PWNED\x07", "\x1b[2J\x1b[H", "\x9b31m", "a\rb", "x\x08\x08y", "\u202eevil",
    "\x1bP+q\x1b\\", "\x1b]52;c;ZXZpbA==\x07", "l1\nl2", "\u2066x", "e\u0085z",
]  # fmt: skip
TOKEN = b"5a1f00112233445566778899aabbcc%02x-2c"
TIME = b"1795036464000"


@pytest.fixture
def hostile(valkey: Server) -> Server:
    """A lease, a claim, a schedule, a permit and a foreign value for each of them."""
    client = valkey.client()
    for number, text in enumerate(HOSTILE):
        data, token = text.encode(), TOKEN % number
        word = data.replace(b" ", b"").replace(b"\n", b"")
        client.set(b"k:" + data, token + b"@host" + data + b":1", px=900_000)
        claim = b" 9b1e" + b"0" * 28 + b" 193310c1a40@h" + data + b"\nnote " + data
        client.set(b"c:" + data, token + claim, px=900_000)
        done = b"dibs1 done " + token + b" " + word + b" 9b1e" + b"0" * 28 + b"\n"
        client.set(b"d:" + data, done, px=900_000)
        run = TIME + b" h" + word + b" failed:X" + word + b" " + TIME + b" 12"
        client.set(b"scheduled-last:" + data, run)
        client.zadd(b"p:" + data, {token + b"@" + data: 1e13})
        client.set(b"f:" + data, b"x" + data, px=900_000)
    return valkey


def obeyed(text: str) -> list[str]:
    """The characters in *text* that a terminal would obey."""
    return [each for each in text if each != "\n" and unicodedata.category(each) in ("Cc", "Cf")]


KINDS = ("k:", "c:", "d:", "scheduled-last:", "p:", "f:")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_command_prints_what_a_terminal_obeys(hostile: Server, text: str) -> None:
    """Names, holders, notes, outcomes: wherever they are printed."""
    words = [["why", kind + text] for kind in KINDS] + [["peek", kind + text] for kind in KINDS]
    words += [["run", kind + text, "--ttl", "5", "--", "true"] for kind in KINDS]
    words += [["run", kind + text, "--ttl", "5", "--once", "9", "--", "true"] for kind in KINDS]
    words += [["release", kind + text, "--seen", "0"] for kind in KINDS]
    words += [["invalidate", kind + text] for kind in KINDS]
    words += [["ls", "--all", "--show-keys"], ["ls", text + "*"], ["watch", "--count", "1"]]
    for each in words:
        done = run(hostile.url, *each)
        printed = done.out + done.err
        assert printed.strip() and not obeyed(printed), shlex.join(each)
        assert "\nl2" not in printed, "a line that dibs did not write"


@pytest.mark.parametrize("words", [["ls", "--show-keys"], ["watch", "--count", "1"]])
def test_nor_does_a_table_in_a_terminal(hostile: Server, words: list[str]) -> None:
    """Its own colours and movements are all that is obeyed."""
    program = Terminal(hostile.url, *words)
    program.end()
    assert "k:" in program.raw or "~" in program.raw
    assert not obeyed(ESCAPES.sub("", program.raw).replace("\r", ""))
    assert "PWNED\x07" not in program.raw
