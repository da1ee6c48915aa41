"""Upload dist/ to a registry on this machine, and use what it then offers.

The registry is pypiserver, in its own environment. Each distribution is installed from it into a
clean environment, and the examples of the page that it shows for dibs are run in order.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dibs.testing import eventually
from dibs.testing.ports import free_port

from .dist.environments import Environment
from .dist.pages import description
from .dist.projects import ROOT

DIST = ROOT / "dist"
_EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Upload, install, run; print what was done. 1: something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.try_release", description=__doc__)
    parser.add_argument("--uv", default="uv", help="the uv program")
    uv = parser.parse_args(arguments).uv
    wheels = sorted(DIST.glob("*.whl"))
    if not wheels:
        print("there is nothing in dist/: make dist, first")
        return 1
    with registry(uv) as url:
        publish(uv, url)
        problems = [each for wheel in wheels for each in installation_problems(uv, url, wheel)]
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


@contextmanager
def registry(uv: str) -> Generator[str]:
    """The address of an empty registry, which ends with the block."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder, Environment(uv) as environment:
        environment.add("pypiserver")
        command = [environment.python, "-m", "pypiserver", "run", "--disable-fallback"]
        options = ["-i", "127.0.0.1", "-p", str(port), "-P", ".", "-a", ".", folder]
        with subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL) as server:
            try:
                eventually(lambda: _answers(port), within=60)
                yield f"http://127.0.0.1:{port}"
            finally:
                server.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def publish(uv: str, url: str) -> None:
    """What `make release` does at its end."""
    files = [str(path) for path in sorted(DIST.iterdir())]
    user = {"UV_PUBLISH_URL": f"{url}/", "UV_PUBLISH_USERNAME": "any", "UV_PUBLISH_PASSWORD": "any"}
    subprocess.run([uv, "publish", "--quiet", *files], check=True, env=os.environ | user)
    print(f"uploaded {len(files)} files with uv publish")


def installation_problems(uv: str, url: str, wheel: Path) -> list[str]:
    """What is wrong with a distribution that was installed from the registry at *url*."""
    name, version = wheel.name.split("-")[:2]
    wanted = f"pydibs[embedded]=={version}" if name == "pydibs" else f"{name}=={version}"
    with Environment(uv) as environment:
        environment.add(wanted, index=f"{url}/simple/")
        examples = "\n".join(_EXAMPLE.findall(description(wheel)))
        said = environment.run(examples if name == "pydibs" else f"import {name}")
    print(f"installed {wanted} from the registry: {'FAILED' if said else 'works'}", flush=True)
    return [f"{wanted}: {said}"] if said else []


if __name__ == "__main__":
    sys.exit(main())
