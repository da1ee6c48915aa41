"""Landmarks: where they are, how high, and that every usual name finds them."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from apps.weamind.places import atlas
from apps.weamind.places.atlas import by_code, landmarks, locate
from apps.weamind.places.landmarks import Landmark
from apps.weamind.places.search import search
from apps.weamind.places.spelling import fold

ALL = landmarks()
SHARED = ("鯉魚潭", "白沙灣", "動物園", "雪霸", "雪霸國家公園", "玉山國家公園", "長庚",
          "長庚醫院", "榮總")  # fmt: skip
OFF_THE_MAP = {"彭佳嶼", "棉花嶼", "花瓶嶼", "東沙島", "太平島"}


def named(name: str) -> Landmark:
    (one,) = [each for each in ALL if each.place.name == name]
    return one


def names(text: str) -> list[str]:
    return [place.name for place in search(text).places]


# ------------------------------------------------------------------------------------- the data


def test_there_are_hundreds_of_landmarks_with_a_name_and_a_code_of_their_own() -> None:
    """No name and no code is used twice, and no landmark is called like a township or county."""
    assert len(ALL) >= 300
    assert len({each.place.name for each in ALL}) == len({each.place.code for each in ALL})
    official = {place.name for place in atlas.atlas().by_code.values()}
    assert not official & {each.place.name for each in ALL}


def test_a_landmark_is_found_by_its_code() -> None:
    """As townships are: homes and recent queries are kept by code, in eight characters."""
    for each in ALL:
        assert by_code(each.place.code) is each.place and len(each.place.code) <= 8


@pytest.mark.long
@pytest.mark.parametrize("each", ALL, ids=lambda each: each.place.name)
def test_a_landmark_lies_in_its_township(each: Landmark) -> None:
    """The outlines of the townships say so, too: a wrong coordinate is found."""
    place = each.place
    found = locate(place.latitude, place.longitude)
    if place.name in OFF_THE_MAP:
        assert found is None and place.is_off_the_map
    else:
        assert found is not None and not place.is_off_the_map
        assert found.name == place.area and found.code == place.area_code


def test_elevations_are_plausible() -> None:
    """玉山 is the highest; between neighbours there is no cliff of a thousand metres."""
    heights = {each.place.name: each.place.elevation for each in ALL}
    assert all(height is not None and 0 < height <= 3952 for height in heights.values())
    assert max(heights, key=lambda name: heights[name] or 0) == "玉山"
    for one in ALL:
        for other in ALL:
            assert climb(one, other) <= 0.6 * metres(one, other) + 150, (one, other)


def test_plains_and_coasts_are_low() -> None:
    """In counties without mountains nothing is high, nor is what is called a harbour or beach."""
    flat = ("彰化縣", "澎湖縣", "金門縣", "連江縣", "嘉義市", "新竹市")
    for each in ALL:
        height = each.place.elevation or 0
        if each.place.county in flat:
            assert height < 300, each
        if each.place.name.endswith(("漁港", "港", "碼頭", "灣", "濕地")):
            assert height < 60 or each.place.name == "內灣", each


def climb(one: Landmark, other: Landmark) -> float:
    return abs((one.place.elevation or 0) - (other.place.elevation or 0))


def metres(one: Landmark, other: Landmark) -> float:
    north = (one.place.latitude - other.place.latitude) * 111_000
    east = (one.place.longitude - other.place.longitude) * 102_000
    return math.hypot(north, east)


# ------------------------------------------------------------------------------------- the names


@pytest.mark.long
@pytest.mark.parametrize("each", ALL, ids=lambda each: each.place.name)
def test_every_usual_name_finds_it(each: Landmark) -> None:
    """Chinese with 臺 or 台, English, small or capital, with a question around it: for sure, or
    among its namesakes. The township around it is no namesake."""
    for name in each.names:
        for text in (
            name, name.replace("臺", "台"), name.replace("台", "臺"), name.upper(), name.lower(),
            f"{name}天氣", f"明天{name}會下雨嗎？", f"weather in {name}",
        ):  # fmt: skip
            found = search(text)
            assert each.place in found.places, (text, names(text))
            others = {other.code for other in found.places[1:]}
            assert found.sure is (others <= {each.place.town_code}), text


def test_names_that_mean_more_than_one_landmark() -> None:
    """These, and no other: nothing is listed twice by mistake."""
    used = Counter(fold(name) for each in ALL for name in {*map(fold, each.names)})
    shared = {name for name, times in used.items() if times > 1}
    assert shared == {fold(name) for name in SHARED}
    assert names("鯉魚潭") == ["鯉魚潭（花蓮）", "鯉魚潭水庫", "鯉魚潭（埔里）"]


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.place.name)
def test_a_landmark_with_its_county(each: Landmark) -> None:
    """臺中逢甲, 南投縣日月潭: that landmark, or the township that lies around it."""
    place = each.place
    plain = place.name.split("（")[0]
    for text in (place.county + plain, place.county[:-1] + plain):
        for found in search(text).places if search(text).sure else ():
            assert found == place or found.name == place.area, (text, found)


@pytest.mark.parametrize(
    ("text", "area"),
    [
        ("太平山", "宜蘭縣大同鄉"),
        ("杉林溪", "南投縣竹山鎮"),
        ("清水斷崖", "花蓮縣秀林鄉"),
        ("台北101", "臺北市信義區"),
        ("Taipei 101", "臺北市信義區"),
        ("台灣大學", "臺北市大安區"),
        ("成功大學", "臺南市東區"),
        ("中山大學", "高雄市鼓山區"),
        ("中正大學", "嘉義縣民雄鄉"),
        ("和平島", "基隆市中正區"),
        ("成功嶺", "臺中市烏日區"),
        ("東沙", "高雄市旗津區"),
        ("Kenting", "屏東縣恆春鎮"),
        ("Sun Moon Lake", "南投縣魚池鄉"),
        ("Jiufen", "新北市瑞芳區"),
    ],
)
def test_what_sounds_like_a_township_elsewhere(text: str, area: str) -> None:
    """太平山 is not in 太平區: the landmark is meant, for sure."""
    found = search(text)
    assert found.sure and found.places[0].area == area


def test_alishan_is_a_township_and_a_forest() -> None:
    """The forest is meant, for the township is around it; beside its county, the township."""
    assert names("阿里山") == ["阿里山森林遊樂區", "嘉義縣阿里山鄉"] and search("阿里山").sure
    assert names("公館") == ["公館商圈", "苗栗縣公館鄉"] and not search("公館").sure
    assert names("嘉義縣阿里山") == ["嘉義縣阿里山鄉"] and search("嘉義縣阿里山").sure
