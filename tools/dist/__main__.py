"""`make dist`: everything in one go; the exit code says whether it can be published."""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dibs.testing import Server

from . import checks
from .environments import Environment, requirement_sets
from .pages import rendering_problems
from .projects import DIST, ROOT, Project, copy_for_release, files_of, projects, release_tag

_URL = re.compile(r"https://[\w.-]+(/[\w.-]+)+")


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, check, install and try; print what was done. 1: something is wrong."""
    options = _parser().parse_args(arguments)
    url = options.url.rstrip("/")
    if url and not _URL.fullmatch(url):
        print(f"PROJECT_URL must be the https address of the repository, not {url!r}")
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    problems = [each for project in projects() for each in _built(project, options.uv, url)]
    problems += _described()
    if not problems:
        with Server.start("valkey") as server:
            problems = [each for p in projects() for each in _tried(p, options.uv, server)]
    print(*problems, sep="\n", end="\n" if problems else "")
    if not problems:
        print(_verdict(url))
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make dist", description=__doc__)
    parser.add_argument("--uv", default="uv", help="the uv program")
    parser.add_argument("--url", default="", help="where the repository is published")
    return parser


def _built(project: Project, uv: str, url: str) -> list[str]:
    """Build a wheel from an sdist from a clean copy, and check both."""
    with tempfile.TemporaryDirectory() as folder:
        copy_for_release(project, Path(folder), url=url, tag=release_tag(project))
        command = [uv, "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
        subprocess.run([*command, "--out-dir", str(DIST), folder], check=True)
    wheel, sdist = files_of(project)
    print(f"built {wheel.name} ({wheel.stat().st_size} bytes), {sdist.name} ({sdist.stat().st_size} bytes)")
    found = checks.wheel_problems(project, wheel, published=bool(url))
    return [*found, *checks.sdist_problems(project, sdist)]


def _described() -> list[str]:
    """What a registry would say about the metadata and the descriptions."""
    files = [str(path) for project in projects() for path in files_of(project)]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    problems = [] if done.returncode == 0 else [done.stdout + done.stderr]
    return problems + [each for p in projects() for each in rendering_problems(files_of(p)[0])]


def _tried(project: Project, uv: str, server: Server) -> list[str]:
    """Install the wheel into clean environments, and run the smoke test in each."""
    problems: list[str] = []
    wheel = files_of(project)[0].as_uri()
    for extra, resolution, requirements in requirement_sets(project):
        label = f"{project.name}[{extra}]" if extra else project.name
        client: Any = server.client()
        client.flushall()
        with Environment(uv) as environment:
            environment.install(f"{label} @ {wheel}", DIST, requirements, resolution)
            said = environment.smoke(project, extra, server.url)
            versions = environment.versions(requirements)
        print(f"{label} with {versions or 'nothing else'}: {'FAILED' if said else 'works'}", flush=True)
        problems += [f"{label} with {versions}: {said}"] if said else []
    return problems


def _verdict(url: str) -> str:
    if url:
        return f"dist/ can be published; its pages lead to {url}"
    return "dist/ works, but is not for a registry: without PROJECT_URL its pages have no links"


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main())
