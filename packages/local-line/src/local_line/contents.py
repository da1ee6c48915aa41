"""Contents of messages that are not text: pictures, videos, sounds and files."""

import io
from collections import OrderedDict
from dataclasses import dataclass, field

from PIL import Image, ImageDraw, UnidentifiedImageError

_MOST_BYTES = 64 * 1024 * 1024
"""How much is stored; the oldest is dropped first."""
_SMALL = (240, 240)
_MOST_PIXELS = 40_000_000
"""Larger pictures have no preview: they are not unpacked."""


@dataclass(frozen=True)
class Content:
    """Bytes, and what they are."""

    data: bytes = field(repr=False)
    media_type: str
    name: str | None = None


class Contents:
    """Contents by the id of the message; an unsent one is deleted."""

    def __init__(self) -> None:
        self._contents: OrderedDict[str, Content] = OrderedDict()
        self._gone: set[str] = set()
        self._size = 0

    def add(self, message_id: str, content: Content) -> None:
        """Store a content, so that it can be downloaded."""
        self._contents[message_id] = content
        self._size += len(content.data)
        while self._size > _MOST_BYTES and len(self._contents) > 1:
            _, oldest = self._contents.popitem(last=False)
            self._size -= len(oldest.data)

    def find(self, message_id: str) -> Content | None:
        """Return a content. None: that message has none, or it is no longer stored."""
        return self._contents.get(message_id)

    def forget(self, message_id: str) -> None:
        """Delete the content of an unsent message."""
        self._gone.add(message_id)
        content = self._contents.pop(message_id, None)
        self._size -= len(content.data) if content else 0

    def is_gone(self, message_id: str) -> bool:
        """True: it existed, and was unsent."""
        return message_id in self._gone


def preview(content: Content) -> Content | None:
    """A small JPEG of a picture; of a video, a grey one. None: there can be none."""
    if content.media_type.startswith("video/"):
        return sample_picture((_SMALL[0], 135))
    try:
        with Image.open(io.BytesIO(content.data)) as image:
            if image.width * image.height > _MOST_PIXELS:
                return None
            image = image.convert("RGB")
            image.thumbnail(_SMALL)
            return _jpeg(image)
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError):
        return None


def sample_picture(size: tuple[int, int] = (640, 480)) -> Content:
    """A sample picture: hills under a sky."""
    image = Image.new("RGB", size, "#a9cbd8")
    draw, (width, height) = ImageDraw.Draw(image), size
    draw.ellipse((width * 0.7, height * 0.12, width * 0.7 + height * 0.2, height * 0.32), "#f6d98b")
    draw.polygon([(0, height), (width * 0.35, height * 0.4), (width * 0.75, height)], "#4d7d6c")
    draw.polygon([(width * 0.3, height), (width * 0.75, height * 0.55), (width, height)], "#2f5d50")
    return _jpeg(image)


def _jpeg(image: Image.Image) -> Content:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return Content(file.getvalue(), "image/jpeg")
