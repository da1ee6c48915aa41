"""The map of Taiwan: which townships there are, and in which of them a point lies."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.weamind.places import atlas
from apps.weamind.places.atlas import by_code, counties, english, locate, towns_of
from apps.weamind.places.outline import edges, holds, metres, read_line, write_line
from apps.weamind.places.place import Place
from tools.make_places import deepest, rounded

HOW_MANY = {
    "臺北市": 12, "新北市": 29, "基隆市": 7, "桃園市": 13, "新竹市": 3, "新竹縣": 13, "苗栗縣": 18,
    "臺中市": 29, "彰化縣": 26, "南投縣": 13, "雲林縣": 20, "嘉義市": 2, "嘉義縣": 18, "臺南市": 37,
    "高雄市": 38, "屏東縣": 33, "宜蘭縣": 12, "花蓮縣": 13, "臺東縣": 16, "澎湖縣": 6, "金門縣": 6,
    "連江縣": 4,
}  # fmt: skip

KNOWN = [
    ("臺北市信義區", 25.0340, 121.5645, "Taipei 101"),
    ("臺北市中正區", 25.0478, 121.5170, "Taipei Main Station"),
    ("臺北市中正區", 25.0350, 121.5211, "Chiang Kai-shek Memorial Hall"),
    ("臺北市萬華區", 25.0421, 121.5076, "the Red House in Ximending"),
    ("臺北市萬華區", 25.0372, 121.4999, "Longshan Temple"),
    ("臺北市大安區", 25.0298, 121.5357, "Da'an Forest Park"),
    ("臺北市士林區", 25.1023, 121.5485, "National Palace Museum"),
    ("臺北市文山區", 24.9984, 121.5810, "Taipei Zoo"),
    ("臺北市松山區", 25.0697, 121.5525, "Songshan Airport"),
    ("臺北市南港區", 25.0520, 121.6170, "Nangang Station"),
    ("臺北市北投區", 25.1370, 121.5063, "Beitou's hot springs"),
    ("新北市板橋區", 25.0143, 121.4640, "Banqiao Station"),
    ("新北市瑞芳區", 25.1093, 121.8445, "Jiufen"),
    ("新北市淡水區", 25.1703, 121.4396, "Tamsui Old Street"),
    ("新北市萬里區", 25.2065, 121.6905, "Yehliu"),
    ("新北市石門區", 25.2922, 121.5634, "Cape Fugui, the northernmost"),
    ("新北市烏來區", 24.8657, 121.5500, "Wulai"),
    ("基隆市仁愛區", 25.1319, 121.7395, "Keelung Station"),
    ("基隆市中正區", 25.1600, 121.7640, "Heping Island"),
    ("桃園市大園區", 25.0797, 121.2342, "Taoyuan Airport"),
    ("桃園市中壢區", 24.9536, 121.2256, "Zhongli Station"),
    ("桃園市桃園區", 24.9892, 121.3136, "Taoyuan Station"),
    ("新竹市東區", 24.8016, 120.9716, "Hsinchu Station"),
    ("新竹市北區", 24.8041, 120.9655, "Hsinchu's City God Temple"),
    ("新竹縣竹北市", 24.8080, 121.0402, "the high speed rail's Hsinchu"),
    ("新竹縣尖石鄉", 24.7072, 121.2010, "Jianshi"),
    ("苗栗縣頭份市", 24.6869, 120.9050, "Toufen"),
    ("苗栗縣通霄鎮", 24.4930, 120.6790, "Tongxiao"),
    ("臺中市西屯區", 24.1787, 120.6466, "Feng Chia Night Market"),
    ("臺中市大甲區", 24.3490, 120.6280, "Dajia's Mazu temple"),
    ("臺中市和平區", 24.2560, 121.2500, "Lishan"),
    ("彰化縣彰化市", 24.0817, 120.5385, "Changhua Station"),
    ("彰化縣鹿港鎮", 24.0567, 120.4350, "Lukang Old Street"),
    ("南投縣魚池鄉", 23.8655, 120.9160, "Sun Moon Lake"),
    ("南投縣埔里鎮", 23.9660, 120.9670, "Puli"),
    ("南投縣仁愛鄉", 24.0580, 121.1630, "Cingjing"),
    ("雲林縣斗六市", 23.7117, 120.5410, "Douliu Station"),
    ("雲林縣北港鎮", 23.5680, 120.3040, "Beigang's Mazu temple"),
    ("嘉義市西區", 23.4791, 120.4412, "Chiayi Station"),
    ("嘉義市東區", 23.4823, 120.4540, "Chiayi Park"),
    ("嘉義縣阿里山鄉", 23.5100, 120.8020, "Alishan Station"),
    ("嘉義縣太保市", 23.4590, 120.3240, "the high speed rail's Chiayi"),
    ("臺南市東區", 22.9971, 120.2128, "Tainan Station"),
    ("臺南市中西區", 22.9975, 120.2025, "Chihkan Tower"),
    ("臺南市安平區", 23.0015, 120.1606, "Fort Zeelandia"),
    ("臺南市七股區", 23.1180, 120.0830, "the lagoon of Qigu"),
    ("高雄市三民區", 22.6394, 120.3020, "Kaohsiung Station"),
    ("高雄市左營區", 22.6870, 120.3075, "Zuoying Station"),
    ("高雄市苓雅區", 22.6117, 120.3003, "85 Sky Tower"),
    ("高雄市鳳山區", 22.6260, 120.3560, "Fengshan"),
    ("高雄市那瑪夏區", 23.2390, 120.6960, "Namaxia"),
    ("屏東縣屏東市", 22.6690, 120.4860, "Pingtung Station"),
    ("屏東縣恆春鎮", 21.9480, 120.7980, "Kenting"),
    ("屏東縣恆春鎮", 21.9022, 120.8530, "Cape Eluanbi, the southernmost"),
    ("宜蘭縣宜蘭市", 24.7546, 121.7580, "Yilan Station"),
    ("宜蘭縣羅東鎮", 24.6770, 121.7700, "Luodong"),
    ("花蓮縣花蓮市", 23.9930, 121.6010, "Hualien Station"),
    ("花蓮縣秀林鄉", 24.1580, 121.6220, "the gate of Taroko"),
    ("花蓮縣玉里鎮", 23.3310, 121.3130, "Yuli"),
    ("臺東縣臺東市", 22.7550, 121.1500, "Taitung"),
    ("臺東縣池上鄉", 23.1200, 121.2100, "Chishang"),
    ("澎湖縣馬公市", 23.5650, 119.5660, "Magong"),
    ("金門縣金城鎮", 24.4320, 118.3180, "Jincheng"),
]

ISLANDS = [
    ("臺東縣綠島鄉", 22.6620, 121.4900, "綠島"),
    ("臺東縣蘭嶼鄉", 22.0450, 121.5480, "蘭嶼"),
    ("臺東縣蘭嶼鄉", 21.9490, 121.6100, "小蘭嶼"),
    ("屏東縣琉球鄉", 22.3420, 120.3760, "小琉球"),
    ("宜蘭縣頭城鎮", 24.8427, 121.9510, "龜山島"),
    ("高雄市旗津區", 22.6130, 120.2680, "旗津"),
    ("澎湖縣七美鄉", 23.2070, 119.4290, "七美"),
    ("澎湖縣望安鄉", 23.3640, 119.5010, "望安"),
    ("澎湖縣白沙鄉", 23.7400, 119.6090, "吉貝"),
    ("澎湖縣西嶼鄉", 23.6000, 119.5130, "西嶼"),
    ("金門縣烈嶼鄉", 24.4290, 118.2400, "烈嶼"),
    ("金門縣烈嶼鄉", 24.3900, 118.1660, "大膽"),
    ("金門縣烏坵鄉", 24.9910, 119.4530, "烏坵"),
    ("連江縣南竿鄉", 26.1510, 119.9390, "南竿"),
    ("連江縣北竿鄉", 26.2250, 119.9980, "北竿"),
    ("連江縣東引鄉", 26.3680, 120.4890, "東引"),
    ("連江縣莒光鄉", 25.9740, 119.9360, "西莒"),
    ("連江縣莒光鄉", 25.9580, 119.9760, "東莒"),
]

BORDERS = [
    ("臺北市中正區", 25.0220, 121.5195, "新北市永和區", 25.0130, 121.5140),  # the Xindian
    ("臺北市大同區", 25.0640, 121.5110, "新北市三重區", 25.0650, 121.5000),  # the Tamsui
    ("新北市淡水區", 25.1690, 121.4400, "新北市八里區", 25.1560, 121.4330),  # its mouth
    ("新竹市東區", 24.7961, 120.9967, "新竹縣竹北市", 24.8140, 121.0290),  # the Touqian
    ("臺中市大肚區", 24.1530, 120.5420, "彰化縣彰化市", 24.1030, 120.5470),  # the Dadu
    ("高雄市大樹區", 22.6560, 120.4320, "屏東縣屏東市", 22.6680, 120.4640),  # the Gaoping
    ("嘉義市西區", 23.4750, 120.4300, "嘉義縣水上鄉", 23.4340, 120.4000),
    ("臺東縣太麻里鄉", 22.6050, 121.0050, "臺東縣金峰鄉", 22.6055, 120.9970),  # an exclave
]

ABROAD = [
    (24.4480, 118.0890, "Xiamen"),
    (24.4466, 118.0622, "Gulangyu"),
    (24.4300, 118.1250, "the south of Xiamen, which looks at Kinmen"),
    (24.4800, 118.1900, "Xiamen's ferry to Kinmen"),
    (24.5560, 118.3170, "Dadeng, north of Kinmen"),
    (24.5540, 118.3870, "Xiaodeng"),
    (24.5494, 118.4017, "Jiaoyu, less than two kilometres from Kinmen"),
    (24.3350, 118.1400, "Wuyu, south of 二膽"),
    (24.3700, 118.1180, "Qingyu, west of 二膽"),
    (26.0750, 119.2960, "Fuzhou"),
    (25.5000, 119.7900, "Pingtan"),
    (26.2600, 119.6600, "the mainland behind Matsu"),
    (25.0670, 119.1300, "Meizhou, behind 烏坵"),
    (24.8740, 118.6757, "Quanzhou"),
    (24.4550, 122.9900, "Yonaguni"),
    (20.4480, 121.9700, "Batanes"),
    (22.3190, 114.1690, "Hong Kong"),
    (35.6812, 139.7671, "Tokyo"),
    (24.5000, 119.6000, "the strait"),
    (23.5000, 122.5000, "the Pacific"),
    (21.0000, 120.5000, "the Bashi Channel"),
    (0.0, 0.0, "the Gulf of Guinea"),
    (20.7000, 116.7200, "東沙島, which is not on the map"),
    (10.3770, 114.3660, "太平島, which is not on the map"),
    (25.6280, 122.0790, "彭佳嶼, which is not on the map"),
]


def name_at(latitude: float, longitude: float) -> str | None:
    place = locate(latitude, longitude)
    return place and place.name


# -------------------------------------------------------------------------------- what there is


def test_there_are_22_counties_and_368_townships() -> None:
    """All of them, in each county as many as it has, each with its own code."""
    towns = [town for county in counties() for town in towns_of(county.county)]
    assert {county.county: len(towns_of(county.county)) for county in counties()} == HOW_MANY
    assert len(towns) == len({town.name for town in towns}) == len({town.code for town in towns})
    assert len(towns) == 368


def test_names_are_spelt_with_the_official_character() -> None:
    """臺, never 台; a county ends in 市 or 縣, a township in 市, 鎮, 鄉 or 區."""
    for place in atlas.atlas().by_code.values():
        assert "台" not in place.name and "台" not in english(place)
        assert place.county[-1] in "市縣" and (not place.town or place.town[-1] in "市鎮鄉區")
        assert place.name.isalpha() and not place.name.isascii() and english(place).isascii()


def test_eight_names_of_townships_mean_more_than_one() -> None:
    """Those that are known to: nothing is missing and nothing is doubled."""
    names = Counter(town.town for town in atlas.atlas().towns)
    assert {name: count for name, count in names.items() if count > 1} == {
        "東區": 4, "北區": 3, "西區": 2, "南區": 2,
        "信義區": 2, "中山區": 2, "大安區": 2, "中正區": 2,
    }  # fmt: skip


def test_codes_are_those_of_the_government() -> None:
    """Five digits for a county, eight for its townships, which begin with the same five."""
    assert by_code("65000010") == locate(25.0143, 121.4640)
    assert by_code("10017040") == locate(25.1319, 121.7395)
    assert [by_code(code) for code in ("", "63", "99999", "99999999", "臺北市")] == [None] * 5
    for county in counties():
        assert len(county.code) == 5 and by_code(county.code) is county
        for town in towns_of(county.county):
            assert len(town.code) == 8 and town.code.startswith(county.code)
            assert by_code(town.code) is town and town.county == county.county


def test_no_such_county_has_no_townships() -> None:
    """A name that is not one is an empty answer, not an error."""
    assert [towns_of(name) for name in ("", "臺北", "台北市", "宜蘭市", "東京都")] == [()] * 5


def test_every_point_lies_in_its_place() -> None:
    """A township's point is found in it; a county's in one of its townships."""
    for place in atlas.atlas().by_code.values():
        found = locate(place.latitude, place.longitude)
        assert found and found.county == place.county
        assert not place.town or found == place


def test_a_county_is_where_its_government_is() -> None:
    """Its point is that of the township where most things happen, not of a mountain."""
    seats = {county.county: name_at(county.latitude, county.longitude) for county in counties()}
    assert seats["臺中市"] == "臺中市西屯區"
    assert seats["花蓮縣"] == "花蓮縣花蓮市"
    assert seats["南投縣"] == "南投縣南投市"
    assert seats["連江縣"] == "連江縣南竿鄉"


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"),
    [
        ("花蓮縣秀林鄉", 24.12, 121.62),
        ("臺中市和平區", 24.17, 120.88),
        ("新竹縣尖石鄉", 24.70, 121.20),
        ("南投縣信義鄉", 23.70, 120.85),
        ("宜蘭縣南澳鄉", 24.46, 121.80),
    ],
)
def test_a_mountain_township_is_where_its_people_are(
    name: str, latitude: float, longitude: float
) -> None:
    """Its point is less than nine kilometres from its office, not in the high middle."""
    (town,) = [town for town in atlas.atlas().towns if town.name == name]
    assert math.hypot((town.latitude - latitude) * 111, (town.longitude - longitude) * 101) < 9


# ----------------------------------------------------------------------------------- where it is


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"), [row[:3] for row in KNOWN], ids=[row[3] for row in KNOWN]
)
def test_landmarks_lie_in_their_townships(name: str, latitude: float, longitude: float) -> None:
    """Well-known landmarks lie in the township that people expect."""
    assert name_at(latitude, longitude) == name


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"), [row[:3] for row in ISLANDS], ids=[row[3] for row in ISLANDS]
)
def test_islands_belong_to_their_townships(name: str, latitude: float, longitude: float) -> None:
    """A township of several islands is found on each of them."""
    assert name_at(latitude, longitude) == name


def test_the_known_points_are_in_all_counties() -> None:
    """The points above leave no county out."""
    assert {name[:3] for name, *_ in KNOWN + ISLANDS} == set(HOW_MANY)


@pytest.mark.parametrize("row", BORDERS, ids=lambda row: f"{row[0]}–{row[3]}")
def test_a_border_has_two_sides(row: tuple[str, float, float, str, float, float]) -> None:
    """Other names on the other side of a river, a street, or the edge of an exclave."""
    here, latitude, longitude, there, latitude_there, longitude_there = row
    assert name_at(latitude, longitude) == here
    assert name_at(latitude_there, longitude_there) == there


@pytest.mark.parametrize(
    ("latitude", "longitude"), [row[:2] for row in ABROAD], ids=[row[2] for row in ABROAD]
)
def test_abroad_and_at_sea_there_is_no_township(latitude: float, longitude: float) -> None:
    """No answer, however near Kinmen and Matsu are."""
    assert locate(latitude, longitude) is None


@pytest.mark.parametrize(
    ("name", "latitude", "longitude"),
    [
        ("新北市淡水區", 25.1835, 121.4085),  # off Fisherman's Wharf
        ("基隆市", 25.1560, 121.7520),  # the mouth of the harbour
        ("屏東縣恆春鎮", 21.9560, 120.7620),  # the bay of Nanwan
        ("花蓮縣花蓮市", 23.9760, 121.6260),  # the harbour
        ("宜蘭縣蘇澳鎮", 24.5950, 121.8720),
        ("金門縣金城鎮", 24.4140, 118.2850),  # Shuitou pier
    ],
)
def test_a_harbour_or_a_beach_belongs_to_the_coast(
    name: str, latitude: float, longitude: float
) -> None:
    """A phone on a pier or in the surf is in the nearest township, not nowhere."""
    found = name_at(latitude, longitude)
    assert found and found.startswith(name)


def test_the_coast_reaches_a_kilometre_and_near_fujian_half_of_it() -> None:
    """Due east of 蘭嶼 it ends after 1000 m, due east of 東引 after 500 m."""
    assert 900 <= reach_to_the_east(22.0450, 121.5480) <= 1000
    assert 400 <= reach_to_the_east(26.3680, 120.4890) <= 500


def reach_to_the_east(latitude: float, longitude: float) -> float:
    """How many metres east of the last point on land a township is still found."""
    town = locate(latitude, longitude)
    assert town
    sides = edges(outline(town))
    east = longitude * 10_000
    while locate(latitude, east / 10_000):
        east += 1
    return metres(sides, east - 1, latitude * 10_000)


def outline(town: Place) -> list[list[tuple[int, int]]]:
    """The rings of a township, read from the file without the help of the atlas."""
    data = json.loads(atlas._DATA.read_text("utf-8"))
    (borders,) = [row[-1] for row in data["towns"] if row[0] == town.code]
    lines = [read_line(text) for text in data["lines"]]
    rings: list[list[tuple[int, int]]] = []
    for border in borders:
        pieces = [lines[n] if n >= 0 else lines[~n][::-1] for n in border]
        rings.append([point for piece in pieces for point in piece])
    return rings


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e308, -91, 181, 10**400])
def test_what_is_no_coordinate_is_nowhere(odd: float) -> None:
    """NaN, infinities and what lies off the globe are answered like the sea, not with an error."""
    assert locate(odd, 121.5) is None
    assert locate(25.0, odd) is None
    assert locate(odd, odd) is None


@given(st.floats(), st.floats())
def test_any_two_numbers_are_somewhere_or_nowhere(latitude: float, longitude: float) -> None:
    """No pair of numbers is an error."""
    found = locate(latitude, longitude)
    assert found is None or (21 < latitude < 27 and 118 < longitude < 123)


@given(st.floats(21.8, 25.4), st.floats(120, 122.1))
def test_no_point_lies_in_two_townships(latitude: float, longitude: float) -> None:
    """Neighbours share their border: what is in one township is in no other."""
    inside = [
        code for code, box in atlas.atlas()._outlines.items() if box.holds(
            longitude * 10_000, latitude * 10_000
        )
    ]  # fmt: skip
    assert len(inside) <= 1
    found = locate(latitude, longitude)
    assert not inside or (found and found.code == inside[0])


def test_nothing_lies_between_townships() -> None:
    """Inland there is no gap: on a line across the island every step is in some township."""
    path = [(23.0 + step / 2000, 120.35 + step / 2600) for step in range(2000)]
    assert all(locate(latitude, longitude) for latitude, longitude in path)


def test_the_map_is_read_when_it_is_asked_for() -> None:
    """Importing the places reads no file."""
    code = (
        "from apps.weamind.places import atlas, search\n"
        "assert not atlas.atlas.cache_info().currsize\n"
        "atlas.counties(); print(atlas.atlas.cache_info().currsize)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["1"]


# --------------------------------------------------------------------------------------- outlines

steps = st.integers(-1_800_000, 1_800_000)
SQUARE = [(0, 0), (10, 0), (10, 10), (0, 10), (0, 0)]
HOLE = [(4, 4), (6, 4), (6, 6), (4, 6), (4, 4)]
ISLAND = [(20, 0), (22, 0), (22, 2), (20, 2), (20, 0)]


@given(st.lists(st.tuples(steps, steps)))
def test_a_line_is_read_as_it_was_written(points: list[tuple[int, int]]) -> None:
    """Text and back is the same line, anywhere on the globe."""
    assert read_line(write_line(points)) == points


@pytest.mark.parametrize(
    ("x", "y", "within"),
    [(1, 1, True), (5, 5, False), (5, 1, True), (21, 1, True), (15, 1, False), (-1, 5, False)],
)
def test_holes_are_out_and_islands_in(x: float, y: float, within: bool) -> None:
    """A point in a hole is outside, one on a second polygon inside."""
    assert holds(edges([SQUARE, HOLE, ISLAND]), x, y) is within


def test_the_deepest_point_of_a_bay_is_on_land() -> None:
    """Where the centre of gravity would be in the water, the point is in the thickest part."""
    bay = [(0, 0), (900, 0), (900, 200), (100, 200), (100, 700), (900, 700), (900, 800), (0, 800)]
    x, y = deepest([[*bay, bay[0]]])
    assert 90 <= x <= 810 and 90 <= y <= 110


def test_a_rounded_line_keeps_its_ends_and_its_corners() -> None:
    """Points that are doubled or on the way are left out; one that turns back is not."""
    line = [(0.2, 0), (1.1, 0), (1.3, 0.1), (2, 0), (3, 0), (3, 2), (3, 1), (3.4, 1)]
    assert rounded(line) == [(0, 0), (3, 0), (3, 2), (3, 1)]


def test_distance_is_to_the_nearest_edge_in_metres() -> None:
    """A step northwards is a ten-thousandth of a degree; eastwards it is shorter, far from home."""
    assert metres(edges([SQUARE]), 5, 20) == pytest.approx(111, rel=0.01)
    assert metres(edges([SQUARE]), 5, 9) == pytest.approx(11.1, rel=0.01)
    far = [(x, y + 600_000) for x, y in SQUARE]
    assert metres(edges([far]), 20, 600_005) == pytest.approx(55.5, rel=0.01)
    assert metres([], 0, 0) == math.inf
