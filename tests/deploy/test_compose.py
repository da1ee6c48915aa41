"""The compose file, as far as it can be tested without Docker."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from apps.weamind.core.config import Settings
from dibs.testing import Server

from .files import (
    DEPLOY,
    PORT,
    Json,
    instructions,
    interpolated,
)

pytestmark = pytest.mark.only_on("linux", "darwin")

Schema = Callable[[Any, str], Iterator[str]]
"""What is wrong with a value, and where."""


def word(pattern: str) -> Schema:
    def check(value: Any, where: str) -> Iterator[str]:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            yield f"{where}: {value!r}"

    return check


text = word(r"(?s).+")
image = word(r"[a-z0-9][a-z0-9./-]*(:[\w.-]+)?")


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


duration = word(r"(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
size = word(r"\d+[bkmgBKMG]")
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
    {"configs": mapped(fields({}, {"content": text, "file": text})), "x-logging": LOGGING},
)


def test_the_compose_file_has_only_words_of_the_specification(compose: Json) -> None:
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
    """Volumes, networks, configs and services that a service names exist; and there are no unused
    ones."""
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
    """The bot waits until PostgreSQL is healthy, not for Redis: without it, it is fail-open."""
    services = compose["services"]
    assert services["app"]["depends_on"] == {
        "db": {"condition": "service_healthy"},
        "redis": {"condition": "service_started"},
    }
    checked = {name for name, service in services.items() if "healthcheck" in service}
    checked |= {"app"} if "HEALTHCHECK" in dict(instructions()) else set()
    for service in services.values():
        for name, needed in service.get("depends_on", {}).items():
            assert needed["condition"] != "service_healthy" or name in checked


def test_what_the_seeds_ask_for(compose: Json) -> None:
    """Which Redis, which network, which volume."""
    redis = compose["services"]["redis"]
    assert redis["image"] == "redis:8.2.1-bookworm"
    assert redis["volumes"] == ["wea-redis-data:/data"] and redis["networks"] == ["wea-net"]
    assert compose["networks"]["wea-net"]["name"] == "wea-net"


def test_only_the_bot_is_published(compose: Json) -> None:
    """And only to the machine itself; others come in by HTTPS, if that is asked for."""
    ports = {name: s["ports"] for name, s in compose["services"].items() if "ports" in s}
    own = {name: listed for name, listed in ports.items() if name != "https"}
    assert ports["https"] == ["80:80", "443:443"] and own["app"] == [f"127.0.0.1:{PORT}:{PORT}"]
    assert all(each.startswith("127.0.0.1:") for listed in own.values() for each in listed)
    assert compose["services"]["https"]["profiles"] == ["https"]
    content = compose["configs"]["caddyfile"]["content"]
    assert f"reverse_proxy /line/webhook app:{PORT}" in content and "metrics" not in content


def test_monitoring_loads_our_files(compose: Json) -> None:
    """Prometheus the rules and the bot's metrics, Grafana the dashboard; only if asked for."""
    services, configs = compose["services"], compose["configs"]
    for name in ("prometheus", "alertmanager", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
    for each in configs.values():
        assert "content" in each or (DEPLOY / each["file"]).is_file()
    told = yaml.safe_load(configs["prometheus"]["content"])
    mounted = {each["source"]: each["target"] for each in services["prometheus"]["configs"]}
    assert told["rule_files"] == [mounted["alerts"]] and configs["alerts"]["file"] == "./alerts.yml"
    [job] = told["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"app:{PORT}"]}]
    shown = {each["source"]: each["target"] for each in services["grafana"]["configs"]}
    [provider] = yaml.safe_load(configs["grafana-dashboards"]["content"])["providers"]
    assert Path(shown["dashboard"]).parent == Path(provider["options"]["path"])
    [source] = yaml.safe_load(configs["grafana-datasource"]["content"])["datasources"]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090"
    assert yaml.safe_load(configs["alertmanager"]["content"])["receivers"]


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
        done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
        return done.returncode, done.stdout

    assert answer(here)[0] == 0
    _, policy = answer(f"redis-cli -p {server.port} config get maxmemory-policy")
    assert policy.split() == ["maxmemory-policy", "noeviction"]
    server.kill()
    assert answer(here)[0] != 0
