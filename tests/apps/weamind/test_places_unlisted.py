"""What people write that no list here has: found right, asked about, or honestly not found.

Schools, hospitals, rivers, streets, stations, night markets, hot springs, slips and the rest of the
world. Each line: what is written, and the townships that are right (nothing: it is not in Taiwan,
or not one place). A sure answer must be right. An offer is a question, and must not be the township
of the same name somewhere else.
"""

from __future__ import annotations

import pytest

from apps.weamind.places.search import search

UNLISTED = """
建國中學 臺北市中正區
建中 臺北市中正區
北一女 臺北市中正區
成功高中 臺北市中正區
中山女高 臺北市中山區
中正高中 臺北市北投區 高雄市苓雅區
復興高中 臺北市北投區
和平高中 臺北市大安區
松山高中 臺北市信義區 臺北市松山區
板橋高中 新北市板橋區
信義國小
仁愛國小
中山國小
光復國小
三民國小
太平國小
和平國中
大安國中
新興高中
南投高中 南投縣 南投縣南投市
鳳山高中 高雄市鳳山區
台南一中 臺南市 臺南市東區
雄中 高雄市三民區
仁愛醫院
和平醫院
榮總 臺北市北投區 臺中市西屯區 高雄市左營區
馬偕醫院
奇美醫院 臺南市永康區
大甲溪
大安溪
濁水溪
淡水河
高屏溪
新店溪
清水溪
太平溪
太平湖
杉林湖
清水崖 花蓮縣秀林鄉
清水灣
信義路
中山北路
忠孝東路
仁愛路四段
和平東路
三民路
中正路
成功路
光復路
中壢夜市 桃園市中壢區
輔大夜市 新北市新莊區 新北市泰山區
豐原廟東夜市 臺中市豐原區
旱溪夜市 臺中市東區
大東夜市 臺南市東區
武聖夜市 臺南市中西區
樹林夜市 新北市樹林區
凱旋夜市 高雄市前鎮區
自強夜市 花蓮縣花蓮市
金山溫泉 新北市金山區
萬里溫泉 新北市萬里區
馬槽溫泉 臺北市北投區
員山溫泉 宜蘭縣員山鄉
旭海溫泉 屏東縣牡丹鄉
不老溫泉 高雄市六龜區
春陽溫泉 南投縣仁愛鄉
紅葉溫泉 花蓮縣萬榮鄉
獨立山 嘉義縣竹崎鄉
筆架山 新北市石碇區
皇帝殿 新北市石碇區
鳶山 新北市三峽區
仙跡岩 臺北市文山區
劍潭山 臺北市士林區 臺北市中山區
獅頭山公園 新北市新店區 苗栗縣南庄鄉
大坪林 新北市新店區
大橋頭 臺北市大同區
小碧潭 新北市新店區
古亭 臺北市中正區
永春 臺北市信義區
先嗇宮 新北市三重區
蘆洲站 新北市蘆洲區
左營站 高雄市左營區
美麗島 高雄市新興區
凹子底 高雄市鼓山區
成功車站 彰化縣彰化市
和平車站 花蓮縣秀林鄉
三民車站 花蓮縣玉里鎮
追分 臺中市大肚區
三姓橋 新竹市香山區
隆田 臺南市官田區
林鳳營 臺南市六甲區
九曲堂 高雄市大樹區
清淨農場 南投縣仁愛鄉
高美溼地 臺中市清水區
日月談 南投縣魚池鄉
合歡三 南投縣仁愛鄉
赤坎樓 臺南市中西區
斯馬庫司 新竹縣尖石鄉
內湖科學園區 臺北市內湖區
玉山銀行
十分感謝
成大事者
富士山
黃山
北京大學
東京迪士尼
Tokyo_Disneyland
Mount_Fuji
和平紀念公園
"""
ROWS = [line.split() for line in UNLISTED.splitlines() if line]
QUERIES = [(text.replace("_", " "), right) for text, *right in ROWS]


def test_there_are_a_hundred_of_them() -> None:
    """And none of them is a name that a list has."""
    assert len({text for text, _ in QUERIES}) >= 100


@pytest.mark.parametrize(("text", "right"), QUERIES, ids=lambda value: str(value))
def test_never_the_wrong_place(text: str, right: list[str]) -> None:
    """Right, a question about the right one, or nothing."""
    found = search(text)
    assert not found.sure or found.places[0].area in right
    assert all(place.area in right for place in found.places)
