"""Code for threads and for asyncio, or for several verbs, side by side as tabs.

On a page, blocks that follow each other below `**Threads**` and `**asyncio**` are a pair; those
below `**hold**`, `**once**` and `**cached**` are a choice. A code host shows them one below the
other, and so does the site without JavaScript. site.js makes tabs of them, and keeps all pairs in
step.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LABELS = ("Threads", "asyncio")
VERBS = ("hold", "once", "cached")
_CODE = (nodes.literal_block, nodes.comment, addnodes.desc, addnodes.index)
"""What may stand below a label."""


class Pairs(SphinxTransform):
    """Puts the halves of each pair into containers."""

    default_priority: ClassVar[int | None] = 500

    def apply(self, **_: Any) -> None:
        for labels, name in ((LABELS, "pair"), (VERBS, "choice")):
            for first in list(_labels(self.document, labels)):
                halves = _halves(first, labels)
                if len(halves) > 1 and first.parent is halves[0][0].parent:
                    _replace(halves, labels, name)


Half = list[nodes.Node]
"""A label, and the code below it."""


def _labels(document: nodes.document, labels: tuple[str, ...]) -> Iterator[nodes.paragraph]:
    """Yield the labels that begin a group of *labels*."""
    for paragraph in document.findall(nodes.paragraph):
        if _label(paragraph, labels) == labels[0]:
            yield paragraph


def _label(node: nodes.Node, labels: tuple[str, ...]) -> str:
    if not isinstance(node, nodes.paragraph) or node.astext() not in labels:
        return ""
    parts = [child for child in node.children if child.astext()]  # MyST leaves empty texts
    return node.astext() if isinstance(parts[0], nodes.strong) else ""


def _halves(first: nodes.paragraph, labels: tuple[str, ...]) -> list[Half]:
    """Return the labels that follow each other from *first* on, each with its code."""
    siblings = first.parent.children
    halves: list[Half] = []
    for node in siblings[siblings.index(first) :]:
        if _label(node, labels) and (not halves or len(halves[-1]) > 1):
            halves.append([node])
        elif halves and isinstance(node, _CODE):
            halves[-1].append(node)
        else:
            break
    return [half for half in halves if len(half) > 1]


def _replace(halves: list[Half], labels: tuple[str, ...], name: str) -> None:
    """Put a container with one container for each half in their place."""
    parent = halves[0][0].parent
    pair = nodes.container(classes=[name])
    parent.insert(parent.index(halves[0][0]), pair)
    for label, *code in halves:
        parent.remove(label)
        half = nodes.container(classes=["half"])
        half += nodes.paragraph("", _label(label, labels), classes=["half-label"])
        for node in code:
            parent.remove(node)
            half += node
        pair += half


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Pairs)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
