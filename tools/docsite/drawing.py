"""Diagrams in Mermaid's language, as HTML: boxes in layers, or a list of arrows.

Code hosts draw them themselves. On the site, Mermaid would be three megabytes of script; our
diagrams only say which box leads to which.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

_LAYER = re.compile(r'^\s*subgraph [^\["]+\["(?P<title>[^"]+)"\]$')
_BOX = re.compile(r'^\s*(?P<name>\w+)\["(?P<text>[^"]+)"\]$')
_ARROW = re.compile(
    r"^\s*(?P<start>\w+) "
    r'(?:-->(?:\|(?P<count>[^|]+)\|)?|--\s*"(?P<line>[^"]+)"\s*-->|-\.\s*"(?P<dots>[^"]+)"\s*\.->) '
    r"(?P<end>\w+)$"
)


@dataclass(frozen=True)
class Arrow:
    """From one box to another, and what is written on it."""

    start: str
    end: str
    text: str


@dataclass
class Drawing:
    """What a diagram says."""

    layers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """The boxes of each layer, by its title."""
    texts: dict[str, str] = field(default_factory=dict[str, str])
    """What is written in a box, by its name."""
    arrows: list[Arrow] = field(default_factory=list[Arrow])


def read(source: str) -> Drawing:
    """The drawing that *source* describes. Lines that only place boxes are left out."""
    drawing = Drawing()
    for line in source.splitlines():
        if layer := _LAYER.match(line):
            drawing.layers[layer["title"]] = []
        elif box := _BOX.match(line):
            drawing.texts[box["name"]] = box["text"]
            list(drawing.layers.values())[-1].append(box["name"])
        elif arrow := _ARROW.match(line):
            text = arrow["count"] or arrow["line"] or arrow["dots"] or ""
            drawing.arrows.append(Arrow(arrow["start"], arrow["end"], text))
    return drawing


def as_html(drawing: Drawing) -> str:
    """Layers of boxes, or a list of arrows if there are no layers."""
    return "".join(_layers(drawing) if drawing.layers else _steps(drawing))


def _steps(drawing: Drawing) -> Iterator[str]:
    yield '<ul class="steps">'
    for arrow in drawing.arrows:
        way = f"<b>{html.escape(arrow.start)}</b> → <b>{html.escape(arrow.end)}</b>"
        yield f"<li><span>{way}</span> <span>{html.escape(arrow.text)}</span></li>"
    yield "</ul>"


def _layers(drawing: Drawing) -> Iterator[str]:
    yield '<dl class="layers">'
    for title, boxes in drawing.layers.items():
        yield f"<dt>{html.escape(title)}</dt><dd>"
        yield from (_box(drawing, name) for name in boxes)
        yield "</dd>"
    yield "</dl>"


def _box(drawing: Drawing, name: str) -> str:
    title, _, size = drawing.texts[name].partition("<br/>")
    used = [_first(drawing, arrow.end) for arrow in drawing.arrows if arrow.start == name]
    lines = [f"<b>{html.escape(title)}</b>"]
    lines += [f"<small>{html.escape(size)}</small>"] if size else []
    lines += [f"<span>imports {html.escape(', '.join(used))}</span>"] if used else []
    return f"<div>{'<br>'.join(lines)}</div>"


def _first(drawing: Drawing, name: str) -> str:
    return drawing.texts.get(name, name).partition("<br/>")[0]


class Drawings(SphinxTransform):
    """Puts HTML in the place of each diagram."""

    default_priority: ClassVar[int | None] = 500

    def apply(self, **_: Any) -> None:
        for block in list(self.document.findall(nodes.literal_block)):
            if block.get("language") == "mermaid":
                block.replace_self(nodes.raw("", as_html(read(block.astext())), format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Drawings)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
