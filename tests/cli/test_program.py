"""The program: its exit codes, its help, its completion, what it needs."""

import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from dibs._internal_api import KEY_KINDS, KeyInfo, Permit
from dibs.cli.cron_and_sql import Completions
from dibs.cli.program import (
    CLOSED_PIPE,
    COMMANDS,
    INTERRUPTED,
    NOT_FOUND,
    OK,
    UNAVAILABLE,
    USAGE,
    make_parser,
)
from dibs.cli.watching import SIGNS
from dibs.testing import Server
from tests.cli.program import COMMAND, environment, run, run_child


def test_exit_codes_tell_usage_from_an_outage(valkey: Server) -> None:
    """2: no server was named, or it refused; 3: no server answers. One line, no traceback."""
    missing = run_child("", "ls")
    assert missing.code == 2 and "DIBS_URL" in missing.err
    out = run("redis://127.0.0.1:1", "ls", "--budget", "1")
    assert out.code == 3 and "unavailable" in out.err and len(out.err.splitlines()) == 1
    assert "dibs doctor" in out.err
    wrong = run(valkey.url.replace("://", "://u:secret@"), "ls")
    assert wrong.code == 2 and "secret" not in wrong.err


def test_without_a_command_it_says_which_there_are() -> None:
    """Its help, and the exit code of a wrong usage; a word that is nearly one is named."""
    alone = run("")
    assert alone.code == 2 and "examine the server" in alone.err and not alone.out
    nearly = run("", "lss")
    assert nearly.code == 2 and nearly.err == (
        "dibs: there is no command 'lss'; did you mean `dibs ls`?\n"
    )
    assert "there are ls, peek, why" in run("", "zzzz").err


def test_an_unavailable_server_is_one_sentence() -> None:
    """What the system says and what to do next are joined as one."""
    done = run("redis://127.0.0.1:1", "ls")
    assert done.code == 3 and ".;" not in done.err and "; `dibs doctor`" in done.err


def test_a_wrong_argument_of_a_command_shows_the_usage_of_that_command() -> None:
    """Not that of the program; a URL is not repeated, because it may hold a password."""
    for words in (["doctor", "redis://:secret@host:6379"], ["doctor", "-q", "valkeys://:secret@h"]):
        wrong = run("", *words)
        assert wrong.code == USAGE and wrong.err.startswith("usage: dibs doctor ")
        assert "--url" in wrong.err.splitlines()[-1] and "DIBS_URL" in wrong.err
        assert "secret" not in wrong.err
    wrong = run("", "peek", "key", "other", "--nothing")
    assert wrong.code == USAGE and wrong.err.startswith("usage: dibs peek ")
    assert wrong.err.endswith("unrecognized arguments: other --nothing\n")


def test_streams_that_are_closed_or_full_end_it_without_a_traceback(valkey: Server) -> None:
    """`>&-` loses the output; a full disk is reported as an error."""
    command = " ".join([*COMMAND, "completion", "bash"])
    for redirection, code in ((">&-", 0), (">&- 2>&- <&-", 0), (">/dev/full", 2)):
        done = subprocess.run(
            ["bash", "-c", f"{command} {redirection}"], capture_output=True, text=True,
            env=environment(valkey.url),
        )  # fmt: skip
        assert done.returncode == code and "Traceback" not in done.stderr, redirection


def test_what_a_server_says_cannot_steer_the_terminal() -> None:
    """Its errors are printed as text, also those of a server that is none of ours."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    with client, suppress(OSError):
                        while client.recv(65536):
                            client.sendall(b"-LOADING \x1b]0;owned\x07\x1b[2J\r\n" * 9)

        threading.Thread(target=answer, daemon=True).start()
        url = f"redis://127.0.0.1:{listening.getsockname()[1]}"
        for words in (["ls"], ["doctor"]):
            done = run(url, *words, "--budget", "1")
            assert "owned" in done.out + done.err and "\x1b" not in done.out + done.err, words


def test_it_works_where_applications_are_told_to_do_without_dibs(valkey: Server) -> None:
    """DIBS_DISABLED is for them."""
    valkey.client().set("job", "1")
    done = run(valkey.url, "ls", "--all", "--json", env={"DIBS_DISABLED": "1"})
    assert len(done.json["entries"]) == 1


def test_help_names_every_command_without_loading_a_client() -> None:
    """So that it is quick; the exit codes are in it."""
    program = "import sys; from dibs.cli import main\n"
    program += "try: main(['--help'])\nexcept SystemExit: print('redis' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    for word in ("ls", "peek", "watch", "release", "invalidate", "exit codes"):
        assert word in done.stdout
    assert done.stdout.endswith("False\n")


def test_without_rich_a_terminal_gets_plain_text(valkey: Server) -> None:
    """rich is an extra."""
    valkey.client().set("job", "1")
    program = "import sys; sys.modules['rich'] = sys.modules['rich.console'] = None\n"
    program += "import os, pty, sys\n"
    program += "pid, master = pty.fork()\n"
    program += "if not pid:\n    from dibs.cli import main; sys.exit(main(['ls', '--all']))\n"
    program += "data = b''\n"
    program += "try:\n    while more := os.read(master, 9999): data += more\n"
    program += "except OSError: pass\n"
    program += "os.waitpid(pid, 0); print(data)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True,
        env=environment(valkey.url),
    )  # fmt: skip
    assert "foreign string" in done.stdout and "\\x1b" not in done.stdout


def test_bash_completes_commands_options_and_their_values(tmp_path: object) -> None:
    """The script is made from the parsers."""
    script = run("", "completion", "bash").out
    program = f'{script}\ntry() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dibs; '
    program += 'echo "${COMPREPLY[@]}"; }\ntry dibs re\ntry dibs ls --so\ntry dibs ls --sort ""\n'
    program += 'try dibs ls --limit ""\ntry dibs ls --kind do\ntry dibs completion z\n'
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "release", "--sort", "left key kind holder age size", "", "done", "zsh",
    ]  # fmt: skip
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_a_script_with_every_command(shell: str) -> None:
    """With the options of each."""
    script = run("", "completion", shell).out
    for word in ("release", "invalidate", "show-keys", "kind"):
        assert word in script
    told = {"zsh": ("]:value:' ", "'*--kind[", "'--json["), "fish": ("-l url -x -d", "-l json -d")}
    for word in told[shell]:  # which options are followed by a word, and which may be repeated
        assert word in script


def test_the_page_has_every_option_code_and_field() -> None:
    """Of our own commands; `doctor` and `console` have their own pages."""
    page = (Path(__file__).parents[2] / "docs/command-line.md").read_text("utf-8")
    words = Completions(make_parser("*"))
    ours = [each.name for each in COMMANDS if each.module.startswith("dibs.cli.")]
    for name in ours:
        assert f"`dibs {name}`" in page
        assert [option for option in words.options[name] if f"`{option}`" not in page] == []
    for name in (*KeyInfo._fields, *Permit._fields, *KEY_KINDS, *SIGNS):
        assert f"`{name}`" in page, name
    for code in (OK, NOT_FOUND, USAGE, UNAVAILABLE, INTERRUPTED, CLOSED_PIPE):
        assert f"\n| {code} |" in page


def test_the_entry_point_and_the_module_are_the_same_program() -> None:
    """`dibs`, `python -m dibs`."""
    said = [
        subprocess.run([*command, "--version"], capture_output=True, text=True).stdout
        for command in (COMMAND, [str(Path(sys.executable).with_name("dibs"))])
    ]
    assert said[0] == said[1] and said[0].startswith("dibs ")
