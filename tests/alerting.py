"""The alert rules and the dashboard in a real Prometheus: each query answers, each alert fires.

    python -m tests.alerting          about two minutes; needs `prometheus` and `promtool`

One process uses every verb of dibs on a real Valkey, with duplicates, keys that are deleted, claims
that leak, holds of more than 30 s, and a server that hangs. Prometheus scrapes it each second and
evaluates deploy/alerts.yml with a `for` of two seconds in place of minutes. Then each query of
deploy/dashboard.json and of docs/monitoring.md is asked over its HTTP API. Exit code 1: an alert
did not fire, a query has no data, or promtool has found something.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import prometheus_client
import yaml

from dibs import Busy, Dibs, Duplicate, Mismatch
from dibs.claims import clear_current_claims
from dibs.integrations.prometheus import PrometheusListener
from dibs.testing import Server, eventually
from dibs.testing.ports import free_port

ROOT = Path(__file__).parents[1]
RULES = ROOT / "deploy/alerts.yml"
RULE_TESTS = ROOT / "deploy/alerts.test.yml"
LONG_HOLD = 32.0
"""Longer than the alert allows on average, in seconds."""
OPEN_CLAIMS = 1100
PATIENCE = 90.0


# ---- Prometheus


class Prometheus:
    """A Prometheus server in its own folder that scrapes one port each second."""

    def __init__(self, folder: Path, target: int) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        (folder / "alerts.yml").write_text(hasty(RULES.read_text("utf-8")), "utf-8")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration(target)), "utf-8")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address={self._url.removeprefix('http://')}",
                "--log.level=error",
            ]
        )

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer. AssertionError: there is none, or it is an error."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}") as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
        except OSError as error:
            raise AssertionError(str(error)) from None

    def values(self, expression: str) -> list[str]:
        """The current values of an expression, one for each series."""
        return [each["value"][1] for each in self.ask("query", query=expression)["result"]]

    def firing(self) -> dict[str, dict[str, str]]:
        """Annotations of the alerts that fire now, by name."""
        alerts = self.ask("alerts")["alerts"]
        return {
            each["labels"]["alertname"]: each["annotations"]
            for each in alerts
            if each["state"] == "firing"
        }


def hasty(rules: str) -> str:
    """The same rules, firing after two seconds."""
    return re.sub(r"for: \d+m", "for: 2s", rules)


def configuration(target: int) -> dict[str, Any]:
    """What Prometheus reads: one job, one target, one file of rules."""
    job = {"job_name": "shop", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return {"global": often, "rule_files": ["alerts.yml"], "scrape_configs": [job]}


@contextmanager
def running_prometheus(target: int) -> Iterator[Prometheus]:
    """One that answers."""
    with tempfile.TemporaryDirectory(prefix="dibs-") as folder:
        prometheus = Prometheus(Path(folder), target)
        try:
            eventually(lambda: prometheus.values('up{job="shop"} == 1'), within=PATIENCE)
            yield prometheus
        finally:
            prometheus.process.terminate()
            prometheus.process.wait()


# ---- what is watched


class Shop:
    """Uses every verb of one Dibs, once for each call of `trade`."""

    def __init__(self, dibs: Dibs) -> None:
        self._dibs = dibs
        self._round = 0
        self.rate = dibs.cached("rate:{currency}", ttl=2)(lambda currency: 31.5)
        dibs.scheduled(every=1, key="heartbeat")(lambda: None)

    def trade(self) -> None:
        """A lease, a waiter for it, submissions, a cached value."""
        self._round += 1
        with self._dibs.hold("account:1", ttl=5):
            refused(lambda: self._dibs.hold("account:1", ttl=5, wait=0.02).__enter__())
        self._submit(f"order:{self._round}", payload="tea")
        self._submit(f"order:{self._round}", payload="tea")
        refused(lambda: self._submit(f"order:{self._round}", payload="rice"))
        with self._dibs.claim("report:1", window=5):
            refused(lambda: self._dibs.claim("report:1", window=5).__enter__())
        self.rate("TWD")
        self.rate("TWD")

    def _submit(self, key: str, payload: str) -> None:
        with self._dibs.claim(key, window=60, after="replay", payload=payload) as claim:
            if not claim.replayed:
                claim.complete("done")


def refused(call: Callable[[], object]) -> None:
    """Make a call that is meant to be refused; in an outage it is let through."""
    try:
        call()
    except (Busy, Duplicate, Mismatch):
        pass


class Background:
    """Calls a function ten times a second in a thread, until it is closed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        while not self._ended.wait(0.1):
            work()

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


# ---- what goes wrong, one alert each


def hold_for_long(dibs: Dibs) -> None:
    """Twelve holds of more than half a minute."""
    leases = [dibs.try_hold(f"export:{number}", ttl=120) for number in range(12)]
    time.sleep(LONG_HOLD)
    for lease in leases:
        assert lease is not None and lease.release()


def lose_claims(dibs: Dibs, server: Server) -> None:
    """Thirty claims, all of whose keys are deleted before they end."""
    for number in range(30):
        with dibs.claim(f"payment:{number}", window=60):
            server.client().delete(f"payment:{number}")


def watch_alerts(dibs: Dibs, server: Server, prometheus: Prometheus) -> dict[str, dict[str, str]]:
    """Everything that goes wrong. The alerts that were seen firing, with their annotations."""
    seen: dict[str, dict[str, str]] = {}

    def await_alerts(*names: str) -> None:
        def fire() -> bool:
            seen.update(prometheus.firing())
            return set(names) <= set(seen)

        eventually(fire, within=PATIENCE)
        print("firing:", ", ".join(names), flush=True)

    long = threading.Thread(target=hold_for_long, args=(dibs,))
    long.start()
    with dibs.claim("payment:0", window=5):
        time.sleep(2)  # Prometheus has seen this name before anything goes wrong
    lose_claims(dibs, server)
    await_alerts("DibsDeleteFailures")
    uploads = [dibs.claim(f"upload:{number}", window=600) for number in range(OPEN_CLAIMS)]
    for each in uploads:
        each.__enter__()
    await_alerts("DibsOpenClaims")
    clear_current_claims()
    await_alerts("DibsLeakedClaims")
    long.join()
    await_alerts("DibsLongHolds")
    server.freeze()
    await_alerts("DibsStoreOut", "DibsUnguarded")
    server.thaw()
    eventually(lambda: "DibsStoreOut" not in prometheus.firing(), within=PATIENCE)
    print("ended: DibsStoreOut", flush=True)
    return seen


# ---- queries


def queries() -> dict[str, str]:
    """Each query of the dashboard and of the page, with what Grafana fills in."""
    found: dict[str, str] = {}
    dashboard = json.loads((ROOT / "deploy/dashboard.json").read_text("utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found[f"dashboard, {panel['title']}: {target['legendFormat']}"] = filled(target["expr"])
    for variable in dashboard["templating"]["list"]:
        match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
        if match is not None:
            found[f"dashboard, variable {match[2]}"] = f"count by ({match[2]}) ({filled(match[1])})"
    page = (ROOT / "docs/monitoring.md").read_text("utf-8")
    blocks = "\n".join(re.findall(r"^```promql\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    for title, expression in re.findall(r"^# (.*)\n((?:(?!#).+\n)+)", blocks, re.MULTILINE):
        found[f"page, {title}"] = expression
    return found


def filled(expression: str) -> str:
    """All jobs and names; the shortest interval that Grafana would use here."""
    for variable, value in (("$__rate_interval", "1m"), ("$job", ".*"), ("$name", ".*")):
        expression = expression.replace(variable, value)
    return expression


def ask_all(prometheus: Prometheus) -> list[str]:
    """The queries that have no data, or only NaN."""
    failed: list[str] = []
    for title, expression in queries().items():
        values = prometheus.values(expression)
        numbers = [value for value in values if value != "NaN"]
        print(f"{len(numbers):3} series  {title}", flush=True)
        if not numbers:
            failed.append(f"{title}: {values or 'no series'}")
    return failed


def check_rules() -> list[str]:
    """What promtool says against the rules, those of the page, and about their tests."""
    page = (ROOT / "docs/monitoring.md").read_text("utf-8")
    failed: list[str] = []
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as own:
        own.write(re.findall(r"^```yaml\n(groups:.*?)^```$", page, re.MULTILINE | re.DOTALL)[0])
        own.flush()
        for command in (("check", str(RULES)), ("check", own.name), ("test", str(RULE_TESTS))):
            done = subprocess.run(
                ["promtool", command[0], "rules", command[1]], capture_output=True, text=True
            )
            print(done.stdout.strip())
            if done.returncode:
                failed.append(f"promtool {' '.join(command)}: {done.stdout}{done.stderr}")
    return failed


def main() -> int:
    """Run everything. 0: nothing is wrong."""
    if missing := [name for name in ("prometheus", "promtool") if shutil.which(name) is None]:
        print(f"not installed: {', '.join(missing)} (apt install prometheus)", file=sys.stderr)
        return 2
    failed = check_rules()
    registry, port = prometheus_client.CollectorRegistry(), free_port()
    listeners = [PrometheusListener(registry)]
    with ExitStack() as running:
        server = running.enter_context(Server.start())
        dibs = running.enter_context(Dibs(server.url, listeners=listeners))
        web, _ = prometheus_client.start_http_server(port, "127.0.0.1", registry)
        running.callback(web.shutdown)
        prometheus = running.enter_context(running_prometheus(port))
        shop = Shop(dibs)
        running.enter_context(Background(shop.trade))
        running.enter_context(dibs.leader("indexer", wait=5))
        running.enter_context(dibs.scheduler())
        seen = watch_alerts(dibs, server, prometheus)
        failed += ask_all(prometheus)
        failed += [f"{name}: {text}" for name, text in seen.items() if "<error" in str(text)]
        for name, annotations in seen.items():
            print(f"{name}: {annotations['summary']}")
    print("\n".join(failed) or "every query has data, every alert has fired")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
