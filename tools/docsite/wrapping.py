"""Where lines may break: in code, in tables, in signatures."""

import re
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

LONGEST = 20
"""Characters: a word of code of that length fits beside others on a phone."""
SENTENCE = 36
"""Characters: a cell with as many is not read in a narrow column."""


class Wrapping(SphinxTransform):
    """Marks short code, which a browser would break after each hyphen, and long cells.

    site.css says what follows from it.
    """

    default_priority: ClassVar[int | None] = 500

    def apply(self, **_: Any) -> None:
        for literal in self.document.findall(nodes.literal):
            if all(len(word) <= LONGEST for word in literal.astext().split()):
                literal["classes"].append("short")
        for cell in self.document.findall(nodes.entry):
            if len(cell.astext()) >= SENTENCE:
                cell["classes"].append("long")


_SIGNATURE = re.compile(r'(<span class="sig-paren">\(</span>\s*)<dl>(.*?)</dl>', re.DOTALL)


def lines_of_signatures(*details: Any) -> None:
    """Sphinx writes a definition list without a term for one of several lines."""
    context: dict[str, Any] = details[3]
    if "body" in context:
        context["body"] = _SIGNATURE.sub(_as_list, context["body"])


def _as_list(found: re.Match[str]) -> str:
    lines = found[2].replace("<dd>", "<li>").replace("</dd>", "</li>")
    return f"{found[1]}<ul>{lines}</ul>"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Wrapping)
    app.connect("html-page-context", lines_of_signatures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
