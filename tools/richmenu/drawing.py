"""How the menu looks. `python -m tools.richmenu.drawing` writes the bot's `menu.png` again.

Every shape is drawn four times as large as it will be, and reduced: that makes its edges smooth.
"""

import io
from functools import cache
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from apps.weamind.richmenu.buttons import BUTTONS, HEIGHT, WIDTH, Button

from .glyphs import EM, Contour, glyphs
from .icons import ICONS, Pen

PICTURE = Path(__file__).parents[2] / "apps/weamind/richmenu/menu.png"
SKY = "#e6eff7"
CARD = "#ffffff"
INK = "#1d2b3f"
SHADE = "#c6d5e4"
COLOURS = {
    "house": ("#a84c08", "#fdf0dc"),
    "office": ("#1d64b4", "#e4f0fc"),
    "clock": ("#0f766e", "#dff4f0"),
    "gear": ("#475569", "#ebeff4"),
    "pin": ("#b83a34", "#fde9e6"),
    "dots": ("#6547b8", "#eeeafb"),
}
"""For each icon, its own colour and that of the disc behind it."""

_FINE = 4
_MARGIN, _CORNER, _BLUR, _DROP = 22, 64, 14, 8
_DISC, _ICON, _LETTER = 404, 236, 132
_DISC_Y, _LABEL_Y = 322, 668


def draw() -> Image.Image:
    """The whole menu, 2500 by 1686."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), SKY)
    for button in BUTTONS:
        picture.paste(_tile(button), button.bounds[:2])
    return picture


def png(picture: Image.Image) -> bytes:
    """The same as a file, as small as it gets."""
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True)
    return file.getvalue()


def _tile(button: Button) -> Image.Image:
    width, height = button.bounds.width, button.bounds.height
    tile = Image.new("RGB", (width, height), SKY)
    card = _card(width, height)
    shadow = ImageChops.offset(card, 0, _DROP).filter(ImageFilter.GaussianBlur(_BLUR))
    tile.paste(SHADE, mask=shadow)
    tile.paste(CARD, mask=card)
    own, pale = COLOURS[button.icon]
    _put(tile, pale, _disc(), _DISC_Y)
    _put(tile, own, _icon(button.icon), _DISC_Y)
    _put(tile, INK, _words(button.label), _LABEL_Y)
    return tile


def _put(tile: Image.Image, colour: str, mask: Image.Image, y: int) -> None:
    """In the middle, at the height *y*."""
    tile.paste(colour, ((tile.width - mask.width) // 2, y - mask.height // 2), mask)


@cache
def _card(width: int, height: int) -> Image.Image:
    mask = Image.new("L", (width * _FINE, height * _FINE))
    start, right, bottom = _MARGIN * _FINE, width - _MARGIN, height - _MARGIN
    box = (start, start, right * _FINE - 1, bottom * _FINE - 1)
    ImageDraw.Draw(mask).rounded_rectangle(box, _CORNER * _FINE, fill=255)
    return mask.reduce(_FINE)


@cache
def _disc() -> Image.Image:
    pen = Pen(_DISC * _FINE)
    pen.disc(50, 50, 50)
    return pen.mask.reduce(_FINE)


def _icon(name: str) -> Image.Image:
    pen = Pen(_ICON * _FINE)
    ICONS[name](pen)
    return pen.mask.reduce(_FINE)


def _words(text: str) -> Image.Image:
    """KeyError: there is no such letter; `tools/make_glyphs.py` makes it."""
    letters = [glyphs()[character] for character in text]
    side = _LETTER * _FINE
    mask = Image.new("L", (side * len(letters), side * 5 // 4))
    for number, letter in enumerate(letters):
        mask.paste(_letter(letter.contours, side, mask.height), (number * side, 0))
    return mask.reduce(_FINE)


def _letter(contours: list[Contour], side: int, height: int) -> Image.Image:
    """What is inside of one contour, or of three, but not of two."""
    filled = Image.new("1", (side, height))
    for contour in contours:
        one = Image.new("1", filled.size)
        # The baseline is where the middle of a Chinese letter, 0.38 em above it, is the middle.
        points = [(x * side / EM, height / 2 + (380 - y) * side / EM) for x, y in contour]
        ImageDraw.Draw(one).polygon(points, fill=1)
        filled = ImageChops.logical_xor(filled, one)
    return filled.convert("L")


if __name__ == "__main__":
    PICTURE.write_bytes(png(draw()))
    print(f"{PICTURE.name}: {PICTURE.stat().st_size} bytes")
