"""`make audit`: pins, workflows and advisories; what it finds, and that it finds nothing here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools import audit

HASH = "--hash=sha256:" + "a" * 64
WORKFLOW = """
on: {}
permissions: {{contents: {}}}
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@{}
        with: {{persist-credentials: {}}}
"""
COMMIT = "3d3c42e5aac5ba805825da76410c181273ba90b1"


@pytest.fixture
def index() -> Iterator[str]:
    """A registry that knows of one advisory, and of one that was withdrawn."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            bad = {"id": "PYSEC-1", "fixed_in": ["2.0"], "withdrawn": None}
            gone = {"id": "PYSEC-2", "fixed_in": [], "withdrawn": "2026-01-01"}
            known = [bad, gone] if self.path == "/bad/1.0/json" else []
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"vulnerabilities": known}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def project(folder: Path, pins: str, workflow: str) -> Path:
    (folder / "requirements").mkdir()
    (folder / "requirements/dev.txt").write_text(pins)
    (folder / ".github/workflows").mkdir(parents=True)
    (folder / ".github/workflows/test.yml").write_text(workflow)
    return folder


def test_this_repository_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    """Every pin has a hash, every workflow only the rights that it needs."""
    assert audit.main(["--offline"]) == 0
    assert capsys.readouterr().out.startswith("nothing found\n")


@pytest.mark.parametrize(
    ("pins", "workflow", "found"),
    [
        (f"good==1.0 \\\n    {HASH}\n", WORKFLOW.format("push", "read", COMMIT, "false"), ""),
        ("good==1.0\n", WORKFLOW.format("push", "read", COMMIT, "false"), "no hash: good==1.0"),
        ("good>=1.0\n", WORKFLOW.format("push", "read", COMMIT, "false"), "no pin: good>=1.0"),
        ("", WORKFLOW.format("push", "write", COMMIT, "false"), "permissions must be"),
        ("", WORKFLOW.format("push", "read", "v4", "false"), "v4 is not pinned"),
        ("", WORKFLOW.format("push", "read", COMMIT, "true"), "keeps its credentials"),
        ("", WORKFLOW.format("pull_request_target", "read", COMMIT, "false"), "strangers"),
    ],
)
def test_what_is_not_safe_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pins: str, workflow: str, found: str
) -> None:
    """A line each, and exit code 1."""
    root = project(tmp_path, pins, workflow)
    assert audit.main(["--offline"], root) == (1 if found else 0)
    assert found in capsys.readouterr().out


def test_known_advisories_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], index: str
) -> None:
    """Not those that were withdrawn; an index that does not answer is no clean bill."""
    pins = f"good==1.0 \\\n    {HASH}\nbad==1.0 \\\n    {HASH}\n"
    root = project(tmp_path, pins, WORKFLOW.format("push", "read", COMMIT, "false"))
    assert audit.main(["--index", index], root) == 1
    assert capsys.readouterr().out.splitlines()[0] == "bad==1.0: PYSEC-1, mended in 2.0"
    assert audit.main(["--index", "http://127.0.0.1:1"], root) == 2
