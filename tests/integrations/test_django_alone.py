"""`manage.py alone migrate` and the mixin `Alone`: one process at a time runs a command.

The project is written to a temporary folder, and its commands run in their own processes.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from dibs.testing import Server, eventually

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "pods.settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os
SECRET_KEY = "of the tests"
ROOT_URLCONF = "pods.urls"
INSTALLED_APPS = ["dibs.integrations.django", "pods"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DIBS_URL = os.environ["DIBS_URL"]
DIBS_OPTIONS = {"budget": float(os.environ.get("DIBS_BUDGET", "5"))}
"""
MIGRATION = """
import os, time
from django.db import migrations

def fill(apps, schema_editor):
    with open("migrated", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.5)

class Migration(migrations.Migration):
    operations = [migrations.RunPython(fill, migrations.RunPython.noop)]
"""
WORK = """
import os, sys, time
from django.core.management.base import BaseCommand, CommandError

class Command(BaseCommand):
    requires_system_checks = []

    def add_arguments(self, parser):
        parser.add_argument("--wait", default="")     # its own, not that of `alone`
        parser.add_argument("--code", type=int, default=0)

    def handle(self, *args, **options):
        print("runs", flush=True)
        while options["wait"] and not os.path.exists(options["wait"]):
            time.sleep(0.01)
        if options["code"]:
            raise CommandError("as asked", returncode=options["code"])
        print("done", flush=True)
"""
OWN = """
import time
from dibs.integrations.django.alone import Alone
from pods.management.commands.work import Command as Work

class Command(Alone, Work):
    alone_ttl = 1
    alone_skip = True
"""
STUBBORN = """
import time
from dibs.integrations.django.alone import Alone
from pods.management.commands.work import Command as Work

class Command(Alone, Work):
    alone_ttl = 1
    alone_grace = 0.2

    def handle(self, *args, **options):
        print("runs", flush=True)
        while True:
            try:
                time.sleep(60)
            except BaseException:
                print("not now", flush=True)
"""
CALLS = """
import django, os, sys, threading
os.environ["DJANGO_SETTINGS_MODULE"] = "pods.settings"
django.setup()
from django.core.management import CommandError, call_command
from dibs import Dibs
sys.stderr = sys.stdout

def call(*args, **options):
    try:
        print(call_command(*args, **options), flush=True)
    except SystemExit as error:
        print("SystemExit", error.code, flush=True)
    except CommandError as error:
        print("CommandError", error.returncode, error, flush=True)

"""
IN_A_THREAD = """
with Dibs(os.environ["DIBS_URL"]) as dibs, dibs.hold("alone:pods.urls:own", ttl=30):
    call("own")
call("own")
call("nightly")
thread = threading.Thread(target=call, args=["own"], kwargs={"wait": "gate"})
thread.start()
thread.join()
"""
HOST = socket.gethostname()


PAGE = Path(__file__).parents[2] / "docs/frameworks/django.md"


def example() -> str:
    """The command that is shown in the documentation."""
    found = re.search(r"^```python no-run\n# shop/manage.*?^```$", PAGE.read_text(), re.M | re.S)
    assert found is not None
    return found[0].strip("`").partition("\n")[2]


def write_project(folder: Path, settings: str = SETTINGS) -> None:
    """A Django project with a migration that says who has run it, and a few commands."""
    commands = folder / "pods/management/commands"
    commands.mkdir(parents=True)
    (folder / "pods/migrations").mkdir()
    (folder / "manage.py").write_text(MANAGE)
    (folder / "pods/settings.py").write_text(settings)
    (folder / "pods/urls.py").write_text("urlpatterns = []\n")
    (folder / "pods/migrations/__init__.py").touch()
    (folder / "pods/migrations/0001_initial.py").write_text(MIGRATION)
    texts = {"work": WORK, "own": OWN, "stubborn": STUBBORN, "nightly": example()}
    for name, text in texts.items():
        (commands / f"{name}.py").write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    write_project(folder)
    return folder


class Pods:
    """Processes on one project."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, code: str = "", **more: str) -> subprocess.Popen[str]:
        program = ["-c", code] if code else ["manage.py", *arguments]
        environment = {**os.environ, "DIBS_URL": self.url, **more}
        process = subprocess.Popen(
            [sys.executable, *program], cwd=self.folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._started.append(process)
        return process

    def run(self, *arguments: str, **more: str) -> tuple[int, str]:
        """Its exit code, and what it said."""
        process = self.start(*arguments, **more)
        out, err = process.communicate()
        return process.returncode, out + err

    def called(self, calls: str, **more: str) -> str:
        """What *calls* of commands in one process say."""
        process = self.start(code=CALLS + dedent(calls), **more)
        out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out

    def running(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """A process whose command has begun."""
        process = self.start(*arguments, **more)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line == "runs\n", line + (process.stderr.read() if process.stderr else "")
        return process

    def close(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()
        (self.folder / "gate").unlink(missing_ok=True)


@pytest.fixture
def pods(folder: Path, valkey: Server) -> Iterator[Pods]:
    pods = Pods(folder, valkey.url)
    yield pods
    pods.close()


def test_ten_pods_migrate_once(pods: Pods, valkey: Server) -> None:
    """Each migration is applied by one of them, and all ten end well afterwards."""
    started = [pods.start("alone", "migrate", "--no-input") for _ in range(10)]
    ended = [process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 10, ended
    assert len((pods.folder / "migrated").read_text().split()) == 1
    applied = [out for out, _ in ended if "Applying pods.0001_initial... OK" in out]
    idle = [out for out, _ in ended if "No migrations to apply" in out]
    assert len(applied) == 1 and len(idle) == 9
    assert any("migrate is running elsewhere" in err for _, err in ended)
    assert valkey.keys() == []


def test_who_does_not_wait_is_told_and_runs_nothing(pods: Pods, valkey: Server) -> None:
    """75, or 0 with `skip`: with a sentence that says who runs it. Arguments stay apart."""
    first = pods.running("alone", "--ttl", "20", "work", "--wait", "gate")
    assert valkey.keys() == ["alone:pods.urls:work"]
    waiting = pods.start("alone", "--wait", "0", "work")
    calls = """
        call("alone", "work", wait=0.1, skip=True)
        call("alone", "work", wait=0, key="alone:other")
    """
    said = pods.called(calls)
    assert f"work is running elsewhere (vm:{first.pid}): skipped" in said.replace(HOST, "vm")
    assert said.endswith("None\nruns\ndone\nNone\n")
    out, err = waiting.communicate()
    assert (waiting.returncode, out) == (75, "") and "was not run here" in err
    (pods.folder / "gate").touch()
    assert "done" in first.communicate()[0] and first.returncode == 0


def test_the_exit_code_is_that_of_the_command(pods: Pods, valkey: Server) -> None:
    """An error of the command is its own, and frees the key; mistakes need no Redis."""
    code, said = pods.run("alone", "work", "--code", "3")
    assert code == 3 and "as asked" in said and valkey.keys() == []
    before = valkey.commands()
    calls = """
        call("alone", "wrok")
        call("alone", "work", ttl=0)
        call("alone", "own")
    """
    unknown, ttl, own = pods.called(calls).strip().split("\n")[-3:]
    assert unknown == "SystemExit 1"
    assert ttl.startswith("CommandError 1 ttl must be") and "without `alone`" in own
    assert valkey.commands() == before


def test_in_an_outage_no_pod_runs_anything(pods: Pods, own_server: Server) -> None:
    """69, with a sentence; unless it is told to run unguarded, which it says, too."""
    pods.url = own_server.url
    own_server.kill()
    code, said = pods.run("alone", "work", DIBS_BUDGET="0.2")
    assert code == 69 and "work was not run: Redis is unavailable" in said
    assert "runs" not in said.split("\n") and "Traceback" not in said
    said = pods.called('call("alone", "work", on_outage="open")', DIBS_BUDGET="0.2")
    assert said.endswith("runs\ndone\nNone\n") and "others may run it too" in said


@pytest.mark.parametrize("command", [("alone", "--ttl", "1", "work"), ("own",)])
def test_a_command_that_lost_its_lease_is_stopped(
    pods: Pods, valkey: Server, command: tuple[str, ...]
) -> None:
    """70 and a loud error, in the middle of its work; the successor's key is not touched."""
    process = pods.running(*command, "--wait", "gate")
    [key] = valkey.keys()
    valkey.client().set(key, "successor", px=60_000)
    out, err = process.communicate()
    assert process.returncode == 70 and "done" not in out
    assert "was stopped: its lease was lost" in err and "Traceback" not in err
    assert valkey.client().get(key) == b"successor"


def test_a_command_that_cannot_be_interrupted_is_ended(pods: Pods, valkey: Server) -> None:
    """With its process, some time after it was interrupted; the log says so."""
    process = pods.running("stubborn")
    valkey.client().set("alone:pods.urls:stubborn", "successor", px=60_000)
    out, err = process.communicate()
    assert process.returncode == 70 and "not now" in out and "did not end" in err


def test_a_pod_that_dies_is_followed_by_the_next(pods: Pods, valkey: Server) -> None:
    """It is renewed while it lives, past its ttl; after a SIGKILL the next waits for the rest."""
    first = pods.running("alone", "--ttl", "1", "work", "--wait", "gate")
    second = pods.start("alone", "--ttl", "1", "--wait", "60", "work")
    assert second.stderr is not None
    assert "waiting for up to 60 s" in second.stderr.readline()
    since = time.monotonic()
    eventually(lambda: time.monotonic() > since + 1.2 and first.poll() is None, within=90)
    assert second.poll() is None and "alone:pods.urls:work" in valkey.keys()
    first.send_signal(signal.SIGKILL)
    out, err = second.communicate()
    assert (second.returncode, out) == (0, "runs\ndone\n"), err


def test_commands_that_are_called_by_programs(pods: Pods, valkey: Server) -> None:
    """`call_command` skips, runs the example of the documentation, and in a thread, which cannot be
    stopped, tells the loss.
    """
    process = pods.start(code=CALLS + IN_A_THREAD)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip() for _ in range(8)]
    assert "skipped" in lines[0] and lines[1:5] == ["None", "runs", "done", "None"]
    assert lines[5:] == ["the index is rebuilt", "None", "runs"]
    valkey.client().delete("alone:pods.urls:own")
    valkey.client().set("alone:pods.urls:own", "successor", px=60_000)
    before = valkey.commands()
    eventually(lambda: valkey.commands() > before, within=90)  # a renewal, which was refused
    (pods.folder / "gate").touch()
    out, err = process.communicate()
    assert "done" in out.splitlines() and "\nCommandError 70 " in out, out + err


def test_ctrl_c_is_still_ctrl_c(pods: Pods, valkey: Server) -> None:
    """While it runs, SIGINT ends it as always, and the key is free."""
    process = pods.running("alone", "work", "--wait", "gate")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in err
    assert valkey.keys() == []


def test_sigterm_frees_the_key(pods: Pods, valkey: Server) -> None:
    """As Kubernetes ends a pod: the next one need not wait for the ttl. The exit code is 143."""
    process = pods.running("alone", "work", "--wait", "gate")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM and "done" not in out
    assert "Traceback" not in err and valkey.keys() == []
