"""Make the letters of the rich menu, `tools/richmenu/glyphs.json`.

    python -m tools.make_glyphs NotoSansCJK-Bold.ttc    write them from that file of Noto Sans CJK

Needs fonttools, which nothing else here does: `uv run --with fonttools python -m …`.
Only the characters that the menu's labels have are taken, in the shapes that Taiwan uses, each as
an SVG path in a thousandth of an em, with the y axis upwards. Before anything is written it is
checked: there is a glyph for every character, and each path can be read again.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from apps.weamind.richmenu.buttons import BUTTONS
from tools.richmenu.glyphs import contours

TARGET = Path(__file__).parents[1] / "tools/richmenu/glyphs.json"
FAMILY = "Noto Sans CJK TC"


def traditional_face(path: Path) -> Any:
    """The face for Taiwan within a collection. StopIteration: there is none."""
    collection = import_module("fontTools.ttLib").TTCollection(path, lazy=True)
    return next(font for font in collection.fonts if font["name"].getDebugName(1) == FAMILY)


def glyph(face: Any, character: str) -> dict[str, Any]:
    """How far it goes, and its outline. KeyError: the font does not have it."""
    glyphs, name = face.getGlyphSet(), face.getBestCmap()[ord(character)]
    pen = import_module("fontTools.pens.svgPathPen").SVGPathPen(glyphs)
    glyphs[name].draw(pen)
    path = pen.getCommands()
    assert contours(path), character
    return {"advance": glyphs[name].width, "path": path}


def main(arguments: list[str]) -> None:
    """Write the file."""
    if len(arguments) != 1:
        raise SystemExit(__doc__)
    face = traditional_face(Path(arguments[0]))
    characters = sorted(set("".join(button.label for button in BUTTONS)))
    lines = [
        f"{json.dumps(each, ensure_ascii=False)}: {json.dumps(glyph(face, each))}"
        for each in characters
    ]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
    print(f"{len(characters)} glyphs, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
