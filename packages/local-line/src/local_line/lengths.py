"""How long a text is, as LINE counts: messages in UTF-16 units, what is on a button in characters
as people see them."""

import unicodedata

_JOINER = "\u200d"


def utf16(text: str) -> int:
    """The number of UTF-16 units: most characters are one, emoji are two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def graphemes(text: str) -> int:
    """The number of characters that a person sees: a flag is one, a family is one."""
    count, before, flags = 0, "", 0
    for character in text:
        flags = flags + 1 if _is_flag_letter(character) else 0
        if not (_continues(character) or before == _JOINER or (flags and flags % 2 == 0)):
            count += 1
        before = character
    return count or len(text)


def _continues(character: str) -> bool:
    """True: it belongs to the previous character."""
    if character == _JOINER or unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    code = ord(character)
    return 0x1F3FB <= code <= 0x1F3FF or 0xE0020 <= code <= 0xE007F  # skin tones, tags


def _is_flag_letter(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF
