"""What is asked about the weather: rain, a jacket, the laundry, and for which time.

Pure: no I/O.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from .when import When, find_when

Topic = Literal[
    "weather",
    "rain",
    "thunder",
    "laundry",
    "clothes",
    "short sleeves",
    "cold",
    "heat",
    "highest",
    "lowest",
    "temperature",
    "humidity",
    "uv",
    "air",
    "typhoon",
    "wind",
    "waves",
    "closure",
    "snow",
    "sunrise",
    "sun",
    "outing",
]

OF_TODAY: frozenset[Topic] = frozenset({"uv", "air", "typhoon", "sunrise", "closure"})
"""What is asked about today, whatever day was talked about before."""
_VERY = "很|真|真的|超|超級|好|有夠|這麼|那麼|還|蠻|滿|太|不太|不是很"
_FAIR = "好|不錯|穩定|差|糟|爛|棒|怪|不好"
_WORDS: tuple[tuple[Topic, str], ...] = (
    (
        "closure",
        r"(?:會不會|會|有沒有|有|要不要|要|是否|宣布)*(?:停班停課|停班|停課|(?:放|有)?颱風假)"
        r"|(?:會不會|會|有沒有|有)放假|放假(?=[嗎沒?]|$)"
        r"|(?:要不要|還要|還用|需要|要|用)(?:上班|上課|上學)(?=[嗎?]|$)",
    ),
    (
        "typhoon",
        r"(?:有沒有|會不會有?|會有|有)?(?:颱風|臺風|台風)(?:[會要快]*來|會?登陸|動態|消息|"
        r"天)?(?:了)?|(?:有什麼|有沒有|有)?(?:發[布佈])?(?:大雨|豪雨|低溫|強風|高溫|天氣)?(?:警特報|警報|特報)|typhoon",
    ),
    (
        "air",
        r"空氣品質|空氣質量|空氣(?:好不好|好|差|髒|如何)|空[氣汙污]+染?|aqi|pm\s*2\.?5|"
        r"霾(?:害)?|air quality",
    ),
    (
        "uv",
        r"紫外線(?:指數|會|很|強|高|大|不)*|紫外线|(?:會不會|會|要不要|要|需要)?(?:擦)?防曬|曬[傷黑]|"
        r"(?<![a-z])uv(?![a-z])",
    ),
    (
        "laundry",
        r"(?:適合|可以|能不能|能|可不可以|方便)?(?:洗|曬|晒|晾)(?:得乾)?(?:個|"
        r"一下)?(?:衣服|衣|棉被|被子|床單|鞋子?|車)(?:會乾)?"
        r"|曬得乾|laundry",
    ),
    (
        "thunder",
        r"(?:會不會|會|有沒有|有|可能)*(?:打雷|雷聲|閃電|落雷|雷雨(?!衣))|thunder(?:storm)?s?|雷が?鳴",
    ),
    (
        "rain",
        r"(?:會不會|要不要|需不需要|不用|不必|需要|要|該|用|有沒有|會|有|可能)*(?:帶|拿|撐|用|準備|"
        r"穿)?(?:雨傘|雨衣|傘|伞)"
        r"|(?:會|沒有|有|在|還在|還會|要|可能|開始|變|快|不)*(?:下|落)(?:大|小|暴|"
        r"豪)?雨(?:機率|天)?(?:了沒|了|無)?"
        r"|降雨(?:機率|量)?|雨量|(?:會不會|會|有|有沒有)(?:雷陣|陣|雷|大|小|暴|豪)?雨|"
        r"雷陣雨|午後雷雨|陣雨|豪雨|大雨|(?:會不會|會)*淋(?:到)?[雨濕溼]|打雷|雨勢"
        r"|(?:會不會|會|有沒有|有|在|還在)*飄(?:一?點|毛毛|小|細)*雨|毛毛雨|細雨|梅雨(?:季|鋒面)?|冰雹"
        r"|(?:有沒有|有|還|還有|外面)在下(?=(?:嗎|了|喔|啊|呢|[?!。,\s])*$)"
        r"|雨(?:勢)?(?:會|很|有|多|還|什麼時候|何時|幾點|快|要)*(?:大不大|大|停|多)(?:了)?"
        r"|雨[がはもの]?\s*(?:降|ふ)[りるっ]|雨(?=です|でしょ|かな)"
        r"|will it rain|rain(?:y|ing)?|umbrella",
    ),
    (
        "short sleeves",
        r"(?:可以|能|能不能|可不可以|適合)*穿短[袖褲](?:就好|就可以|可以|會不會冷|會冷|行|夠)*(?=[嗎?]|$)",
    ),
    (
        "clothes",
        r"(?:要不要|需不需要|需要|要|該|用|應該)*(?:穿|帶|加|披)(?:件)?(?:什麼(?:衣服)?|"
        r"甚麼|多少|厚|薄|長袖|短袖|短褲|羽絨衣?|毛衣|(?:厚|薄)?外套|大衣)"
        r"|怎麼穿|(?:厚|薄)?外套|穿搭|穿著|羽絨衣?|(?:長|短)袖|服装|上着|jacket|what to wear",
    ),
    (
        "cold",
        r"(?:會不會|會|有|很|好|超|多|變|比較|最近)*(?:冷不冷|冷(?![水清鍋氣])|凍(?!頂)|涼(?![亭山州]))(?:死人?)?|寒流|"
        r"降溫|(?:大陸|強烈)?冷氣團|(?:路面|會不會|會|有沒有|有)*(?:結冰|結霜)|寒[いくか]|さむい|cold",
    ),
    (
        "heat",
        r"(?:會不會|會|有|很|好|超|多|變|比較|最近)*(?:熱不熱|悶熱|熱|炎熱|悶)(?:死人?|"
        r"翻)?|中暑|(?:要不要|需要|要|該|用)*(?:開|吹)?冷氣(?!團)|蒸?し?暑[いくか]|hot",
    ),
    ("highest", r"最高(?:溫度?|氣溫|溫)?(?:是|會到|會|大概|大約|到|多少|幾)*度?(?=[嗎?呢]|$|\s)"),
    ("lowest", r"最低(?:溫度?|氣溫|溫)?(?:是|會到|會|大概|大約|到|多少|幾)*度?(?=[嗎?呢]|$|\s)"),
    (
        "temperature",
        r"(?:最|高|低)*(?:溫度|氣溫|气温|體感(?:溫度)?|溫差|高溫|低溫)(?:是|大概|大約|"
        r"會)*(?:多少|幾)?度?|(?:是|有|會|大概|大約|多少)*幾度c?|多少度|何度|temperature|"
        r"degrees",
    ),
    (
        "humidity",
        r"(?:相對)?[濕溼]度(?:多少|高嗎|高不高)?|(?:會不會|會|很|有)*(?:潮濕|乾燥|"
        r"潮)(?!州|厝)|humidity",
    ),
    (
        "waves",
        r"(?<![衝流放])(?:風浪|海浪|瘋狗浪|長浪|浪)(?!漫|費|子|琴)(?:會不會|會|很|有|多|真|好)*"
        r"(?:大不大|大|高不高|高)?(?:多少|幾米|幾公尺)?|海象|(?<![a-z])waves?(?![a-z])",
    ),
    (
        "wind",
        r"風速|風(?:力)?(?:會不會|會|很|有|多|真|好)*(?:大不大|大|強)|(?:強|陣|東北季)風|"
        r"風が?強|windy?",
    ),
    ("snow", r"(?:會不會|會|有沒有|有|在)*(?:下雪|積雪|飄雪)|雪況|snow(?:ing)?"),
    (
        "sunrise",
        r"(?:幾點)?(?:日出|日落|天亮|天黑|夕陽|太陽(?:幾點)?下山)(?:時間|是?幾點)?|日の出|日の入り?|"
        r"sunrise|sunset",
    ),
    ("sun", r"(?:會不會|會|有沒有|有)*(?:出太陽|太陽|放晴|晴天)|sunny"),
    (
        "outing",
        r"(?:適不適合|適合|可以|能不能|能|可不可以)(?:去|出門|出去玩?|戶外|爬山|登山|爬|露營|"
        r"野餐|烤肉|跑步|運動|騎車|騎腳踏車|散步|賞(?:花|櫻|楓|鳥|螢火蟲|螢)|玩水|游泳|釣魚|衝浪|看星星|打[羽籃網棒排]?球)+",
    ),
    (
        "weather",
        rf"(?:的)?(?:天[氣器汽]|氣象|預報)(?:預報|狀況|情況|概況)?(?:是)?(?:會|{_VERY})*"
        rf"(?:怎麼樣|怎樣|如何|好不好|好嗎|怎麼|{_FAIR})?"
        r"|(?:會不會|會)*變天|(?:起|有|有沒有)?[大濃]?霧(?![社台臺])(?:會|很)?大?|能見度|氣壓|鋒面"
        r"|天候|weather|forecast",
    ),
)
_PATTERNS: list[tuple[Topic, re.Pattern[str]]] = [
    (topic, re.compile(pattern)) for topic, pattern in _WORDS
]
_BY_NAME: dict[str, Topic] = {topic: topic for topic, _ in _WORDS}
_SIGNS = {
    "rain": "☔🌂☂🌧⛈🌦",
    "sun": "☀🌞",
    "typhoon": "🌀",
    "snow": "❄☃🌨",
    "heat": "🥵",
    "cold": "🥶",
}
"""Pictures that ask for themselves."""
_ASKING = re.compile(
    r"[嗎吗?？]|如何|怎[麼樣]|幾度|多少|天[氣气]|氣溫|溫度|預報|氣象|[會要冷熱]不[會要冷熱]|有沒有"
    r"|weather|forecast|will|降雨機率|空氣品質|紫外線|濕度"
)


_COMPARING = re.compile(
    r"比較|比|哪[裡裏邊個一]|還是|誰|(?<![a-z])(?:which|or|warmer|colder|hotter|more)(?![a-z])"
)
"""Of several places, one is asked for."""
_REMARK = re.compile(rf"天[氣气](?:{_VERY})*(?:{_FAIR})(?!\s*[嗎吗?？不])")
"""天氣真好: a remark, not a question."""


@dataclass(frozen=True, slots=True)
class Question:
    """About what, and for when; None: for no time in particular."""

    topic: Topic = "weather"
    when: When | None = None
    also: tuple[Topic, ...] = ()
    """What else is asked in the same text: 會下雨嗎 要穿外套嗎."""
    is_japanese: bool = False
    """True: in that language it is answered."""
    is_comparison: bool = False
    """True: of several places, which has more of it: 高雄跟台中哪裡比較熱."""

    @property
    def is_plain(self) -> bool:
        """True: the card says it all."""
        return self.topic == "weather" and self.when is None


PLAIN = Question()
"""Nothing but a card."""


def find_question(text: str, now: datetime) -> tuple[Question | None, str]:
    """What *text* asks about the weather, and what is left of it. None: nothing."""
    when, rest = find_when(text, now)
    topics: list[Topic] = []
    for each, pattern in _PATTERNS:
        if pattern.search(rest):
            topics.append(each)
            rest = pattern.sub(" ", rest)
    if not topics and (sign := _sign_in(rest)):
        topics.append(sign)
    if not topics and when is None:
        return None, rest
    also: tuple[Topic, ...] = tuple(each for each in topics[1:] if each != "weather")
    topic, compares = topics[0] if topics else "weather", _COMPARING.search(text) is not None
    return Question(topic, when, also, is_comparison=compares), rest


def read_question(topic: str | None, when: str | None, now: datetime) -> Question:
    """What a button carries; what it cannot mean is left out."""
    first, *others = (topic or "").split(",")
    also: tuple[Topic, ...] = tuple(_BY_NAME[each] for each in others if each in _BY_NAME)
    known = _BY_NAME.get(first, PLAIN.topic)
    return Question(known, find_when(when, now)[0] if when else None, also)


def is_about_weather(text: str) -> bool:
    """True: a word in it asks about the weather: neither a time, nor a remark."""
    asked = _REMARK.sub(" ", text)
    return any(pattern.search(asked) for _, pattern in _PATTERNS)


def is_asking(text: str) -> bool:
    """True: it is put as a question, or as a search; not as a remark about the weather."""
    return bool(_ASKING.search(_REMARK.sub(" ", text)))


def _sign_in(text: str) -> Topic | None:
    if any(map(str.isalnum, text)):  # beside words, a picture is a decoration
        return None
    for topic, signs in _SIGNS.items():
        if any(sign in text for sign in signs):
            return _BY_NAME[topic]
    return None
