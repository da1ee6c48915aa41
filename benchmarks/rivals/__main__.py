"""`make rivals`: try every library, file the facts, write the table of docs/comparison.md."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dibs.testing import Server

from . import cases, page
from .catalogue import ALONE, ENTRIES, PACKAGES, Entry
from .environments import ROOT, Missing, python_of, server_folder, versions_of
from .processes import Broken, Subject

RESULTS = ROOT / "benchmarks" / "results" / "rivals.json"
CASES = tuple(dict.fromkeys(case for entry in ENTRIES for case in entry.cases))


def options() -> argparse.Namespace:
    """Return what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rivals", description=__doc__)
    libraries = tuple(dict.fromkeys(entry.library for entry in ENTRIES))
    parser.add_argument("--uv", default="uv", help="the uv that makes the environments")
    parser.add_argument("--only", action="append", choices=libraries, help="this library")
    parser.add_argument("--case", action="append", choices=CASES, help="this case")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the table")
    return parser.parse_args()


def main() -> int:
    """Try what is asked for. Returns 1 if something could not be tried."""
    chosen = options()
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    wrong = 0 if chosen.page else try_all(chosen, results)
    page.write(results)
    return 1 if wrong else 0


def try_all(chosen: argparse.Namespace, results: dict[str, Any]) -> int:
    """Try every entry that is asked for, and file what was found. Returns how many failed."""
    subjects = dict(_subjects(chosen, results))
    work = [
        (entry, case)
        for entry in subjects
        for case in entry.cases
        if not chosen.case or case in chosen.case
    ]
    wrong = 0
    at_once, alone = [w for w in work if w[1] not in ALONE], [w for w in work if w[1] in ALONE]
    with ThreadPoolExecutor(4) as pool:
        for case in dict.fromkeys(case for _, case in at_once):
            entries = [entry for entry, its in at_once if its == case]
            found = pool.map(lambda entry, case=case: _tried(subjects[entry], entry, case), entries)
            wrong += sum(_filed(results, e, case, f) for e, f in zip(entries, found, strict=True))
    for entry, case in alone:
        wrong += _filed(results, entry, case, _tried(subjects[entry], entry, case))
    return wrong


def _subjects(
    chosen: argparse.Namespace, results: dict[str, Any]
) -> Iterator[tuple[Entry, Subject]]:
    for entry in ENTRIES:
        if chosen.only and entry.library not in chosen.only:
            continue
        try:
            python = python_of(entry.library, chosen.uv)
        except Missing as reason:
            print(f"{entry.library}: left out: {reason}", flush=True)
            continue
        package = PACKAGES.get(entry.library, entry.library)
        results.setdefault("versions", {})[entry.library] = versions_of(python, package)
        yield entry, Subject(entry.library, entry.setting, python)


def _tried(subject: Subject, entry: Entry, case: str) -> dict[str, Any]:
    try:
        if case == "torture":
            return _tortured(subject)
        if case in ("outage", "failover"):
            return getattr(cases, case)(subject, entry.verb)
        return getattr(cases, case)(subject)
    except Broken as reason:
        return {"broken": str(reason)}


def _tortured(subject: Subject) -> dict[str, Any]:
    """Run the suite where the library is; it starts the Valkey of this environment."""
    paths = [ROOT / "src", ROOT / "packages" / "dibs-torture" / "src", server_folder()]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    script = Path(__file__).with_name("torture.py")
    command = [subject.python, str(script), subject.library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise Broken(done.stderr.strip()[-300:])
    return json.loads(done.stdout.splitlines()[-1])


def _filed(results: dict[str, Any], entry: Entry, case: str, facts: dict[str, Any]) -> bool:
    """File the facts of a cell, at once: a run that is ended keeps what it has."""
    print(f"{entry.name}, {case}: {json.dumps(facts)}", flush=True)
    facts["date"] = datetime.now(UTC).date().isoformat()
    results.setdefault("cells", {}).setdefault(entry.name, {})[case] = facts
    results["server"] = _server()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return "broken" in facts


def _server() -> str:
    with Server.start("valkey") as server:
        client: Any = server.client()
        return f"Valkey {client.info('server')['valkey_version']}"


if __name__ == "__main__":
    sys.exit(main())
