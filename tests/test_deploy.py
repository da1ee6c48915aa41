"""The container files, as far as they can be tested without Docker.

Their structure, their variables, and what they run: the image's start and health check commands are
really run, with Compose's environment, in a folder that has what the image has, on real servers.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
import yaml

from apps.weamind.cli.arguments import main
from apps.weamind.core.config import Settings
from dibs.testing import Server
from dibs.testing.servers import free_port
from tests.apps.conftest import postgres  # noqa: F401 – a fixture
from tests.apps.postgres import Postgres

pytestmark = pytest.mark.only_on("linux", "darwin")
ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PORT = "8003"
SETTINGS = {name.upper() for name in Settings.model_fields}
COMPOSE_ONLY = {"POSTGRES_PASSWORD", "WEAMIND_DOMAIN"}
NEEDED = {"POSTGRES_PASSWORD", "LINE_CHANNEL_SECRET", "LINE_CHANNEL_ACCESS_TOKEN"}

Json = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> Json:
    return yaml.safe_load((DEPLOY / "compose.yml").read_text("utf-8"))


# ------------------------------------------------------------------- the structure of compose.yml

Schema = Callable[[Any, str], Iterator[str]]
"""What is wrong with a value, and where."""


def word(pattern: str) -> Schema:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            yield f"{where}: {value!r}"

    return check


def flag(value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{where}: {value!r}"


def count(value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        yield f"{where}: {value!r}"


def listed(inner: Schema) -> Schema:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, list) or not value:
            yield f"{where}: {value!r}"
            return
        for number, each in enumerate(value):
            yield from inner(each, f"{where}[{number}]")

    return check


def mapped(inner: Schema, names: str = r"[\w.-]+") -> Schema:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict) or not value:
            yield f"{where}: {value!r}"
            return
        for name, each in value.items():
            yield from word(names)(name, where)
            yield from inner(each, f"{where}.{name}")

    return check


def fields(needed: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    known = needed | (optional or {})

    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: {value!r}"
            return
        yield from (f"{where}.{name} is missing" for name in needed if name not in value)
        for name, each in value.items():
            if name not in known:
                yield f"{where}.{name} is unknown"
            else:
                yield from known[name](each, f"{where}.{name}")

    return check


text = word(r"(?s).+")
duration = word(r"(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
size = word(r"\d+[bkmgBKMG]")
image = word(r"[a-z0-9][a-z0-9./-]*(:[\w.-]+)?")
HEALTH = fields(
    {"test": listed(text), "interval": duration, "timeout": duration, "retries": count},
    {"start_period": duration},
)
LIMITS = fields({"cpus": word(r"\d+\.\d+"), "memory": size})
LOGGING = fields({"driver": word("json-file"), "options": mapped(text)})
SERVICE = fields(
    {
        "image": image,
        "restart": word("unless-stopped"),
        "networks": listed(word("wea-net")),
        "deploy": fields({"resources": fields({"limits": LIMITS})}),
        "logging": LOGGING,
    },
    {
        "build": fields({"context": text, "dockerfile": text}),
        "cap_drop": listed(word("ALL")),
        "command": listed(text),
        "configs": listed(fields({"source": text, "target": word("/.+")})),
        "depends_on": mapped(fields({"condition": word("service_(healthy|started)")})),
        "environment": mapped(text, r"[A-Z][A-Z0-9_]*"),
        "healthcheck": HEALTH,
        "ports": listed(word(r"([\d.]+:)?\d+:\d+")),
        "profiles": listed(text),
        "read_only": flag,
        "security_opt": listed(word("no-new-privileges:true")),
        "stop_grace_period": duration,
        "tmpfs": listed(word("/.+")),
        "volumes": listed(word(r"[\w-]+:/[\w/.-]+")),
    },
)
COMPOSE = fields(
    {
        "name": word("[a-z0-9_-]+"),
        "services": mapped(SERVICE),
        "networks": mapped(fields({"name": text})),
        "volumes": mapped(fields({"name": text})),
    },
    {"configs": mapped(fields({"content": text})), "x-logging": LOGGING},
)


def test_the_structure(compose: Json) -> None:
    """Only words of the Compose Specification, each with a value of its kind."""
    assert list(COMPOSE(compose, "compose")) == []


@pytest.mark.parametrize(
    "change",
    [
        {"services": {"app": {"image": "x"}}},
        {"services": []},
        {"volumes": {"v": {"name": 3}}},
        {"service": {}},
    ],
    ids=str,
)
def test_the_structure_is_really_checked(compose: Json, change: Json) -> None:
    """A word that Compose does not know, or a value of another kind, is found."""
    assert list(COMPOSE(compose | change, "compose"))
    hurt = json.loads(json.dumps(compose))
    hurt["services"]["db"]["healthcheck"]["retries"] = "often"
    hurt["services"]["db"]["prots"] = ["5432:5432"]
    assert len(list(COMPOSE(hurt, "compose"))) == 2


def test_everything_that_is_named_is_there(compose: Json) -> None:
    """Volumes, networks, configs and services that a service names; and none that nobody names."""
    services = compose["services"].values()
    named = {
        "volumes": {each.split(":")[0] for s in services for each in s.get("volumes", ())},
        "networks": {each for s in services for each in s["networks"]},
        "configs": {each["source"] for s in services for each in s.get("configs", ())},
    }
    for kind, names in named.items():
        assert names == set(compose[kind]), kind
    for service in services:
        assert set(service.get("depends_on", ())) <= set(compose["services"])


def test_who_waits_for_whom(compose: Json) -> None:
    """The bot waits until PostgreSQL and Redis are healthy, and who is waited for so can be so."""
    services = compose["services"]
    assert services["app"]["depends_on"] == {
        "db": {"condition": "service_healthy"},
        "redis": {"condition": "service_healthy"},
    }
    checked = {name for name, service in services.items() if "healthcheck" in service}
    checked |= {"app"} if "HEALTHCHECK" in dict(instructions()) else set()
    for service in services.values():
        for name, wish in service.get("depends_on", {}).items():
            assert wish["condition"] != "service_healthy" or name in checked


def test_what_the_seeds_ask_for(compose: Json) -> None:
    """Which Redis, which network, which volume."""
    redis = compose["services"]["redis"]
    assert redis["image"] == "redis:8.2.1-bookworm"
    assert redis["volumes"] == ["wea-redis-data:/data"] and redis["networks"] == ["wea-net"]
    assert compose["networks"]["wea-net"]["name"] == "wea-net"


def test_only_the_bot_is_published(compose: Json) -> None:
    """And only to the machine itself; the world comes in by HTTPS, if that is asked for."""
    ports = {name: s["ports"] for name, s in compose["services"].items() if "ports" in s}
    assert ports == {"app": [f"127.0.0.1:{PORT}:{PORT}"], "https": ["80:80", "443:443"]}
    assert compose["services"]["https"]["profiles"] == ["https"]
    content = compose["configs"]["caddyfile"]["content"]
    assert f"reverse_proxy /line/webhook app:{PORT}" in content and "metrics" not in content


def test_the_bot_has_few_rights_and_time_to_end(compose: Json) -> None:
    """Nothing to write on but /tmp, no capabilities; longer to end than its events may take."""
    app = compose["services"]["app"]
    assert app["read_only"] and app["cap_drop"] == ["ALL"] and app["tmpfs"] == ["/tmp"]
    grace = float(app["stop_grace_period"].removesuffix("s"))
    assert grace >= Settings.model_fields["shutdown_seconds"].default + 10
    assert "SHUTDOWN_SECONDS" in (DEPLOY / "compose.yml").read_text("utf-8")


def test_postgresql_is_asked_as_who_it_made(compose: Json) -> None:
    """User, database, password and host of the bot's URL are those of the service."""
    db, app = compose["services"]["db"], compose["services"]["app"]
    made = db["environment"]
    url = urlsplit(interpolated(app["environment"]["DATABASE_URL"], {"POSTGRES_PASSWORD": "x1"}))
    assert (url.scheme, url.username, url.password) == ("postgresql", made["POSTGRES_USER"], "x1")
    assert url.hostname in compose["services"] and url.path == f"/{made['POSTGRES_DB']}"
    command = db["healthcheck"]["test"]
    assert command[1:] == ["pg_isready", "--username", url.username, "--dbname", url.path[1:]]


# ------------------------------------------------------------------------------- the variables

VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<rest>[^}]*))?\})")


class Missing(Exception):
    """A variable without which Compose does not begin."""


def interpolated(value: str, env: dict[str, str]) -> str:
    """As Compose does it, for `${X}`, `${X:-default}`, `${X:?message}` and `$$`."""

    def put(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        if given := env.get(found["name"]):
            return given
        if found["kind"] == "?":
            raise Missing(found["name"], found["rest"])
        return found["rest"] or ""

    return VARIABLE.sub(put, value)


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def examples() -> dict[str, tuple[str, str, bool]]:
    """Each variable of `.env.example`: its comment, its value, and whether it is commented out."""
    found: dict[str, tuple[str, str, bool]] = {}
    comment: list[str] = []
    for line in (DEPLOY / ".env.example").read_text("utf-8").splitlines():
        if variable := re.fullmatch(r"(#?)([A-Z][A-Z0-9_]*)=(.*)", line):
            found[variable[2]] = (" ".join(comment), variable[3], bool(variable[1]))
            comment = []
        else:
            comment = [*comment, line.removeprefix("#").strip()] if line.startswith("#") else []
    return found


def test_every_variable_is_a_setting_and_every_setting_a_variable(compose: Json) -> None:
    """In the example, in Compose and in the bot: the same names."""
    assert set(examples()) == SETTINGS | COMPOSE_ONLY
    assert set(compose["services"]["app"]["environment"]) == SETTINGS
    used = {found["name"] for each in strings(compose) for found in VARIABLE.finditer(each)}
    assert used - {None} == {name for name, (_, _, is_out) in examples().items() if not is_out}
    # What Compose knows itself must not be asked for twice.
    assert {name for name, (*_, is_out) in examples().items() if is_out} == SETTINGS - used


def test_each_is_handed_over_under_its_own_name(compose: Json) -> None:
    """No setting gets another one's value."""
    for name, value in compose["services"]["app"]["environment"].items():
        if name not in ("REDIS_URL", "DATABASE_URL"):
            assert [found["name"] for found in VARIABLE.finditer(value)] == [name]


def test_every_variable_is_explained_and_none_has_a_value() -> None:
    """The comment of an optional one begins with its default; no secret can be copied."""
    for name, (comment, value, _) in examples().items():
        assert len(comment) > 20 and value == "", name
        field = Settings.model_fields.get(name.lower())
        if field is not None and not field.is_required() and field.default is not None:
            default = field.default
            shown = str(default).lower() if isinstance(default, bool) else str(default)
            first = comment.split()[0].rstrip(".,:")
            assert first == shown.removesuffix(".0"), name


def test_what_is_needed_is_asked_for(compose: Json) -> None:
    """Without one of the three, Compose does not begin, and says where it belongs."""
    filled = dict.fromkeys(NEEDED, "x1")
    environment = compose["services"]["app"]["environment"].values()
    for value in environment:
        interpolated(value, filled)
    for name in NEEDED:
        with pytest.raises(Missing, match=r"deploy/\.env"):
            for value in environment:
                interpolated(value, {k: v for k, v in filled.items() if k != name})


# -------------------------------------------------------------------------------------- the image


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the Dockerfile and what follows it."""
    lines = (DEPLOY / "Dockerfile").read_text("utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", text)
    return [
        (name, rest.strip())
        for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())
    ]


def values(instruction: str) -> list[str]:
    return [rest for name, rest in instructions() if name == instruction]


def copied() -> list[tuple[str, str]]:
    """What is taken from the repository, and where it goes."""
    pairs = [rest.split() for rest in values("COPY") if not rest.startswith("--from")]
    return [(source, target) for source, target in pairs]


def is_sent(path: str) -> bool:
    """Whether `.dockerignore` lets *path* into the build: the last line about it decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        pattern, verdict = line.removeprefix("!"), line.startswith("!")
        if any(_fits(each, pattern) for each in _and_parents(path)):
            sent = verdict
    return sent


def _and_parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _fits(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatch(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatch(path, pattern)


def test_what_is_copied_is_there_and_is_sent() -> None:
    """Every file that the image copies exists, and every file in it gets into the build."""
    assert copied()
    for source, _ in copied():
        assert (ROOT / source).exists() and is_sent(source), source
    files = [path for path in (ROOT / "apps/weamind").rglob("*") if path.is_file()]
    for path in files:
        ignored = "__pycache__" in path.parts or path.suffix == ".db"
        assert is_sent(str(path.relative_to(ROOT))) is not ignored, path


@pytest.mark.parametrize(
    "path",
    [".env", "deploy/.env", "apps/weamind/.env", ".git/config", "tests/conftest.py", ".venv/x",
     "apps/playground/main.py", "apps/weamind/bot.db", "requirements/dev.txt"],
)  # fmt: skip
def test_what_is_nobodys_business_is_not_sent(path: str) -> None:
    """Secrets, history, data, and whatever the bot does not need."""
    assert not is_sent(path)


def test_the_image_is_slim_pinned_and_without_rights() -> None:
    """A slim Python, hashed wheels, a user who is not root, and no address to load from."""
    assert all(rest.startswith("python:3.13-slim-") for rest in values("FROM"))
    [install] = [rest for rest in values("RUN") if "pip install" in rest]
    assert "--require-hashes" in install and "--only-binary=:all:" in install
    assert values("USER") == ["10001"] and not values("ADD")
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "://" not in (DEPLOY / "Dockerfile").read_text("utf-8")


def test_one_port(compose: Json) -> None:
    """The bot listens where the health check, Compose and Caddy look for it."""
    assert values("EXPOSE") == [PORT]
    assert json.loads(values("CMD")[0])[-2:] == ["--port", PORT]
    assert f"'127.0.0.1', {PORT}," in values("HEALTHCHECK")[0]
    assert compose["services"]["app"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]


# ----------------------------------------------------------------------------------- the packages

PIN = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)


def pins(file: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Each package: its version and its hashes."""
    found = PIN.findall((ROOT / "requirements" / file).read_text("utf-8"))
    return {
        name: (version, tuple(re.findall(r"sha256:\w{64}", rest))) for name, version, rest in found
    }


def test_the_packages_are_those_that_are_tested() -> None:
    """The same versions with the same hashes as in the environment of the tests."""
    tested, shipped = pins("dev.txt"), pins("weamind.txt")
    assert len(shipped) > 20
    for name, pin in shipped.items():
        assert pin == tested[name] and pin[1], name


EVERYTHING = """
import importlib, json, pkgutil, sys

class Absent:
    "Packages that the image does not have."
    names = set(json.loads(sys.argv[1]))
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"not in the image: {name}", name=name)

sys.meta_path.insert(0, Absent())
import apps.weamind, psycopg
for each in pkgutil.walk_packages(apps.weamind.__path__, "apps.weamind."):
    if "migrations" not in each.name and "__main__" not in each.name:
        importlib.import_module(each.name)
print(*sys.modules)
"""


def test_no_package_is_missing() -> None:
    """What pyproject.toml asks for is pinned; the bot loads where nothing else is installed."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["weamind"]]
    names = {re.split(r"[\[><=!~ ;]", each)[0] for each in wanted}
    shipped = {*pins("weamind.txt"), "dibs"}
    assert names <= shipped
    absent = [
        module
        for module, packages in packages_distributions().items()
        if not any(package.lower().replace("_", "-") in shipped for package in packages)
    ]
    assert {"pytest", "linebot", "django", "PIL"} <= set(absent)
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, json.dumps(absent)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"apps.weamind.cli.serving", "uvicorn", "httpx2"} <= set(done.stdout.split())


# ------------------------------------------------------------------------------ what they run


def as_in_the_image(folder: Path) -> None:
    """*folder* is `/app`: it has what the image copies there, and nothing else."""
    for source, target in copied():
        if target.startswith("/"):
            continue
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.db", ".env")
            shutil.copytree(ROOT / source, folder / target, ignore=ignored)
        else:
            shutil.copy(ROOT / source, folder / target)


def command(instruction: str, port: int) -> list[str]:
    """The command in that instruction, for this Python and that port."""
    parts = json.loads(values(instruction)[0].partition("CMD ")[2] or values(instruction)[0])
    own = {"python": sys.executable, "0.0.0.0": "127.0.0.1"}
    return [own.get(part, part.replace(PORT, str(port))) for part in parts]


def environment(compose: Json, folder: Path, redis_url: str, database_url: str) -> dict[str, str]:
    """What the container has in its environment; its servers are on this machine."""
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    image = dict(pair.split("=", 1) for pair in values("ENV")[0].split())
    image.pop("PATH")
    filled = dict.fromkeys(NEEDED, "x1") | {"WEATHER_PROVIDER": "sample"}
    told = {
        name: interpolated(value, filled)
        for name, value in compose["services"]["app"]["environment"].items()
    }
    assert told["REDIS_URL"] == "redis://redis:6379/0"
    told |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url}
    image["PYTHONPATH"] = image["PYTHONPATH"].replace("/app", str(folder))
    return clean | image | told


def test_the_start_and_the_health_check(
    compose: Json,
    tmp_path: Path,
    valkey: Server,
    postgres: Postgres,  # noqa: F811 – the fixture
    eventually: Callable[..., Any],
) -> None:
    """Unhealthy, started, healthy, ready on both servers, ended by SIGTERM with 0, unhealthy."""
    as_in_the_image(tmp_path)
    port = free_port()
    env = environment(compose, tmp_path, valkey.url, postgres.new_database())
    start = [*command("ENTRYPOINT", port), *command("CMD", port)]

    def health() -> int:
        done = subprocess.run(
            command("HEALTHCHECK", port), cwd=tmp_path, env=env, capture_output=True, timeout=60
        )
        return done.returncode

    assert health() != 0
    with (tmp_path / "log").open("w") as log:
        bot = subprocess.Popen(start, cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        eventually(lambda: "WeaMind listens at" in (tmp_path / "log").read_text(), within=60)
        assert health() == 0
        ready = httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False, timeout=20)
        assert ready.json() == {"status": "ok", "database": "ok", "redis": "ok"}
        bot.send_signal(signal.SIGTERM)
        assert bot.wait(60) == 0
    finally:
        bot.kill()
        bot.wait()
    assert health() != 0
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"apps", "src", "log"}  # nothing was written: it may be read-only
    assert not list(tmp_path.rglob("__pycache__"))


def test_the_redis_of_compose(compose: Json, start_server: Callable[..., Server]) -> None:
    """Its options are options of a Redis, nothing is evicted, and its health check tells."""
    program, *options = compose["services"]["redis"]["command"]
    assert program == "redis-server"
    server = start_server("redis7", config=options)
    kind, check = compose["services"]["redis"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    if shutil.which("redis-cli") is None:
        pytest.skip("NOT TESTED: the health check of Redis, there is no redis-cli")
    here = check.replace("redis-cli", f"redis-cli -p {server.port}")
    assert here != check

    def answer(shell: str) -> tuple[int, str]:
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout

    assert answer(here)[0] == 0
    _, policy = answer(f"redis-cli -p {server.port} config get maxmemory-policy")
    assert policy.split() == ["maxmemory-policy", "noeviction"]
    server.kill()
    assert answer(here)[0] != 0


# --------------------------------------------------------------------------------- what is written

PAGES = [
    ROOT / "docs/weamind.md",
    DEPLOY / "README.md",
    DEPLOY / "compose.yml",
    DEPLOY / "Dockerfile",
]
OURS = re.compile(
    r"(?:python -m apps\.weamind|run --rm app|--env-file \S+ weamind) +([a-z]+(?: [a-z]+)?)"
)


def commands() -> list[tuple[str, ...]]:
    """Every command of the bot that the pages tell somebody to type."""
    written = "\n".join(page.read_text("utf-8") for page in PAGES)
    typed = {found[1] for found in OURS.finditer(written)}
    named = set(re.findall(r"`(richmenu [a-z]+)`", written))
    return sorted(tuple(each.split()) for each in typed | named)


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_that_is_written_exists(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """It has a `--help`."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0 and "usage:" in capsys.readouterr().out


def test_the_pages_have_all_commands() -> None:
    """A newcomer hears of each of them."""
    assert set(commands()) >= {
        ("serve",),
        ("doctor",),
        ("richmenu", "apply"),
        ("richmenu", "show"),
        ("richmenu", "remove"),
    }


def test_what_the_pages_tell_compose_to_do(compose: Json) -> None:
    """Files, services and profiles that are named are there."""
    for page in PAGES[:2]:
        written = page.read_text("utf-8")
        for file in re.findall(r"docker compose -f (\S+)", written):
            assert (ROOT / file).is_file(), file
        for service in re.findall(r"(?:run --rm|logs) (\w+)", written):
            assert service in compose["services"], service
        for profile in re.findall(r"--profile (\w+)", written):
            assert any(profile in s.get("profiles", ()) for s in compose["services"].values())
