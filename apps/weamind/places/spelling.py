"""One spelling for everything that people write: what is left can be compared letter by letter.

`fold` makes 臺 and 台, traditional and simplified, wide and narrow, capital and small, accented and
plain the same, and leaves letters and digits only. `gist` also takes away what is said around a
place: 請問, 明天, 的天氣, 會下雨嗎. Both are made for the names of Taiwan: no name loses any.
"""

import re
from collections.abc import Iterable
from unicodedata import normalize

LONGEST = 64
"""Only that many characters are read: the longest address with a question fits in it."""

_ASKING = "氣預報會嗎請問現這週禮還沒麼樣況機濕溫熱傘帶陽風訴說幫處幾尋點訊個畫時從體詢當狀"
_SIMPLY_ASKING = "气预报会吗请问现这周礼还没么样况机湿温热伞带阳风诉说帮处几寻点讯个画时从体询当状"
"""The characters of what is asked, traditional and simplified, in the same order."""
_TRADITIONAL = str.maketrans(
    f"{_SIMPLY_ASKING}线质凉冻适后觉该気晩",
    f"{_ASKING}線質涼凍適後覺該氣晚",
)

# Traditional above, simplified below: the characters of all names, then those said around them.
# The last line of each is for other ways to write the same: variants, Japanese, habit.
_SAME = str.maketrans(
    "來內勢區員國圍園壇壢壯壽學寧寶將岡島峽崙嶼巒庫廟彌後復恆愛東棲楊榮樂樹橋橫歸滿濃濱灣烏營獅瑪"
    "結綠線縣羅義腳臺興莊華萬蓮蘆蘇蘭裡觀豐貢車軍連達邊鄉銅鎮鑼長門間關雙雲霧頂頭館馬魚鳥鳳鶯鹽麥"
    "龍龜"
    "颱閣鵝鑾柵吳墾魯貝"
    f"{_ASKING}"
    "裏峯崘洲莿嵋塩豊県関楽辺浜竜亀覌",
    "来内势区员国围园坛坜壮寿学宁宝将冈岛峡仑屿峦库庙弥后复恒爱东栖杨荣乐树桥横归满浓滨湾乌营狮玛"
    "结绿线县罗义脚台兴庄华万莲芦苏兰里观丰贡车军连达边乡铜镇锣长门间关双云雾顶头馆马鱼鸟凤莺盐麦"
    "龙龟"
    "台阁鹅銮栅吴垦鲁贝"
    f"{_SIMPLY_ASKING}"
    "里峰仑州刺眉盐丰县关乐边滨龙龟观",
)

_AROUND = """
中華民國 臺灣省 臺灣
天氣預報 天氣狀況 天氣如何 天氣 氣象預報 氣象 預報 氣溫 溫度 濕度 體感 降雨機率 降雨 雨量 紫外線
會不會下雨 會下雨 有沒有下雨 有下雨 下雨 帶傘 雨傘 冷不冷 熱不熱 會不會 冷嗎 熱嗎 出太陽 颱風
如何 怎麼樣 怎樣 什麼 多少 幾度
大後天 今天 今日 今晚 今早 明天 明日 明晚 明早 後天 現在 目前 待會 等等 等一下 這幾天
這週末 週末 這週 本週 下週 一週 這禮拜 下禮拜 早上 上午 中午 下午 傍晚 晚上 凌晨 半夜 未來
請問 請幫我 幫我 我想知道 想知道 我想 我要 想要 可以 查詢 查一下 查看 搜尋 看一下 告訴我
我住在 我家在 我在 住在 人在 想去 要去 附近 一帶 地區 當地 那邊 這邊 那裡 這裡
的 在 去 到 查 找 看 嗎 呢 啊 吧 喔 哦 呀 啦 耶 了 是 有 沒 會 要 想 我 你 您 請 跟
"""

_ENGLISH_AROUND = """
weather forecast temperature rain rainy raining today tomorrow tonight now in at the of for is it
will be what whats how hows s like please taiwan roc
"""


def _any_of(words: str) -> str:
    """A pattern for one of *words*, the longest that fits."""
    return "|".join(sorted(words.translate(_SAME).split(), key=len, reverse=True))


_AROUND_IT = re.compile(_any_of(_AROUND))
_ENGLISH_AROUND_IT = re.compile(rf"(?<![a-z])(?:{_any_of(_ENGLISH_AROUND)})(?![a-z])")


def fold(text: str) -> str:
    """The one spelling of *text*; only its beginning, if it is long."""
    return _letters(_plain(text)).translate(_SAME)


def traditional(text: str) -> str:
    """*text* with the characters of a question as Taiwan writes them; others stay as they are."""
    return text.translate(_TRADITIONAL)


def gist(text: str, *, keep: Iterable[str] = ()) -> str:
    """The one spelling of *text* without the words that people put around a place.

    The first folded name in *keep* that occurs loses none: 臺灣 in 臺灣大學 is no such word.
    """
    said = _letters(_ENGLISH_AROUND_IT.sub(" ", _plain(text))).translate(_SAME)
    for name in keep:
        before, found, after = said.partition(name)
        if found:
            return _AROUND_IT.sub("", before) + name + _AROUND_IT.sub("", after)
    return _AROUND_IT.sub("", said)


def _plain(text: str) -> str:
    """Split widths and accents off, into separate characters that are not letters."""
    return normalize("NFKD", text.strip()[:LONGEST]).casefold()[:LONGEST]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))
