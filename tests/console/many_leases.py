"""The console and a scrape with very many leases: `python -m tests.console.many_leases`.

Starts a Valkey with 100 000 leases (`--leases 1000000`: so many), an application with a console and
`/metrics` beside it, a browser, and the command line; says how long each took, what it used, and
which commands took the server how long.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from dibs import AsyncDibs, Dibs
from dibs._internal_api import shorten
from dibs.console import console
from dibs.integrations.prometheus import PrometheusListener
from dibs.testing import Server, eventually
from dibs.testing.servers import free_port
from tests.apps.browser import launched

ROOT = Path(__file__).parents[2]
SMOOTH = """() => new Promise(done => {
  let last = performance.now(), worst = 0, frames = 0;
  const until = last + 4000;
  const frame = now => {
    worst = Math.max(worst, now - last); last = now; frames++;
    now < until ? requestAnimationFrame(frame) : done({worst, frames});
  };
  requestAnimationFrame(frame);
})"""


def application(url: str) -> Starlette:
    """A console at /dibs, metrics at /metrics."""
    registry = CollectorRegistry()
    dibs = AsyncDibs(url, listeners=[PrometheusListener(registry)])

    async def metrics(request: Request) -> Response:
        async with dibs.hold("scrape", ttl=5):
            return Response(generate_latest(registry))

    routes = [Route("/metrics", metrics), Mount("/dibs", console(dibs, allow="host"))]
    return Starlette(routes=routes)


def filled(server: Server, leases: int) -> None:
    """*leases* keys, each as a process would have written it."""
    with server.client() as client, client.pipeline(transaction=False) as pipe:
        for number in range(leases):
            token = f"{number:018x}-{number:x}@web-{number % 7}:4711"
            pipe.set(f"processing:user:{number}", token, px=3_600_000)
            if number % 5_000 == 4_999:
                pipe.execute()
        pipe.execute()


def slow_commands(server: Server) -> list[tuple[str, int]]:
    """The slowest commands: name and microseconds."""
    with server.client() as client:
        found: Any = client.slowlog_get(128)
    slow = [(each["command"].split()[0].decode(), each["duration"]) for each in found]
    return sorted(slow, key=lambda each: -each[1])[:5]


def timed(url: str) -> tuple[float, int]:
    """Seconds, and bytes."""
    began = time.perf_counter()
    with urllib.request.urlopen(url, timeout=60) as answer:
        size = len(answer.read())
    return time.perf_counter() - began, size


def processor_time(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> str:
    """The most that a process has used."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("VmHWM"))


def measured(server: Server, url: str, leases: int, pid: int) -> None:
    """Print every figure of the console."""
    observe(server)
    state, size = timed(f"{url}/dibs/api/state")
    print(f"first data, nothing read before: {state * 1000:.0f} ms, {size} bytes")
    scrape, size = timed(f"{url}/metrics")
    print(f"scrape while the server is being read: {scrape * 1000:.0f} ms, {size} bytes")
    with launched() as browser:
        page = browser.new_page()
        page.goto("about:blank")
        page.wait_for_timeout(1000)
        began = time.perf_counter()
        page.goto(f"{url}/dibs/")
        page.locator("#rows tr").nth(49).wait_for()
        print(f"page in a browser, 50 rows: {(time.perf_counter() - began) * 1000:.0f} ms")
        frames = page.evaluate(SMOOTH)
        print(f"frames in 4 s: {frames['frames']}, the longest {frames['worst']:.0f} ms")
        page.locator("#as-of").filter(has_text="read in").wait_for(timeout=900_000)
        print(page.locator("#as-of").inner_text())
        print(f"rows in the page: {page.locator('#rows tr').count()}")
        used = processor_time(pid)
        page.get_by_label("Find").fill(f"web-{leases % 7}:4711 no such key")
        page.get_by_text("Nothing contains").wait_for(timeout=900_000)
        print(f"a text looked for in all: CPU {processor_time(pid) - used:.1f} s, {memory(pid)}")
    with server.client() as client:
        waits = [timed(f"{url}/metrics")[0] for _ in range(20)]
        print(f"20 more scrapes meanwhile: at most {max(waits) * 1000:.0f} ms")
        stats: Any = client.info("commandstats")
    for name in ("scan", "type", "getrange", "pttl", "info"):
        each = stats.get(f"cmdstat_{name}")
        if each:
            print(f"  {name}: {each['calls']} calls, {each['usec_per_call']} µs each")
    report(server)


# ---- the command line


COMMANDS = (
    ("ls",),
    ("ls", "--limit", "0"),
    ("ls", "--limit", "0", "--sort", "left"),
    ("ls", "--limit", "0", "--json"),
    ("ls", "menu:*", "--limit", "0"),
    ("watch", "--count", "1"),
    ("watch", "--count", "2", "--limit", "0", "--log"),
    ("peek", "menu:1", "--json"),
    ("peek", shorten("menu:1"), "--json"),
    ("invalidate", shorten("menu:1")),
    ("invalidate", "menu:2", "--tag", "menus"),
    ("doctor",),
)


def commanded(server: Server) -> None:
    """Run commands of `dibs`, and print what each took."""
    with Dibs(server.url) as dibs:
        for number in (1, 2):
            dibs.get_or_load(f"menu:{number}", lambda: "noodles", ttl=3600, tags=["menus"])
    for words in COMMANDS:
        observe(server)
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "dibs", *words], cwd=ROOT,
            env={**os.environ, "DIBS_URL": server.url},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        size = 0
        while piece := child.stdout.read(1 << 16):
            size += len(piece)
        said = child.stderr.read().decode().splitlines()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        print(
            f"dibs {' '.join(words)}: {time.perf_counter() - began:.1f} s, CPU"
            f" {used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 1000:.0f} MB,"
            f" {size} bytes printed, exit code {child.returncode}; {said[:1]}"
        )
        report(server)


# ---- the server


def observe(server: Server) -> None:
    """Begin to note what takes long."""
    with server.client() as client:
        client.config_set("slowlog-log-slower-than", 500)
        client.config_set("slowlog-max-len", 128)
        client.config_set("latency-monitor-threshold", 5)
        client.slowlog_reset()
        client.config_resetstat()
        client.execute_command("LATENCY", "RESET")


def report(server: Server) -> None:
    """Print what took long."""
    with server.client() as client:
        latest = client.execute_command("LATENCY", "LATEST")
    print(f"  commands over 0.5 ms: {slow_commands(server)}; events over 5 ms: {latest}")


def main() -> None:
    """Measure; with a URL and a port: be the application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leases", type=int, default=100_000)
    parser.add_argument("--only", choices=("console", "commands"))
    parser.add_argument("--serve", nargs=2, metavar=("URL", "PORT"))
    asked = parser.parse_args()
    if asked.serve:
        uvicorn.run(application(asked.serve[0]), port=int(asked.serve[1]), log_level="error")
        return
    with Server.start("valkey") as server:
        filled(server, asked.leases)
        if asked.only != "commands":
            shown(server, asked.leases)
        if asked.only != "console":
            commanded(server)


def shown(server: Server, leases: int) -> None:
    """Start the application, and measure its console."""
    port = free_port()
    command = [sys.executable, "-m", __spec__.name, "--serve", server.url, str(port)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        eventually(lambda: is_up(f"http://127.0.0.1:{port}/dibs/"), within=60)
        measured(server, f"http://127.0.0.1:{port}", leases, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def is_up(url: str) -> bool:
    """Whether something answers there."""
    try:
        return timed(url)[1] > 0
    except OSError:
        return False


if __name__ == "__main__":
    main()
