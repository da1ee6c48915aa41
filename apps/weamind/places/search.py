"""From a text to the place that it means, or to the few that it may mean."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .gazetteer import Form, Gazetteer, Word, gazetteer
from .likeness import is_slip, looks, sounds
from .place import Place
from .spelling import fold

MOST = 13
"""As many as LINE offers for a tap."""
_GUESSES = 4
"""If two characters with a slip in them could be more places, they are something else."""
_SAYING = 8
"""In a text of more characters a place must be named in full to be noticed."""
_THINGS = fold("市縣鎮鄉區山溪河湖潭島嶼嶺崖灣")
"""What a name can end in. Another ending is another thing, and no slip: 太平山 is not 太平區."""


def _folded(words: str) -> tuple[str, ...]:
    return tuple(map(fold, words.split()))


_ELSEWHERE = _folded("山 溪 河 湖 潭 島 嶼 嶺 崖 斷崖 水庫 銀行")
"""What often has the name of a place where it is not."""
_EVERYWHERE = _folded("中正 中山 仁愛 信義 和平 三民 成功 復興 光復 大同 太平 大安 新興")
_NAMED_ALIKE = _folded(
    "大學 科大 高中 女高 女中 高職 高工 高商 國中 國小 醫院 車站 火車站 公園 紀念公園 "
    "路 街 東路 西路 南路 北路 一路 二路"
)
"""Schools, hospitals, stations and streets in all of Taiwan have these names."""
_STOP = fold("站")
"""The one character that may come after the name of a township without making it another name."""


@dataclass(frozen=True, slots=True)
class Search:
    """The places found, best first. `sure`: the first one is meant; otherwise offer them all."""

    places: tuple[Place, ...]
    sure: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    """A way to read what was said: as a name, or as the *rest* beside the name of a county."""

    rest: str
    counties: tuple[Place, ...] = ()
    is_address: bool = False
    """The county came first, so a street may come after the township."""

    def admits(self, word: Word) -> bool:
        """Whether the word can be meant: beside a county, only those for its townships."""
        if not self.counties:
            return word.form is not Form.BESIDE
        names = [county.county for county in self.counties]
        is_there = word.place.town is not None and word.place.county in names
        return is_there and word.form is not Form.SHARED

    def has(self, *, han: int, latin: int) -> bool:
        """Whether the rest is that long at least: a letter says less than a character."""
        return len(self.rest) >= (latin if self.rest.isascii() else han)


_Tier = Callable[[_Reading, Gazetteer], Iterable[Place]]
"""The places that fit a reading in one way, in the order in which to offer them."""


def search(text: str) -> Search:
    """The places that *text* may mean, at most 13; none, if it does not seem to be about one.

    It never fails and never takes long: only the beginning of a long text is read. It is sure if
    the text names one place, be it short, old, simplified or English, with nothing around it but a
    question about the weather, or a street after county and township. A landmark may come after its
    county or township. A county's name means the county, not the town of that name in it. The first
    search builds the gazetteer, which takes longer; call `gazetteer()` first to avoid that.
    """
    names = gazetteer()
    said = names.gist(text)
    if len(said) < 2:
        return Search((), sure=False)
    readings = [*_beside_a_county(said, names), _Reading(said)]
    for tier in _CERTAIN:
        if found := dict.fromkeys(place for one in readings for place in tier(one, names)):
            return Search(tuple(found)[:MOST], sure=_is_one(*found))
    for tier in _POSSIBLE:
        if found := _offered(tier, readings, names):
            return Search(tuple(found)[:MOST], sure=False)
    return Search((), sure=False)


def _is_one(first: Place, *others: Place) -> bool:
    """Whether the first is meant. Who says 阿里山 means the forest, not 阿里山鄉 around it."""
    return all(first.landmark and first.town_code == other.code for other in others)


def _beside_a_county(said: str, names: Gazetteer) -> Iterator[_Reading]:
    """With the longest county at the beginning, and with the longest at the end."""
    for cut in range(len(said) - 1, 0, -1):
        if counties := names.counties(said[:cut]):
            yield _Reading(said[cut:], counties, is_address=True)
            break
    for cut in range(1, len(said)):
        if counties := names.counties(said[cut:]):
            yield _Reading(said[:cut], counties)
            break


def _offered(tier: _Tier, readings: list[_Reading], names: Gazetteer) -> dict[Place, None]:
    """What a tier finds, and after that the counties beside which it was found, as a way out."""
    found: dict[Place, None] = {}
    counties: dict[Place, None] = {}
    for reading in readings:
        if places := dict.fromkeys(tier(reading, names)):
            found |= places
            counties |= dict.fromkeys(reading.counties)
    return found | counties


# ------------------------------------------------------------------- how it may fit, best first


def _in_its_township(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """瑞芳九份, 宜蘭縣大同鄉太平山"""
    rest = reading.rest
    for cut in range(2, len(rest) - 1):
        for word in names.by_text.get(rest[cut:], ()):
            town = fold(word.place.town or "")
            if word.place.landmark and rest[:cut] in (town, town[:-1]) and reading.admits(word):
                yield word.place


def _exactly(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """臺北市信義區, 信義區, 臺北, 臺北市信義區市府路"""
    return (word.place for word in _named(reading, names) if word.exact)


def _nearly(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """信義; 臺北縣板橋市, which is 新北市板橋區 now"""
    return (word.place for word in _named(reading, names))


def _named(reading: _Reading, names: Gazetteer) -> Iterator[Word]:
    rest = reading.rest
    for end in range(len(rest), 0, -1) if reading.is_address else [len(rest)]:
        for word in names.by_text.get(rest[:end], ()):
            is_official = not word.place.landmark and (word.exact or word.form is Form.FULL)
            if (is_official or end == len(rest)) and reading.admits(word):
                yield word


def _partly(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """阿里 for 阿里山鄉; after that, 麻里 for 太麻里鄉"""
    if not reading.has(han=1 if reading.counties else 2, latin=4):
        return
    rest = reading.rest
    words = [word for word in names.words(reading.counties) if rest in word.text]
    begun = [word for word in words if word.text.startswith(rest)]
    yield from (word.place for word in begun if not word.place.landmark)
    yield from (word.place for word in begun if _is_begun(rest, word))
    yield from (word.place for word in words if _is_inner_part(rest, word))


def _is_begun(rest: str, word: Word) -> bool:
    """日月 for 日月潭; but 文化 is not said for 文化大學, nor 女王 for 女王頭, which is 野柳."""
    if word.place.landmark is None or word.form is Form.WORD:
        return False
    return len(rest) > 2 or (len(word.text) == 3 and word.text == fold(word.place.landmark))


def _is_inner_part(rest: str, word: Word) -> bool:
    """The end of a name with its 區 is no part of it: 山區 are the mountains."""
    if rest.isascii() or word.place.landmark:  # 夜市 is the end of many landmarks
        return False
    return word.form is not Form.FULL or len(rest) > 2


def _elsewhere(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """臺中市淡水: a township, but not of this county"""
    if reading.counties:
        words = names.by_text.get(reading.rest, ())
        yield from (w.place for w in words if w.place.town and w.form is not Form.BESIDE)


def _alike(reading: _Reading, names: Gazetteer) -> Iterator[Place]:
    """版橋, which sounds like 板橋; 苗粟, which looks like 苗栗"""
    if len(reading.rest) > 1 and not reading.rest.isascii():
        same_sound = names.by_sound.get(sounds(reading.rest), ())
        same_look = names.by_look.get(looks(reading.rest), ())
        yield from (word.place for word in (*same_sound, *same_look) if reading.admits(word))


def _slipped(reading: _Reading, names: Gazetteer) -> Iterable[Place]:
    """板橋區 or Banqiao with one character wrong, missing or too much; 橋板"""
    if not reading.has(han=2, latin=5):
        return ()
    is_vague = len(reading.rest) == 2 and not reading.counties
    words = _vaguely(reading.rest, names) if is_vague else _clearly(reading, names)
    found = dict.fromkeys(word.place for word in words if _is_mistyped(reading, word))
    return () if is_vague and len(found) > _GUESSES else found


def _is_mistyped(reading: _Reading, word: Word) -> bool:
    """But 太平山 is not 太平區 with a slip, nor is 金山溫泉 廬山溫泉, or 白沙屯 白沙鄉."""
    rest, name = reading.rest, word.text
    is_another_thing = rest[-1] != name[-1] and rest[-1] in _THINGS and name[-1] in _THINGS
    if word.place.landmark and rest[0] != name[0]:
        return False
    is_whole_stem = len(rest) == len(name) == 3 and rest[:2] == name[:2] and not reading.counties
    return is_slip(rest, name) and not is_another_thing and not is_whole_stem


def _vaguely(rest: str, names: Gazetteer) -> Iterator[Word]:
    """The words for two characters without a county: begun like them, or turned round."""
    yield from names.by_text.get(rest[::-1], ())
    yield from (word for word in names.sturdy(len(rest)) if word.text[0] == rest[0])


def _clearly(reading: _Reading, names: Gazetteer) -> Iterable[Word]:
    if not reading.counties:
        return names.sturdy(len(reading.rest))
    words, is_short = names.words(reading.counties), len(reading.rest) < 4
    return (word for word in words if word.is_sturdy or (is_short and len(word.text) == 2))


def _mentioned(reading: _Reading, names: Gazetteer) -> Iterable[Place]:
    """板橋車站, 我家住板橋區文化路"""
    if not reading.counties:
        words = list(_words_within(reading.rest, names))
    elif reading.is_address:
        starts = (reading.rest[:end] for end in range(2, len(reading.rest)))
        words = [w for text in starts for w in names.by_text.get(text, ()) if reading.admits(w)]
        words = [word for word in words if not _is_something_else(word, reading.rest)]
    else:
        words = []
    return _most_exact([word.place for word in words if word.form is not Form.WORD])


def _most_exact(places: list[Place]) -> list[Place]:
    """Not 板橋區 in another county than the one that is named; not the township of a landmark."""
    counties = [place for place in places if not place.town]
    towns = [place for place in places if place.town]
    named = [town for town in towns if town.county in {county.county for county in counties}]
    areas = {place.area for place in towns if place.landmark}
    found = named or towns + counties
    return [place for place in found if place.landmark or place.name not in areas]


def _is_something_else(word: Word, said: str) -> bool:
    """成功 in 成功高中, 清水 in 清水山: called so, too, but somewhere else."""
    rest = said.partition(word.text)[2]
    if word.form is Form.FULL or not rest:
        return False
    is_peak = word.place.landmark is not None and word.text[-1] in _THINGS
    is_common = is_peak or word.text in _EVERYWHERE
    return (is_common and rest.startswith(_NAMED_ALIKE)) or rest.startswith(_ELSEWHERE)


def _words_within(said: str, names: Gazetteer) -> Iterator[Word]:
    """The words in *said* that can be distinguished from the text around them."""
    start = 0
    while start < len(said):
        start, words = _longest(said, start, names)
        yield from words


def _longest(said: str, start: int, names: Gazetteer) -> tuple[int, list[Word]]:
    """Where the longest name ends that begins here, and what it may mean."""
    for stop in range(min(len(said), start + names.longest), start, -1):
        if words := _words_at(said, start, stop, names):
            return stop, words
    return start + 1, []


def _words_at(said: str, start: int, stop: int, names: Gazetteer) -> list[Word]:
    words = names.by_text.get(said[start:stop])
    if not words:
        return []
    at_an_end = start == 0 or stop == len(said)
    is_short = len(said) <= (4 * _SAYING if said.isascii() else _SAYING)
    forms = {Form.FULL, Form.STEM} if at_an_end and is_short else {Form.FULL}
    if len(said) == 3 and stop - start == 2 and not said.endswith(_STOP):
        return []  # 大坪林 is not in 坪林
    found = [
        word
        for word in words
        if word.form_in_a_text in forms and not _is_something_else(word, said[start:])
    ]
    return [word for word in found if not word.place.town] or found


_CERTAIN: tuple[_Tier, ...] = (_in_its_township, _exactly, _nearly)
_POSSIBLE: tuple[_Tier, ...] = (_partly, _elsewhere, _alike, _slipped, _mentioned)
