"""What the supply chain rests on: pins with hashes, workflows with few rights, known advisories.

    make audit                      # pins and workflows, and advisories from PyPI
    make audit ARGS=--offline       # without a network: pins and workflows

Each finding is a line; the exit code is 1 if there is one, 2 if the index did not answer.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
INDEX = "https://pypi.org/pypi"
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==(\S+?)(?: ;.*)?(?: \\)?$")
_ACTION = re.compile(r"[\w./-]+@[0-9a-f]{40}")
_HASH = re.compile(r"^--hash=sha256:[0-9a-f]{64}(?: \\)?$")
_WRITES = {("release.yml", "publish"): {"contents": "read", "id-token": "write"}}
"""The jobs that have more rights than to read."""


def pins(path: Path) -> Iterator[tuple[str, str, bool]]:
    """Name and version of each pin, and whether it has a hash."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    for number, line in enumerate(lines):
        if (match := _PIN.match(line)) is not None:
            following = lines[number + 1 : number + 2]
            yield match[1].lower(), match[2], bool(following and _HASH.match(following[0]))


def unpinned(path: Path) -> Iterator[str]:
    """What may be installed from *path* without being what it was."""
    for line in path.read_text("utf-8").splitlines():
        text = line.strip()
        if text and text[0] not in "#-" and _PIN.match(text) is None:
            yield f"{path.name}: no pin: {text}"
    yield from (
        f"{path.name}: no hash: {name}=={v}" for name, v, hashed in pins(path) if not hashed
    )


def unsafe(path: Path) -> Iterator[str]:
    """What a workflow allows that it need not."""
    workflow: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    if workflow.get("permissions") != {"contents": "read"}:
        yield f"{path.name}: permissions must be contents: read"
    events = workflow.get("on", workflow.get(True, {}))  # YAML reads `on` as a truth value
    if "pull_request_target" in events:
        yield f"{path.name}: pull_request_target runs with secrets on code of strangers"
    for name, job in workflow["jobs"].items():
        if job.get("permissions", {"contents": "read"}) != _WRITES.get(
            (path.name, name), {"contents": "read"}
        ):
            yield f"{path.name}: {name}: other permissions than tools/audit.py names"
        for step in job["steps"]:
            yield from _unsafe_step(f"{path.name}: {name}", step)


def _unsafe_step(where: str, step: dict[str, Any]) -> Iterator[str]:
    used = step.get("uses", "")
    if used and not _ACTION.fullmatch(used):
        yield f"{where}: {used} is not pinned to a commit"
    kept = step.get("with", {}).get("persist-credentials")
    if used.startswith("actions/checkout@") and kept is not False:
        yield f"{where}: checkout keeps its credentials"
    if "${{ github.event" in step.get("run", ""):
        yield f"{where}: a text of a stranger gets into a shell"


def advisories(index: str, name: str, version: str) -> list[str]:
    """The known ones that are not withdrawn. OSError, ValueError: the index does not say."""
    with urllib.request.urlopen(f"{index}/{name}/{version}/json", timeout=20) as answer:
        known = json.load(answer)["vulnerabilities"]
    return [
        f"{name}=={version}: {each['id']}, mended in {', '.join(each['fixed_in']) or 'no version'}"
        for each in known
        if not each.get("withdrawn")
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the findings. Returns 0, 1 if there are any, 2 if the index did not answer."""
    parser = argparse.ArgumentParser(prog="make audit")
    parser.add_argument("--offline", action="store_true", help="do not ask for advisories")
    parser.add_argument("--index", default=INDEX, help="where the JSON API of PyPI is")
    options = parser.parse_args(arguments)
    index: str = options.index
    files = sorted((root / "requirements").rglob("*.txt"))
    found = [line for path in files for line in unpinned(path)]
    workflows = sorted((root / ".github/workflows").glob("*.yml"))
    found += [line for path in workflows for line in unsafe(path)]
    known = sorted({(name, version) for path in files for name, version, _ in pins(path)})
    asked = 0
    if not options.offline:
        try:
            with ThreadPoolExecutor(8) as pool:
                looks = [pool.submit(advisories, index, name, version) for name, version in known]
                for look in looks:
                    found += look.result()
            asked = len(known)
        except (OSError, ValueError, KeyError) as error:
            print(f"advisories were not looked up: {index}: {error}", file=sys.stderr)
    print("\n".join(found) or "nothing found", end="\n")
    print(f"{len(known)} pins of {len(files)} files, {asked} looked up; {len(workflows)} workflows")
    return 1 if found else 2 if not (asked or options.offline) else 0


if __name__ == "__main__":
    sys.exit(main())
