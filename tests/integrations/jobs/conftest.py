"""One server and one worker for the tests of a framework."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from dibs.testing import Server
from dibs.testing.processes import Process, ended_with_parent
from tests.integrations.jobs.job_control import JobControl

StartWorker = Callable[..., Process]


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A Valkey that is the broker and has the results and the keys."""
    with Server.start() as server:
        yield server


@pytest.fixture(scope="module")
def control(broker: Server) -> Iterator[JobControl]:
    """What tells the jobs what to do."""
    control = JobControl(broker.url)
    yield control
    control.close()


def loaded_anew(name: str) -> Any:
    """Reload a module of this folder, with the current broker of job_control.py.

    A process of tests may run some tests of a file, then others, then the rest of it, each time on
    another broker.
    """
    sys.modules.pop(f"tests.integrations.jobs.{name}", None)
    return importlib.import_module(f"tests.integrations.jobs.{name}")


@contextmanager
def running(broker: Server, *command: str) -> Iterator[Process]:
    """A worker in its own process, killed at the end."""
    environment = {
        **os.environ,
        "JOBS_URL": broker.url,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path])),
        "PYTHONWARNINGS": "ignore",
    }
    process = Process(ended_with_parent([sys.executable, *command]), environment=environment)
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def start_worker(broker: Server) -> Iterator[StartWorker]:
    """Starts a worker of the test's own, to kill."""
    with ExitStack() as workers:
        yield lambda *command: workers.enter_context(running(broker, *command))
