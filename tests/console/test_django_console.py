"""The console beside Django under ASGI, as docs/console.md writes it."""

import re
import subprocess
import sys
from pathlib import Path

from dibs.testing import Server

PAGE = Path(__file__).parents[2] / "docs" / "console.md"
SITE = """
import asyncio

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF="urls", USE_TZ=True,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes",
                    "django.contrib.sessions"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3"}},
)
django.setup()

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)
people = get_user_model().objects
client = {}
for name, make in (("root", people.create_superuser), ("ann", people.create_user)):
    client[name] = Client()
    client[name].force_login(make(name))

import asgi


async def status(path, cookie=b""):
    scope = {
        "type": "http", "method": "GET", "path": path, "query_string": b"", "root_path": "",
        "headers": [(b"host", b"site"), (b"cookie", cookie)], "http_version": "1.1",
    }
    sent, body = [], [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        return body.pop() if body else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    await asgi.application(scope, receive, send)
    return sent[0]["status"]


async def main():
    cookies = {who: b"sessionid=" + it.cookies["sessionid"].value.encode()
               for who, it in client.items()}
    found = [await status("/dibs/"), await status("/dibs/", cookies["ann"])]
    for path in ("/dibs/", "/dibs/static/console.js", "/dibs/api/state"):
        found.append(await status(path, cookies["root"]))
    found.append(await status("/other", cookies["root"]))
    await asgi.dibs.aclose()
    print(found)


asyncio.run(main())
"""


def test_a_superuser_sees_it_and_nobody_else(valkey: Server, tmp_path: Path) -> None:
    """The session of Django decides; other addresses are those of Django."""
    [written] = re.findall(r"```python no-run\n# asgi\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "asgi.py").write_text(written.replace("redis://localhost:6379", valkey.url))
    (tmp_path / "urls.py").write_text("urlpatterns = []\n")
    (tmp_path / "site_.py").write_text(SITE)
    done = subprocess.run(
        [sys.executable, "site_.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[403, 403, 200, 200, 200, 404]", done.stderr
