"""Parts of Taiwan without their own forecast, and the counties that people choose from."""

from ..places import atlas
from ..places.place import Place
from ..places.spelling import fold

_COUNTIES = {
    "北部 北台灣": "臺北市 新北市 基隆市 桃園市 新竹市 新竹縣 宜蘭縣",
    "中部 中台灣": "臺中市 苗栗縣 彰化縣 南投縣 雲林縣",
    "南部 南台灣": "臺南市 高雄市 嘉義市 嘉義縣 屏東縣",
    "東部 東台灣 花東 東海岸": "花蓮縣 臺東縣 宜蘭縣",
    "離島 外島": "澎湖縣 金門縣 連江縣",
    "台灣 全台 全台灣 全國 各地 全省": (
        "臺北市 新北市 桃園市 臺中市 臺南市 高雄市 宜蘭縣 花蓮縣 臺東縣"
    ),
    "雙北": "臺北市 新北市",
    "桃竹苗": "桃園市 新竹市 新竹縣 苗栗縣",
    "中彰投": "臺中市 彰化縣 南投縣",
    "雲嘉南": "雲林縣 嘉義市 嘉義縣 臺南市",
    "高屏": "高雄市 屏東縣",
    "北北基": "臺北市 新北市 基隆市",
}
_BY_NAME = {
    fold(name): counties.split() for names, counties in _COUNTIES.items() for name in names.split()
}


def region(text: str) -> tuple[Place, ...]:
    """The counties of the part that *text* names; empty: it names none."""
    names = _BY_NAME.get(fold(text), [])
    return tuple(place for place in atlas.counties() if place.name in names)
