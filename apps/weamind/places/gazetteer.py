"""Every word that names a place, folded: official, without its 市 or 區, of old, in English; and
the names of landmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain

from . import atlas, nicknames
from .landmarks import Landmark
from .likeness import looks, sounds
from .place import Place
from .spelling import fold, gist

_KINDS = "市鎮鄉區"
_SIGHTS = tuple(
    map(
        fold,
        ("夜市", "溫泉", "醫院", "公園", "大學", "車站", "機場", "老街", "農場", "漁港", "瀑布"),
    )
)
"""What many landmarks end in: only the rest of their names tells them apart."""
_ENGLISH_KINDS = {"District": "dist", "Township": "twp", "City": "city", "County": "county"}


class Form(Enum):
    """How much of a name a word is, and so where it can be distinguished from other words."""

    FULL = "板橋區: in any text"
    STEM = "板橋: at an end of a short text"
    SHORT = "北市: by itself, or beside a township"
    BESIDE = "西區 of 臺南, which is 中西區 now: only beside its county"
    LANDMARK = "日月潭: by itself, beside its county, and within a text"
    WORD = "十分, which is also an ordinary word: by itself, or beside its county"
    SHARED = "阿里山, where it is not the township: only by itself"


@dataclass(frozen=True, slots=True)
class Word:
    """A name of a place, folded. `exact`: as good as its official name."""

    text: str
    place: Place
    form: Form
    exact: bool = False

    @property
    def is_sturdy(self) -> bool:
        """Whether it can be known with a slip in it: of two characters, one is half the name."""
        if self.form is Form.WORD:
            return False
        if self.place.landmark:
            telling = self.text[:-2] if self.text.endswith(_SIGHTS) else self.text[1:]
            return len(telling) > (4 if self.text.isascii() else 2)
        if self.text.isascii():
            return len(self.text) > 4
        return len(self.text) > 2 and (self.exact or self.form is Form.STEM)

    @property
    def is_telling(self) -> bool:
        """Whether a text that sounds or looks the same may mean it: two characters say too little,
        unless they name a township."""
        return not self.place.landmark or len(self.text) > 2

    @property
    def form_in_a_text(self) -> Form:
        """How it can be distinguished from the words around it: FULL anywhere, STEM at an end."""
        if self.form is Form.LANDMARK:
            return Form.FULL if len(self.text) > (7 if self.text.isascii() else 2) else Form.STEM
        return Form.STEM if self.form is Form.SHARED else self.form


Index = Mapping[str, Sequence[Word]]


class Gazetteer:
    """The words for all places: by text, by sound, by look, and by county."""

    def __init__(
        self, counties: Sequence[Place], towns: Sequence[Place], landmarks: Sequence[Landmark]
    ) -> None:
        words = [
            *(word for county in counties for word in _words_for_county(county)),
            *(word for landmark in landmarks for word in _words_for_landmark(landmark)),
            *(word for town in towns for word in _words_for_town(town)),
        ]
        telling = [word for word in words if word.is_telling]
        self.by_text = _index(words, str)
        self.by_sound = _index(telling, sounds)
        self.by_look = _index(telling, looks)
        self._fragile = sorted(
            (text for text in self.by_text if not text.isascii() and gist(text) != text),
            key=len,
            reverse=True,
        )
        self.longest = max(map(len, self.by_text))
        self._alone = [word for word in words if word.form is not Form.BESIDE]
        self._in = {county: [*_in(county, words)] for county in counties}
        self._around = _metropolis(counties)
        self._sturdy: dict[int, list[Word]] = {}
        for word in self._alone:
            if word.is_sturdy:
                self._sturdy.setdefault(len(word.text), []).append(word)

    def gist(self, text: str) -> str:
        """*text* without the words around a place, of which a name such as 臺灣大學 loses none."""
        return gist(text, keep=self._fragile)

    def counties(self, text: str) -> tuple[Place, ...]:
        """What *text* may mean as the county beside a township: 新竹 is two."""
        words = self.by_text.get(text, ())
        return self._around.get(text) or tuple(w.place for w in words if not w.place.town)

    def words(self, counties: Iterable[Place] = ()) -> Iterable[Word]:
        """The words for the townships of *counties*; without any, all that need no county."""
        return [w for county in counties for w in self._in[county]] or self._alone

    def sturdy(self, length: int) -> Iterable[Word]:
        """The words that may have become a text of that *length* by a slip."""
        return chain.from_iterable(self._sturdy.get(length + n, ()) for n in (-1, 0, 1))


def _in(county: Place, words: Iterable[Word]) -> Iterator[Word]:
    return (w for w in words if w.place.town and w.place.county == county.county)


def _words_for_county(county: Place) -> Iterator[Word]:
    name = county.county
    yield Word(fold(name), county, Form.FULL, exact=True)
    yield Word(fold(name[:-1]), county, Form.STEM, exact=True)
    for text in nicknames.COUNTIES[name].split():
        yield Word(fold(text), county, Form.SHORT if len(text) == 2 else Form.FULL, exact=True)
    for text, form in _english(county):
        yield Word(text, county, form, exact=True)


def _words_for_landmark(landmark: Landmark) -> Iterator[Word]:
    for name in landmark.names:
        by_itself = Form.WORD if name in landmark.by_itself else Form.LANDMARK
        form = Form.SHARED if name in landmark.shared else by_itself
        spellings = [fold(name), *([gist(name)] if name.isascii() else [])]  # with and without "of"
        for text in dict.fromkeys(spellings):
            yield Word(text, landmark.place, form, exact=form is not Form.SHARED)


def _words_for_town(town: Place) -> Iterator[Word]:
    assert town.town
    full, stem = fold(town.town), fold(town.town[:-1])
    if len(stem) == 1:  # 東 alone is no name, 北市 is not an old 北區, and 中東區域 is elsewhere
        yield Word(full, town, Form.STEM, exact=True)
    else:
        yield Word(full, town, Form.FULL, exact=True)
        yield Word(stem, town, Form.STEM)
        for old in {stem + kind for kind in fold(_KINDS)} - {full}:  # 板橋市 is 板橋區 now
            yield Word(old, town, Form.FULL)
    yield from _other_words_for_town(town)


def _other_words_for_town(town: Place) -> Iterator[Word]:
    official = fold(atlas.english(town))
    for text, form in _english(town):
        yield Word(text, town, form, exact=text == official)
    for text in nicknames.TOWNS.get(town.name, "").split():
        yield Word(fold(text), town, Form.FULL, exact=True)
    for text in nicknames.OF_A_COUNTY.get(town.name, "").split():
        yield Word(fold(text), town, Form.BESIDE)


def _english(place: Place) -> Iterator[tuple[str, Form]]:
    """Xinyi District → xinyi, xinyidistrict, xinyidist."""
    *names, kind = atlas.english(place).split()
    stem = fold("".join(names))
    yield stem, Form.STEM
    for end in dict.fromkeys((fold(kind), _ENGLISH_KINDS[kind])):
        yield stem + end, Form.FULL


def _metropolis(counties: Iterable[Place]) -> dict[str, tuple[Place, ...]]:
    named = {county.county: county for county in counties}
    return {
        fold(text): tuple(named[name] for name in names)
        for text, names in nicknames.METROPOLIS.items()
    }


def _index(words: Iterable[Word], key: Callable[[str], str]) -> Index:
    index: dict[str, list[Word]] = {}
    for word in words:
        index.setdefault(key(word.text), []).append(word)
    return index


@cache
def gazetteer() -> Gazetteer:
    """The one gazetteer of this process, made when it is first needed."""
    counties = atlas.counties()
    towns = [town for county in counties for town in atlas.towns_of(county.county)]
    return Gazetteer(counties, towns, atlas.landmarks())
