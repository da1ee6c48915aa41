"""Search words of a page: `<!-- search: lock, mutex -->`. Who searches for one gets the page first.

They are main entries of the index, which Sphinx's search ranks above everything else. They have no
anchor, so that the result shows the beginning of the page.
"""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

_COMMENT = re.compile(r"^<!-- search: (.+) -->\n$", re.MULTILINE)


def as_directive(text: str) -> str:
    """*text*, which is no code, with a directive for its comment; every line keeps its number."""
    return _COMMENT.sub(r"```{search} \1\n```", text)


class Search(SphinxDirective):
    """The words, separated by commas."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        words = [word.strip() for word in self.arguments[0].split(",")]
        return [addnodes.index(entries=[("single", word, "", "main", None) for word in words])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("search", Search)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
