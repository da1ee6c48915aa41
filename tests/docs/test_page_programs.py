"""Programs of several files on the pages, and what pages say about other files, are true.

A block that begins with a comment such as `# settings.py` is a file. Programs that fork, or that
configure a framework for the whole process, run in their own process.
"""

import ast
import asyncio
import functools
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from local_line import BlockingLine

from dibs import Busy, Dibs, Unavailable, UsageError
from dibs.testing import Server, aeventually, eventually
from dibs.testing.ports import free_port
from tools import run_migrations

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOCAL_LINE = "../packages/local-line/MANUAL.md"
FILE = re.compile(r"^```python(?: no-run)?\n# (?P<name>\w+\.py)(?P<rest>.*?)^```$", re.M | re.S)


def write_files(page: str, folder: Path, url: str) -> None:
    """The files of *page*, with the address of the server in place of localhost."""
    for found in FILE.finditer((DOCS / page).read_text("utf-8")):
        text = "#" + found["rest"].replace("redis://localhost:6379", url)
        (folder / found["name"]).write_text(text, "utf-8")


def run_in(folder: Path, code: str) -> str:
    """What the program prints."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ----------------------------------------------------------------------------------- programs

DJANGO = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.test import Client

def post(path, key=None, body="{}"):
    headers = {"idempotency-key": key} if key else {}
    answer = Client().post(path, body, content_type="application/json", headers=headers)
    return answer.status_code, answer.headers.get("idempotent-replayed")

assert [post("/orders/") for _ in range(2)] == [(201, None), (429, None)]
assert post("/payments/")[0] == 400
assert [post("/payments/", "k-1") for _ in range(2)] == [(201, None), (201, "true")]
from django.test import override_settings
with override_settings(DIBS_REFUSED="pages.refused"):
    kind, html = "application/json", {"accept": "text/html"}
    page = Client().post("/orders/", "{}", content_type=kind, headers=html)
assert page.content == b"<h1>We have it already</h1><p>Already sent, please wait.</p>"
assert 0 < int(page["Retry-After"]) <= 10
room = '{"room": 7}'
assert [post("/bookings/", "k-1", room) for _ in range(2)] == [(201, None), (201, "true")]
"""


def test_the_django_project_does_what_its_table_says(valkey: Server, tmp_path: Path) -> None:
    """Settings, views and URLs of the page, unchanged."""
    write_files("frameworks/django.md", tmp_path, valkey.url)
    run_in(tmp_path, DJANGO)


NIGHTLY = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.core.management import call_command
call_command("nightly", "--day", "2026-11-15")
call_command("nightly", "--day", "2026-11-15")
"""


def test_the_nightly_command_for_django_runs_once(valkey: Server, tmp_path: Path) -> None:
    """Started on two machines, it does its work on one."""
    write_files("frameworks/django.md", tmp_path, valkey.url)
    page = (DOCS / "frameworks/django.md").read_text("utf-8")
    [command] = re.findall(
        r"^```python no-run\n# accounts/\S*?nightly\.py.*?\n(.*?)^```$", page, re.M | re.S
    )
    folder = tmp_path / "accounts/management/commands"
    folder.mkdir(parents=True)
    (folder / "nightly.py").write_text(command, "utf-8")
    settings = tmp_path / "settings.py"
    settings.write_text(
        settings.read_text("utf-8") + "INSTALLED_APPS.append('accounts')\n", "utf-8"
    )
    said = run_in(tmp_path, NIGHTLY).splitlines()
    assert said == ["the totals of 2026-11-15 are written", "done on another machine"]


FORK = """
import os
from dibs import Dibs

dibs = Dibs("{url}")
lease = dibs.try_hold("parent", ttl=60)
child = os.fork()
if child == 0:
    taken, free = dibs.try_hold("parent", ttl=60), dibs.try_hold("child", ttl=60)
    os._exit(0 if lease.lost and taken is None and free is not None else 1)
assert os.waitpid(child, 0)[1] == 0
assert lease.release()
"""


@pytest.mark.only_on("linux", "darwin")
def test_a_child_has_none_of_its_parents_leases(valkey: Server, tmp_path: Path) -> None:
    """As the page about deploying says; the program asserts it itself."""
    run_in(tmp_path, FORK.format(url=valkey.url))


@pytest.mark.only_on("linux", "darwin")
def test_preloaded_workers_process_a_submission_once(valkey: Server, tmp_path: Path) -> None:
    """gunicorn with two workers and --preload, as the page starts it."""
    write_files("deploy.md", tmp_path, valkey.url)
    with gunicorn(tmp_path) as post:
        answers = [post() for _ in range(6)]
    assert sorted(answers) == [201, *[429] * 5]


@contextmanager
def gunicorn(folder: Path) -> Iterator[Callable[[], int]]:
    port = free_port()
    options = ["--workers", "2", "--threads", "2", "--preload", "--bind", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "gunicorn", "shop:app", *options]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            eventually(lambda: status(f"http://127.0.0.1:{port}/nothing") == 404, within=90)
            yield lambda: status(f"http://127.0.0.1:{port}/orders", b"{}")
        finally:
            process.terminate()


def status(url: str, body: bytes | None = None) -> int:
    try:
        with urllib.request.urlopen(url, body) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        time.sleep(0.05)
        return 0


@pytest.mark.only_on("linux", "darwin")
def test_the_flask_bot_answers_what_it_has_when_it_is_told_to_end(
    valkey: Server, tmp_path: Path
) -> None:
    """gunicorn as the manual starts it: SIGTERM after the 200, and the forecast comes."""
    write_files(LOCAL_LINE, tmp_path, valkey.url)
    page, port = (DOCS / LOCAL_LINE).read_text("utf-8"), free_port()
    [words] = re.findall(r"`gunicorn (bot:app --bind [^`]*)`", page)
    command = [sys.executable, "-m", "gunicorn", *words.replace("5000", str(port)).split()]
    with BlockingLine(webhook_timeout=30.0) as line:
        names = {"LINE_CHANNEL_SECRET": line.secret, "LINE_API": line.api_base}
        named = os.environ | names | {"LINE_CHANNEL_ACCESS_TOKEN": line.access_token}
        with subprocess.Popen(command, cwd=tmp_path, env=named) as process:
            try:
                eventually(lambda: status(f"http://127.0.0.1:{port}/nothing") == 404, within=90)
                line.webhook_url = f"http://127.0.0.1:{port}/webhook"
                assert line.say("板橋").is_ok
                process.terminate()
                assert process.wait(60) == 0
            finally:
                process.kill()
        assert line.chat().texts == ["板橋: 28 °C"]


def test_the_tests_of_a_line_bot_pass(valkey: Server, tmp_path: Path) -> None:
    """mybot.py and test_bot.py, as printed in the manual of local-line."""
    write_files(LOCAL_LINE, tmp_path, valkey.url)
    options = "def local_line_options(): return {'webhook_timeout': 30.0}"  # for a busy machine
    (tmp_path / "conftest.py").write_text(f"import pytest\n@pytest.fixture\n{options}\n")
    run = "import pytest, sys; sys.exit(pytest.main(['-q', '-p', 'no:xdist', 'test_bot.py']))"
    assert "3 passed" in run_in(tmp_path, run)


def test_the_code_for_redis_py_on_its_migration_page_runs(valkey: Server) -> None:
    """That library is always here; the others by tools/run_migrations.py."""
    programs = run_migrations.programs(DOCS / "migration" / "locks.md")
    [mine] = [source for _, source in programs if "redis_lock" not in source]
    run_migrations.run(mine, valkey.url)


# ----------------------------------------------------------------------------------- messages

PLACES = re.compile(r"%(?:\.\d+)?[sdfr]")


@functools.cache
def messages_of_src() -> list[re.Pattern[str]]:
    """Each text of src as a pattern, with a group for each part that is fixed."""
    found = {
        parts
        for path in (ROOT / "src/dibs").rglob("*.py")
        if "_sync" not in path.parts
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if sum(map(len, parts := fixed_parts(node))) >= 10
    }
    return [re.compile(".*?".join(f"({re.escape(part)})" for part in parts)) for parts in found]


def fixed_parts(node: ast.AST) -> tuple[str, ...]:
    """The letters of a text, without what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return tuple(part for part in PLACES.split(node.value) if part)
    if isinstance(node, ast.JoinedStr):
        constants = (part.value for part in node.values if isinstance(part, ast.Constant))
        return tuple(str(text) for text in constants if text)
    return ()


def letters_from_src(message: str) -> int:
    """How many letters of *message* are fixed in a text of src."""
    fixed: set[int] = set()
    for pattern in messages_of_src():
        for found in pattern.finditer(message):
            for start, end in found.regs[1:]:
                fixed |= set(range(start, end))
    return len(fixed)


def quoted_messages() -> list[str]:
    page = (DOCS / "troubleshooting.md").read_text("utf-8")
    blocks = re.findall(r"^```text\n(.*?)^```$", page, re.M | re.S)
    table = page.partition("## Messages")[2]
    return [
        *(line for block in blocks for line in block.splitlines()),
        *re.findall(r"^\| `(.+?)` \|", table, re.M),
    ]


@functools.cache
def written() -> set[str]:
    """Messages that consist of small parts, written by dibs itself."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        raised = [lambda: dibs.hold("a", ttl=0), lambda: pickle.dumps(dibs)]
        facts = [
            Busy("processing:user:42", 3.2, "web-1:4711", "processing:*"),
            Busy("processing:user:42", math.inf, None, "processing:*"),
            Unavailable("the last load failed (ConnectionError)", "rate:{currency}"),
        ]
        return {*map(str, facts), *map(_message_of, raised)}


def _message_of(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as caught:
        call()
    return str(caught.value)


FROM_THE_SERVER = "the server refused the request: "
"""What follows was written by Redis."""


@pytest.mark.parametrize("message", quoted_messages())
def test_a_message_that_is_quoted_is_one_that_dibs_writes(message: str) -> None:
    """A reader who searches the page for a message finds it."""
    message = message.partition(FROM_THE_SERVER)[1] or message
    assert message in written() or letters_from_src(message) >= 0.6 * len(message)


def test_messages_are_found() -> None:
    """The patterns that look for them still find them."""
    assert len(quoted_messages()) > 25


# -------------------------------------------------------------------------- manifests, versions


def manifests(page: str) -> list[dict[str, object]]:
    text = (DOCS / page).read_text("utf-8")
    return [
        yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.M | re.S)
    ]


def test_the_times_of_the_deployment_fit_together() -> None:
    """A pod has the time to leave the endpoints, to finish its requests, and to close."""
    [deployment] = [each for each in manifests("deploy.md") if each.get("kind") == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]  # type: ignore[index]
    [container] = pod["containers"]
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    graceful = int(
        container["command"][container["command"].index("--timeout-graceful-shutdown") + 1]
    )
    assert pod["terminationGracePeriodSeconds"] >= before + graceful + 10


def test_the_doctor_lets_the_server_of_the_compose_file_pass() -> None:
    """Its options, on a real server: no error and no warning; and the services wait for it."""
    [compose] = manifests("docker.md")
    services: Any = compose["services"]
    program, *options = services["valkey"]["command"]
    assert program == "valkey-server" and {"--appendonly", "--maxmemory-policy"} < set(options)
    assert services["doctor"]["depends_on"] == {"valkey": {"condition": "service_healthy"}}
    waits = services["app"]["depends_on"]["doctor"]["condition"]
    assert waits == "service_completed_successfully"
    assert services["valkey"]["volumes"] == ["valkey-data:/data"]
    with Server.start(config=options) as server:
        command = [sys.executable, "-m", *services["doctor"]["command"][:2]]
        named = ["--url", server.url, "--namespace", "shop:", "--budget", "60"]
        done = subprocess.run([*command, *named], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# A stand-in for the platform: the first process is killed while it answers.
PLATFORM = """
import asyncio, sys, time
from types import SimpleNamespace

def show(text):
    print(text, flush=True)
    if sys.argv[1] == "dies":
        time.sleep(600)

async def reply_text(text):
    show(text)
"""
TELEGRAM = """
person, message = SimpleNamespace(id=7), SimpleNamespace(reply_text=reply_text)
update = SimpleNamespace(update_id=1, effective_user=person, effective_message=message)
asyncio.run(weather(update, None))
"""
SLACK = """
mentioned({"event_id": "e1", "event": {"user": "U7"}}, lambda: None, show)
"""


@pytest.mark.parametrize(
    ("section", "delivery"),
    [
        pytest.param("## python-telegram-bot", TELEGRAM, id="telegram"),
        pytest.param("## Slack", SLACK, id="slack"),
    ],
)
def test_a_bot_that_is_killed_answers_the_redelivery_once(
    section: str, delivery: str, valkey: Server
) -> None:
    """The restarted bot gets the same update at once: it waits for the leases of the dead one."""
    page = (DOCS / "how-to/chat-bots.md").read_text("utf-8").partition(section)[2]
    example = page.partition("```python\n")[2].partition("```")[0]
    code = PLATFORM + example.replace("redis://localhost:6379", valkey.url) + delivery
    command = [sys.executable, "-c", code]
    with subprocess.Popen([*command, "dies"], stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "28 °C\n"
        dying.kill()
    again, later = (
        subprocess.run([*command, "lives"], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert (again.stdout, later.stdout) == ("28 °C\n", "")


CHARGE = """
    with open({file!r}, "a") as file:
        print(os.getpid(), file=file)
    import asyncio
    await asyncio.sleep(3600 if os.environ["MODE"] == "dies" else 0)
    return {{"charged": cents}}
"""


@pytest.mark.long
async def test_an_mcp_server_that_is_killed_in_mid_charge_charges_after_its_lease(
    valkey: Server, tmp_path: Path
) -> None:
    """The program of the page, over stdio. The call of the next server waits, and runs again."""
    from mcp import Client, MCPError, StdioServerParameters
    from mcp.types import CallToolResult

    page = (DOCS / "how-to/agents.md").read_text("utf-8")
    example = page.partition("```python\n")[2].partition("```")[0]
    head, found, tail = example.partition('    return {"charged": cents}')
    assert found
    effects, program = tmp_path / "effects", tmp_path / "bank.py"
    effects.touch()
    tail = tail.partition("\n")[2]
    program.write_text(head + CHARGE.format(file=str(effects)) + tail)

    async def call(mode: str) -> CallToolResult | MCPError:
        env = {"REDIS_URL": valkey.url, "MODE": mode}
        server = StdioServerParameters(command=sys.executable, args=[str(program)], env=env)
        async with Client(server) as client:
            try:
                return await client.call_tool("charge", {"order": "o-7", "cents": 500})
            except MCPError as error:
                return error

    dying = asyncio.create_task(call("dies"))
    await aeventually(effects.read_text)
    os.kill(int(effects.read_text()), signal.SIGKILL)
    assert isinstance(await dying, MCPError)
    for _ in range(2):
        told = await call("lives")
        assert isinstance(told, CallToolResult) and told.structured_content == {"charged": 500}
    assert len(effects.read_text().splitlines()) == 2


def test_alerts_name_metrics_that_exist() -> None:
    """Each metric of the pages about alerts is one that the listener exports."""
    source = (ROOT / "src/dibs/integrations/prometheus.py").read_text("utf-8")
    text = (DOCS / "monitoring.md").read_text("utf-8")
    for metric in set(re.findall(r"\bdibs_(\w+)", text)) - {"name"}:
        stem = re.sub(r"_(total|sum|count|bucket)$", "", metric)
        assert stem in source, metric
    assert manifests("monitoring.md")


def test_every_alert_has_a_row() -> None:
    """Each rule of deploy/alerts.yml has a row that says what to do."""
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
    text = (DOCS / "monitoring.md").read_text("utf-8")
    for rule in rules:
        assert f"| `{rule['alert']}` | {rule['labels']['severity']} |" in text


def test_the_versions_of_frameworks_are_the_pinned_ones() -> None:
    """The table of versions has what `make test` and `make test-frameworks` install."""
    pins = (ROOT / "requirements/dev.txt").read_text("utf-8")
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"][
        "oldest"
    ]
    lowest = dict(pin.split("==") for pin in oldest if isinstance(pin, str))
    page = (DOCS / "versions.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w -]+) \| ([\d.]+) \| ([\d.]+) \| `(\w+)` \|$", page, re.M)
    names = {
        "Django REST framework": "djangorestframework",
        "OpenTelemetry API": "opentelemetry-api",
        "Sentry": "sentry-sdk",
    }
    assert len(rows) >= 12
    for shown, low, high, _ in rows:
        name = names.get(shown, shown.lower())
        assert lowest[name] == low, shown
        assert f"\n{name}=={high} " in pins, shown


def test_every_extra_is_in_the_reference() -> None:
    """The table of extras has those of pyproject.toml, and no other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    table = (DOCS / "reference/api.md").read_text("utf-8").partition("## Extras")[2]
    first = re.findall(r"^\| (`.*?`) \|", table, re.M)
    listed = re.findall(r"`(\w+)`", " ".join(first))
    assert sorted(listed) == sorted(project["optional-dependencies"])


def test_the_conditions_are_those_of_the_tests() -> None:
    """Each has a row."""
    from tests.conditions import CONDITIONS

    page = (ROOT / "tests/README.md").read_text("utf-8").partition("## Conditions")[2]
    for condition in CONDITIONS:
        assert f"`{condition}`" in page
