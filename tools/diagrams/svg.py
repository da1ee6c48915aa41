"""SVG of a few shapes, in colours that follow the reader's light or dark theme.

What is drawn has a background of its own: it can be read on any page, also where the page's theme
is not the system's. Colours have a contrast of at least 4.5 as text.
"""

from __future__ import annotations

from html import escape

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'
LIGHT = {
    "paper": "#fbfcfc",
    "edge": "#d5dadd",
    "grid": "#e6eaec",
    "ink": "#16191c",
    "soft": "#5c6066",
    "ours": "#0b5d5e",
    "theirs": "#b08a5b",
    "other": "#8d97a0",
    "wait": "#c9dada",
    "bad": "#a8321f",
    "good": "#0b5d5e",
}
DARK = {
    "paper": "#15191b",
    "edge": "#3a4046",
    "grid": "#2a3035",
    "ink": "#eceff1",
    "soft": "#a4abb2",
    "ours": "#5cc3c0",
    "theirs": "#a8834f",
    "other": "#6d767e",
    "wait": "#2d4a4b",
    "bad": "#ff9d80",
    "good": "#7fd1cf",
}


class Drawing:
    """What is drawn, as text."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, *, radius: float = 3
    ) -> None:
        """Draw a filled box."""
        self._parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" '
            f'height="{height:.1f}" rx="{radius:g}"/>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, kind: str, *, dashed: bool = False
    ) -> None:
        """Draw a line."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<line class="line-{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" '
            f'y2="{y2:.1f}"{dashes}/>'
        )

    def dot(self, x: float, y: float, kind: str, *, radius: float = 5) -> None:
        """Draw a filled circle."""
        self._parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def cross(self, x: float, y: float, kind: str) -> None:
        """Draw an end by force."""
        for dx in (-5, 5):
            self._parts.append(
                f'<line class="line-{kind} thick" x1="{x - dx:.1f}" y1="{y - 5:.1f}" '
                f'x2="{x + dx:.1f}" y2="{y + 5:.1f}"/>'
            )

    def text(
        self,
        x: float,
        y: float,
        words: str,
        kind: str = "ink",
        *,
        size: float = 13,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """Write words; *y* is their base line."""
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" '
            f'text-anchor="{anchor}"{weight}>{escape(words, quote=False)}</text>'
        )

    def __str__(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" '
            f'aria-label="{escape(self.title)}" font-family="{escape(FONT)}">'
        )
        paper = (
            f'<rect class="paper" x="0.5" y="0.5" width="{self.width - 1}" '
            f'height="{self.height - 1}" rx="8"/>'
        )
        parts = [head, f"<title>{escape(self.title)}</title>", _style(), paper, *self._parts]
        return "\n".join([*parts, "</svg>", ""])


def _style() -> str:
    rules = [
        *_colours(LIGHT),
        f".paper{{stroke:{LIGHT['edge']}}}line{{stroke-width:1.2}}.thick{{stroke-width:2.4}}",
        "@media (prefers-color-scheme:dark){",
        *_colours(DARK),
        f".paper{{stroke:{DARK['edge']}}}}}",
    ]
    return f"<style>{''.join(rules)}</style>"


def _colours(theme: dict[str, str]) -> list[str]:
    return [
        f".{name}{{fill:{colour}}}.line-{name}{{stroke:{colour}}}" for name, colour in theme.items()
    ]


def width_of(words: str, size: float) -> float:
    """Return about how wide words are."""
    return sum(0.62 if character.isupper() else 0.54 for character in words) * size
