"""From what people write to the place that they mean."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apps.weamind.places import nicknames
from apps.weamind.places.atlas import atlas, counties, english
from apps.weamind.places.likeness import is_slip, looks, sounds
from apps.weamind.places.place import Place
from apps.weamind.places.search import MOST, search
from apps.weamind.places.spelling import fold, gist

TOWNS = atlas().towns
SEATS = {"宜蘭", "苗栗", "彰化", "南投", "屏東", "花蓮", "臺東", "桃園"}
"""Townships that are called like their county."""

SIMPLIFIED = """
台湾桃园=桃園市 云林=雲林縣 新北市板桥区=新北市板橋區 台东县=臺東縣
宜兰县罗东镇=宜蘭縣羅東鎮 花莲县凤林镇=花蓮縣鳳林鎮 苗栗县后龙镇=苗栗縣後龍鎮
台中市后里区=臺中市后里區 台南市后壁区=臺南市後壁區 台南市关庙区=臺南市關廟區
高雄市凤山区=高雄市鳳山區 高雄市弥陀区=高雄市彌陀區 屏东县万峦乡=屏東縣萬巒鄉
屏东县盐埔乡=屏東縣鹽埔鄉 澎湖县湖西乡=澎湖縣湖西鄉 连江县=連江縣 金门县烈屿乡=金門縣烈嶼鄉
彰化县员林市=彰化縣員林市 嘉义县义竹乡=嘉義縣義竹鄉 南投县国姓乡=南投縣國姓鄉
云林县麦寮乡=雲林縣麥寮鄉 新竹县宝山乡=新竹縣寶山鄉 桃园市龟山区=桃園市龜山區
基隆市七堵区=基隆市七堵區 新北市莺歌区=新北市鶯歌區 台北市万华区=臺北市萬華區
高雄市鸟松区=高雄市鳥松區 新北市乌来区=新北市烏來區 彰化县线西乡=彰化縣線西鄉
台南市学甲区=臺南市學甲區 宜兰县壮围乡=宜蘭縣壯圍鄉 花莲县寿丰乡=花蓮縣壽豐鄉
台中市雾峰区天气预报=臺中市霧峰區 苗栗县铜锣乡=苗栗縣銅鑼鄉 嘉义县六脚乡=嘉義縣六腳鄉
云林县二仑乡=雲林縣二崙鄉
"""
VARIANTS = """
苑裏=苗栗縣苑裡鎮 霧峯=臺中市霧峰區 二崘=雲林縣二崙鄉 塩水=臺南市鹽水區 豊原=臺中市豐原區
恒春=屏東縣恆春鎮 溪洲鄉=彰化縣溪州鄉 蘆州=新北市蘆洲區 刺桐=雲林縣莿桐鄉 峨嵋=新竹縣峨眉鄉
亀山=桃園市龜山區 関山=臺東縣關山鎮 竜潭=桃園市龍潭區 内湖=臺北市內湖區 台東県=臺東縣
"""
NO_PLACES = """
123 12345678 天氣 今天天氣 明天會下雨嗎 台灣 你好 嗨 謝謝 早安 晚安 大家 大家好 我愛你 公司 住家
設定 說明 取消 可愛 生日快樂 今天吃什麼 社區 市區 園區 夜市 大區 新區 東 一 hello ok city district
東京 上海 廈門 香港 北京 Tokyo 😀 ？！ https://example.com
"""


def names(text: str) -> list[str]:
    return [place.name for place in search(text).places]


def is_sure_of(text: str, name: str) -> bool:
    return search(text).sure and names(text)[0] == name


def ways_to_write(town: Place) -> list[str]:
    """How people write a township together with its county."""
    assert town.town
    county, stem = town.county[:-1], town.town[:-1]
    return [
        town.name,
        town.name.replace("臺", "台"),
        f"{county}{town.town}",
        f"{town.town} {town.county}",
        f"{town.town}, {county}",
        f"　{county}　{town.town}　",
        f"{town.county}的{town.town}",
        f"臺灣{town.name}",
        f"{county}{town.town}天氣",
        f"明天{town.name}會下雨嗎？",
        f"請問 {county} {town.town} 的天氣預報",
        f"{town.name}中山路一段１號",
        f"{english(town)}, {english(by_county(town.county))}",
        f"{english(town).upper()} {english(by_county(town.county))} weather today",
        *([f"{county}{stem}", f"{town.county}{stem}", f"{stem}{county}"] if len(stem) > 1 else []),
    ]


def by_county(name: str) -> Place:
    (county,) = [county for county in counties() if county.county == name]
    return county


# ------------------------------------------------------------------------------- every place


def test_every_county_is_found_however_it_is_written() -> None:
    """With 台 or 臺, with or without 市, in English, with a question: the county, for sure."""
    for county in counties():
        name, stem = county.county, county.county[:-1]
        for text in (
            name, name.replace("臺", "台"), f"{name}天氣", f"今天{name}會下雨嗎", f" {name}\n",
            f"{name}的氣象", f"台灣{name}", english(county), english(county).upper(),
        ):  # fmt: skip
            assert is_sure_of(text, name), text
        both = stem in ("新竹", "嘉義")
        assert search(stem).sure is not both and county in search(stem).places


def test_every_township_with_its_county_is_found_however_it_is_written() -> None:
    """Seventeen ways for each of 368: always that one, always sure."""
    for town in TOWNS:
        for text in ways_to_write(town):
            assert is_sure_of(text, town.name), text


def test_every_township_is_found_without_its_county() -> None:
    """Its name is enough, or its namesakes are offered with it; a seat's stem is its county."""
    for town in TOWNS:
        assert town.town
        for text in (town.town, town.town.replace("臺", "台"), f"{town.town}天氣", english(town)):
            found = search(text)
            assert town in found.places, text
            assert found.sure is (len(found.places) == 1), text
        stem = town.town[:-1]
        if stem in SEATS:
            assert search(stem).sure and names(stem)[0].startswith(stem)
            assert search(stem).places[0].town is None
        elif len(stem) > 1:
            assert town in search(stem).places


def test_every_township_is_found_by_a_former_kind() -> None:
    """板橋市 is 板橋區 now: with its county, a township is found as 市, 鎮, 鄉 and 區."""
    for town in TOWNS:
        assert town.town
        for kind in "市鎮鄉區":
            text = f"{town.county}{town.town[:-1]}{kind}"
            if len(town.town) > 2 and text != "高雄市三民鄉":
                assert is_sure_of(text, town.name), text


def test_a_wrong_or_needless_character_is_forgiven_everywhere() -> None:
    """With any one character of a full name wrong or too much, the township is offered."""
    for town in TOWNS:
        for at in range(len(town.name)):
            wrong = f"{town.name[:at]}囧{town.name[at + 1 :]}"
            needless = f"{town.name[:at]}囧{town.name[at:]}"
            for found in (search(wrong), search(needless)):
                assert town in found.places and not found.sure, (wrong, needless)


def test_a_missing_character_is_nearly_always_forgiven() -> None:
    """With any one character missing; unless what is left is the name of another place."""
    lost: list[str] = []
    for town in TOWNS:
        for at in range(len(town.name)):
            text = town.name[:at] + town.name[at + 1 :]
            lost += [text] if town not in search(text).places else []
    assert len(lost) < 0.01 * sum(len(town.name) for town in TOWNS), lost


def test_exchanged_neighbours_are_nearly_always_forgiven() -> None:
    """Two characters the wrong way round; unless that is another name: 口湖, 湖口."""
    lost: list[str] = []
    for town in TOWNS:
        for at in range(len(town.name) - 1):
            text = town.name[:at] + town.name[at + 1] + town.name[at] + town.name[at + 2 :]
            lost += [text] if town not in search(text).places else []
    assert len(lost) < 0.01 * sum(len(town.name) for town in TOWNS), lost


# --------------------------------------------------------------------------------- as people do


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("台北信義", "臺北市信義區"),
        ("北市信義區", "臺北市信義區"),
        ("信義區 台北市", "臺北市信義區"),
        ("新北 板橋", "新北市板橋區"),
        ("高雄市的鳳山", "高雄市鳳山區"),
        ("台北板橋", "新北市板橋區"),
        ("新竹東區", "新竹市東區"),
        ("新竹竹北", "新竹縣竹北市"),
        ("竹北", "新竹縣竹北市"),
        ("中市東區", "臺中市東區"),
        ("台北", "臺北市"),
        ("新北", "新北市"),
        ("北市", "臺北市"),
        ("桃市", "桃園市"),
        ("南市", "臺南市"),
        ("高市", "高雄市"),
        ("宜蘭", "宜蘭縣"),
        ("宜蘭市", "宜蘭縣宜蘭市"),
        ("台東市", "臺東縣臺東市"),
        ("桃園", "桃園市"),
        ("霧台", "屏東縣霧臺鄉"),
        ("台北市信義區市府路45號", "臺北市信義區"),
        ("請問明天板橋會下雨嗎？", "新北市板橋區"),
        ("板橋 今天 天氣 如何", "新北市板橋區"),
        ("🌧️台北☔", "臺北市"),
        ("台-北／信.義", "臺北市信義區"),
        ("台北今天信義區", "臺北市信義區"),
    ],
)
def test_short_and_spoken_names(text: str, name: str) -> None:
    """Without 市 and 區, the other way round, by nickname, with a question around it: sure."""
    assert is_sure_of(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("臺北縣", "新北市"),
        ("臺北縣板橋市", "新北市板橋區"),
        ("台北縣三重市重新路", "新北市三重區"),
        ("桃園縣中壢市", "桃園市中壢區"),
        ("桃園縣桃園市", "桃園市桃園區"),
        ("臺中縣豐原市", "臺中市豐原區"),
        ("臺南縣新營市", "臺南市新營區"),
        ("高雄縣鳳山市", "高雄市鳳山區"),
        ("高雄縣三民鄉", "高雄市那瑪夏區"),
        ("台南市西區", "臺南市中西區"),
        ("苗栗縣頭份鎮", "苗栗縣頭份市"),
        ("吳鳳鄉", "嘉義縣阿里山鄉"),
    ],
)
def test_former_names(text: str, name: str) -> None:
    """What was renamed or merged is found under its name of today."""
    assert is_sure_of(text, name)


@pytest.mark.parametrize("pair", SIMPLIFIED.split())
def test_simplified_characters(pair: str) -> None:
    """The same place, for sure, as in the characters of Taiwan."""
    text, name = pair.split("=")
    assert is_sure_of(text, name)


@pytest.mark.parametrize("pair", VARIANTS.split())
def test_other_ways_to_write_a_character(pair: str) -> None:
    """Variants, Japanese forms and habits that never tell two places apart: as good as official."""
    text, name = pair.split("=")
    assert is_sure_of(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Taipei", "臺北市"),
        ("ＴＡＩＰＥＩ", "臺北市"),
        ("Táiběi", "臺北市"),
        ("New Taipei", "新北市"),
        ("Xinyi Dist., Taipei City", "臺北市信義區"),
        ("Banqiao, Taipei", "新北市板橋區"),
        ("weather in Lukang today", "彰化縣鹿港鎮"),
        ("East District, Tainan", "臺南市東區"),
        ("台南 East", "臺南市東區"),
        ("what's the weather like in Hualien?", "花蓮縣"),
        ("Tamsui", "新北市淡水區"),
        ("Danshui", "新北市淡水區"),
        ("Matsu", "連江縣"),
    ],
)
def test_english_names(text: str, name: str) -> None:
    """The official English names are as good as the Chinese ones."""
    if text == "Táiběi":
        assert names(text)[0] == name  # by a slip: the official name is not the pinyin
    else:
        assert is_sure_of(text, name)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("東區", ["新竹市東區", "臺中市東區", "嘉義市東區", "臺南市東區"]),
        ("中山", ["臺北市中山區", "基隆市中山區"]),
        ("信義", ["臺北市信義區", "基隆市信義區", "南投縣信義鄉"]),
        ("信義區", ["臺北市信義區", "基隆市信義區"]),
        ("大安", ["臺北市大安區", "臺中市大安區"]),
        ("西區", ["臺中市西區", "嘉義市西區"]),
        ("新竹", ["新竹市", "新竹縣"]),
        ("嘉義天氣", ["嘉義市", "嘉義縣"]),
        ("Hsinchu", ["新竹市", "新竹縣"]),
        ("Xinyi District", ["臺北市信義區", "基隆市信義區"]),
    ],
)
def test_an_ambiguous_name_is_offered_in_all_its_meanings(text: str, offered: list[str]) -> None:
    """Not sure, complete, and nothing else among them."""
    assert names(text) == offered and not search(text).sure


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("版橋", "新北市板橋區"),
        ("板僑", "新北市板橋區"),
        ("橋板", "新北市板橋區"),
        ("板區", "新北市板橋區"),
        ("中歷", "桃園市中壢區"),
        ("桃圓", "桃園市"),
        ("苗粟", "苗栗縣"),
        ("通宵", "苗栗縣通霄鎮"),
        ("頭分", "苗栗縣頭份市"),
        ("茄定", "高雄市茄萣區"),
        ("新北市扳橋", "新北市板橋區"),
        ("台背市", "臺北市"),
        ("Kaoshiung", "高雄市"),
        ("Banqaio", "新北市板橋區"),
        ("阿里", "嘉義縣阿里山鄉"),
        ("麻里", "臺東縣太麻里鄉"),
        ("台北信", "臺北市信義區"),
        ("台中市淡水", "新北市淡水區"),
        ("永和車站", "新北市永和區"),
        ("新北市永和車站", "新北市永和區"),
        ("中正紀念堂", "臺北市中正區"),
        ("桃園國際機場", "桃園市"),
        ("我朋友家住在很遠很遠的板橋區那裡", "新北市板橋區"),
    ],
)
def test_a_guess_is_offered_first_but_not_taken(text: str, name: str) -> None:
    """Mistyped, half typed or with something else around it: offered, never just assumed."""
    assert names(text)[0] == name and not search(text).sure


@pytest.mark.parametrize("text", ["", " ", "　", "\n", "thank you", *NO_PLACES.split()])
def test_what_is_no_place_is_none(text: str) -> None:
    """Chat, commands, the rest of the world: nothing is found, and nothing is made up."""
    assert search(text).places == () and not search(text).sure


def test_every_nickname_is_sure() -> None:
    """Each of them means one place, and is not in the way of any official name."""
    for name, words in {**nicknames.COUNTIES, **nicknames.TOWNS}.items():
        for word in words.split():
            assert is_sure_of(word, name), word
    for name, words in nicknames.OF_A_COUNTY.items():
        for word in words.split():
            assert is_sure_of(name[:3] + word, name) and name not in names(word)


# ------------------------------------------------------------------------------------- anything

pieces = st.sampled_from(
    [*"台臺北市縣區鄉鎮中山東大安信義新竹的天氣 　，！囧", "Taipei", "District", "嗎"]
)


@given(st.one_of(st.text(), st.lists(pieces, max_size=80).map("".join)))
@example("龘" * 5000)
@example("台北" * 2500)
@example("ﷺ" * 5000)
@example("\ud800\udfff\x00")
@example("a" * 5000)
def test_any_text_has_an_answer(text: str) -> None:
    """No text is an error; at most 13 places, none twice; sure only of one."""
    found = search(text)
    assert len(found.places) == len(set(found.places)) <= MOST == 13
    assert not found.sure or len(found.places) == 1


@given(st.text(max_size=60))
def test_only_the_beginning_of_a_long_text_counts(rubbish: str) -> None:
    """What comes after the first 64 characters changes nothing."""
    text = f"囧{rubbish}".ljust(64, "囧")
    assert search(text) == search(f"{text}臺北市信義區")
    assert names("囧" * 50 + "臺北市信義區") == ["臺北市信義區"]


@given(st.sampled_from(TOWNS), st.sampled_from(["", " ", "、", "　", "\t", "·", "\u200b"]))
def test_spaces_and_punctuation_do_not_matter(town: Place, between: str) -> None:
    """Between any two characters, of any kind."""
    assert is_sure_of(between.join(town.name), town.name)


# ------------------------------------------------------------------------- spelling and likeness


def test_no_name_loses_anything_to_the_words_around_it() -> None:
    """What is taken away from a question is in no name, nor where county and township meet."""
    for town in TOWNS:
        for text in (town.name, f"{town.town}{town.county}", english(town), town.county):
            assert gist(text) == fold(text), text


def test_all_names_stay_different_when_they_are_folded() -> None:
    """One spelling for all ways to write a name, and another one for every other name."""
    assert len({fold(town.name) for town in TOWNS}) == 368
    assert fold("臺北 Ｃｉｔｙ！") == fold("台北city") == "台北city"


def test_alike_is_what_sounds_or_looks_the_same() -> None:
    """版 is 板. The tone matters, so 大家 is not 大甲; zh or z, ing or in does not."""
    assert sounds(fold("版橋")) == sounds(fold("板橋"))
    assert sounds(fold("四林")) == sounds(fold("士林"))
    assert sounds(fold("星竹")) == sounds(fold("新竹"))
    assert sounds(fold("大家")) != sounds(fold("大甲"))
    assert looks(fold("苗粟")) == looks(fold("苗栗"))


@pytest.mark.parametrize(
    ("one", "other", "slip"),
    [
        ("abc", "abd", True), ("abc", "ab", True), ("abc", "bc", True), ("abc", "axbc", True),
        ("abc", "acb", True), ("abc", "bac", True), ("abc", "abc", False), ("abc", "cba", False),
        ("abc", "a", False), ("abc", "axxc", False), ("", "a", True), ("", "", False),
        ("abcd", "badc", False),
    ],
)  # fmt: skip
def test_a_slip_is_one_wrong_missing_needless_or_two_exchanged(
    one: str, other: str, slip: bool
) -> None:
    """One of them, and in both directions."""
    assert is_slip(one, other) is slip and is_slip(other, one) is slip
