"""The description of a wheel, rendered as PyPI renders it."""

import importlib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any


def description(wheel: Path) -> str:
    """The Markdown that a registry shows."""
    with zipfile.ZipFile(wheel) as archive:
        about = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        return str(Parser().parsestr(archive.read(about).decode("utf-8")).get_payload())


def rendering_problems(wheel: Path) -> list[str]:
    """What of the description does not survive the rendering. RuntimeError: nothing can render."""
    text = description(wheel)
    renderer: Any = importlib.import_module("readme_renderer.markdown")
    html: str | None = renderer.render(text)
    if html is None:
        raise RuntimeError("readme_renderer cannot render Markdown: its extra is missing")
    shown = {
        "headings": (text.count("\n## ") + text.startswith("# "), html.count("<h")),
        "programs": (text.count("\n```") // 2, html.count("<pre")),
        "pictures": (text.count("!["), html.count("<img")),
    }
    return [
        f"{wheel.name}: {got} of {wanted} {what} are shown"
        for what, (wanted, got) in shown.items()
        if got < wanted
    ]
