"""The sample data: 穗光食堂, a chain that does not exist, with seven branches and their menus."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, time
from decimal import Decimal

from .menus import Branch, Category, Chain, Item, Menu, NewVersion, TimeWindow

BREAKFAST, LUNCH, DINNER = "BREAKFAST", "LUNCH", "DINNER"
_NAMES = {BREAKFAST: "早餐", LUNCH: "午餐", DINNER: "晚餐"}
_WORKDAYS, _WEEKEND = (1, 2, 3, 4, 5), (6, 7)
_DAILY = _WORKDAYS + _WEEKEND
_OPENED = datetime(2026, 3, 2, 2, 0, tzinfo=UTC)
_AUTUMN = datetime(2026, 9, 1, 2, 0, tzinfo=UTC)
_WINTER = datetime(2026, 11, 10, 2, 0, tzinfo=UTC)


def sample_chain() -> Chain:
    """Every branch with its versions. Two have a second one; one of these has a draft, too."""
    first = [(branch, [NewVersion(menu, _OPENED)]) for branch, menu in _branches()]
    histories = {branch.branch_id: history for branch, history in first}
    for branch_id in ("tpe-xinyi", "tnn-zhongxi"):
        raised = histories[branch_id][0].menu.repriced(Decimal(5))
        histories[branch_id].append(NewVersion(raised, _AUTUMN))
    histories["tpe-xinyi"].append(NewVersion(_menu(_usual(), _WINTER_DISHES), _WINTER, draft=True))
    return first


# ---- branches


def _branches() -> list[tuple[Branch, Menu]]:
    def branch(branch_id: str, name: str, city: str) -> Branch:
        return Branch(branch_id, f"穗光食堂 {name}", city)

    return [
        (branch("tpe-main", "台北車站店", "台北市"), _menu(_round_the_clock())),
        (branch("tpe-xinyi", "信義店", "台北市"), _menu(_usual())),
        (branch("tpe-gongguan", "公館店", "台北市"), _menu(_late_on_weekends())),
        (branch("hsz-east", "東門店", "新竹市"), _menu(_closed_on_mondays())),
        (branch("txg-xitun", "西屯店", "台中市"), _without(_menu(_usual()), "oyster-omelette")),
        (branch("tnn-zhongxi", "中西店", "台南市"), _menu(_early(), _TAINAN)),
        (branch("khh-yancheng", "鹽埕店", "高雄市"), _menu(_late_every_day(), _KAOHSIUNG)),
    ]


def _menu(windows: Sequence[TimeWindow], specials: Sequence[Item] = ()) -> Menu:
    items: list[Item] = []
    for category in _CATEGORIES:
        items += _DISHES[category.category_id]
        items += [item for item in specials if item.category_id == category.category_id]
    return Menu(tuple(windows), _CATEGORIES, tuple(items))


def _without(menu: Menu, sold_out: str) -> Menu:
    items = [replace(item, available=item.item_id != sold_out) for item in menu.items]
    return replace(menu, items=tuple(items))


# ---- time windows


def _window(code: str, start: str, end: str, weekdays: tuple[int, ...] = _DAILY) -> TimeWindow:
    clocks = time.fromisoformat(start), time.fromisoformat(end)
    return TimeWindow(code, _NAMES[code], weekdays, *clocks)


def _usual() -> list[TimeWindow]:
    return [
        _window(BREAKFAST, "06:30", "10:30", _WORKDAYS),
        _window(BREAKFAST, "07:00", "11:00", _WEEKEND),
        _window(LUNCH, "11:00", "14:30"),
        _window(DINNER, "17:00", "21:30"),
    ]


def _round_the_clock() -> list[TimeWindow]:
    return [
        _window(BREAKFAST, "05:00", "10:30"),
        _window(LUNCH, "10:30", "17:00"),
        _window(DINNER, "17:00", "05:00"),
    ]


def _late_on_weekends() -> list[TimeWindow]:
    return [
        *_usual()[:3],
        _window(DINNER, "17:00", "22:00", (1, 2, 3, 4, 7)),
        _window(DINNER, "17:00", "01:00", (5, 6)),
    ]


def _closed_on_mondays() -> list[TimeWindow]:
    open_days = [tuple(day for day in each.weekdays if day != 1) for each in _usual()]
    return [replace(each, weekdays=days) for each, days in zip(_usual(), open_days, strict=True)]


def _early() -> list[TimeWindow]:
    return [
        _window(BREAKFAST, "05:00", "10:30"),
        _window(LUNCH, "11:00", "14:00"),
        _window(DINNER, "17:00", "20:30"),
    ]


def _late_every_day() -> list[TimeWindow]:
    return [
        _window(BREAKFAST, "06:30", "10:30"),
        _window(LUNCH, "11:00", "14:30"),
        _window(DINNER, "17:00", "02:00"),
    ]


# ---- dishes

_CATEGORIES = (
    Category("morning", "早點"),
    Category("rice", "飯食"),
    Category("noodles", "麵食"),
    Category("sides", "小菜湯品"),
    Category("drinks", "飲料甜品"),
)
_SERVED = {
    "morning": (BREAKFAST,),
    "rice": (LUNCH, DINNER),
    "noodles": (LUNCH, DINNER),
    "sides": (LUNCH, DINNER),
    "drinks": (),
}


def _dishes(category_id: str, *rows: tuple[str, str, int, str, str, str]) -> list[Item]:
    """Of: id, name, price, description, tags, allergens."""
    return [
        Item(
            item_id=item_id,
            category_id=category_id,
            name=name,
            price=price,
            description=description,
            tags=tuple(tags.split()),
            allergens=tuple(allergens.split()),
            windows=_SERVED[category_id],
            image_name=f"{item_id}.webp",
        )
        for item_id, name, price, description, tags, allergens in rows
    ]


_DISHES = {
    "morning": _dishes(
        "morning",
        ("scallion-egg-crepe", "蔥花蛋餅", 40, "現擀餅皮，附自製醬油膏。", "人氣", "蛋 麩質"),
        ("cheese-egg-crepe", "起司蛋餅", 50, "雙片起司，起鍋時剛好牽絲。", "", "蛋 奶 麩質"),
        ("savory-soy-milk", "鹹豆漿", 40, "蝦皮、榨菜、油條與烏醋。", "人氣", "大豆 甲殼類 麩質"),
        ("shaobing-youtiao", "燒餅油條", 45, "芝麻燒餅夾當日現炸油條。", "", "麩質 芝麻"),
        ("rice-roll", "古早味飯糰", 50, "糯米包菜脯、肉鬆、油條與滷蛋。", "", "蛋 麩質 大豆"),
        ("turnip-cake", "港式蘿蔔糕", 45, "在來米與白蘿蔔，煎到兩面金黃。", "", "甲殼類"),
        ("pork-bun", "手工鮮肉包", 30, "老麵發酵，溫體豬後腿肉。", "", "麩質 大豆"),
    ),
    "rice": _dishes(
        "rice",
        ("braised-pork-rice", "滷肉飯", 45, "手切五花肉，紅蔥酥與冰糖慢滷。", "人氣", "大豆 麩質"),
        ("turkey-rice", "火雞肉飯", 55, "手撕火雞肉，淋雞油與油蔥。", "", "大豆"),
        ("pork-chop-rice", "炸排骨飯", 115, "醃一夜的帶骨里肌，附三樣時蔬。", "", "蛋 大豆 麩質"),
        ("chicken-leg-rice", "滷雞腿飯", 135, "整支去油大雞腿，附三樣時蔬。", "人氣", "大豆 麩質"),
        ("three-cup-chicken", "三杯雞飯", 155, "麻油、米酒，起鍋下九層塔。", "", "大豆 芝麻 麩質"),
        ("milkfish-rice", "香煎虱目魚肚飯", 165, "無刺魚肚乾煎，配薑絲與破布子。", "", "魚類 大豆"),
        ("mushroom-rice", "香菇素燥飯", 50, "乾香菇、豆干與麵輪，全素。", "素食", "大豆 麩質"),
    ),
    "noodles": _dishes(
        "noodles",
        ("beef-noodles", "紅燒牛肉麵", 190, "牛腱心燉四小時，湯頭微辣。", "人氣 辣", "麩質 大豆"),
        ("clear-beef-noodles", "清燉牛肉麵", 190, "牛骨與白蘿蔔，湯清味甜。", "", "麩質"),
        ("sesame-noodles", "麻醬乾麵", 60, "現磨芝麻醬，附小黃瓜絲。", "素食", "麩質 芝麻 花生"),
        ("danzai-noodles", "擔仔麵", 65, "肉燥、鮮蝦一尾與蒜泥。", "", "麩質 甲殼類 大豆"),
        ("fried-rice-noodles", "炒米粉", 65, "香菇、蝦米、高麗菜絲。", "", "甲殼類 大豆"),
        ("hot-pot-noodles", "鍋燒意麵", 100, "炸意麵吸滿柴魚湯。", "", "蛋 麩質 魚類"),
    ),
    "sides": _dishes(
        "sides",
        ("blanched-greens", "燙青菜", 40, "當日時蔬，可選油蔥或蒜泥。", "", "大豆"),
        ("braised-egg", "滷蛋", 15, "與滷肉同一鍋。", "", "蛋 大豆"),
        ("century-egg-tofu", "皮蛋豆腐", 50, "嫩豆腐、皮蛋與柴魚。", "", "蛋 大豆 魚類"),
        ("cucumber", "涼拌小黃瓜", 40, "蒜香微辣，冰鎮上桌。", "辣", "芝麻"),
        ("oyster-omelette", "蚵仔煎", 85, "東石鮮蚵，甜辣醬自己熬。", "人氣", "軟體類 蛋"),
        ("popcorn-chicken", "鹽酥雞", 80, "現炸，九層塔同鍋。", "", "麩質 蛋"),
        ("pork-ball-soup", "貢丸湯", 40, "新竹手打貢丸，芹菜末。", "", ""),
        ("clam-ginger-soup", "薑絲蛤蜊湯", 65, "活蛤蜊，起鍋只加鹽。", "", "軟體類"),
    ),
    "drinks": _dishes(
        "drinks",
        ("black-tea", "古早味紅茶", 25, "決明子同煮，可選甜度。", "", ""),
        ("soy-milk", "黃豆漿", 25, "每日清晨現磨，冰熱皆可。", "素食", "大豆"),
        ("winter-melon-lemon", "冬瓜檸檬", 45, "手熬冬瓜糖，現榨檸檬。", "", ""),
        ("bubble-milk-tea", "珍珠鮮奶茶", 60, "黑糖珍珠，小農鮮奶。", "人氣", "奶"),
        ("aiyu", "檸檬愛玉", 45, "阿里山愛玉手洗。", "素食", ""),
        ("tofu-pudding", "花生豆花", 50, "綿軟花生，薑汁另附。", "素食", "大豆 花生"),
    ),
}

_TAINAN = [
    replace(item, windows=(BREAKFAST, LUNCH))
    for item in _dishes(
        "sides",
        ("beef-soup", "溫體牛肉湯", 130, "清晨現切，滾湯沖燙，附薑絲。", "人氣 限量", ""),
        ("milkfish-congee", "虱目魚粥", 110, "半粥半飯，魚骨高湯。", "", "魚類"),
    )
]
_KAOHSIUNG = _dishes(
    "sides",
    ("seafood-congee", "海鮮粥", 120, "鹽埕夜裡的一碗：蝦、蚵、花枝。", "人氣", "甲殼類 軟體類"),
    ("oden", "黑輪拼盤", 70, "炭烤旗魚黑輪，甜醬油。", "", "魚類 麩質"),
)
_WINTER_DISHES = _dishes(
    "drinks",
    ("sesame-tangyuan", "酒釀芝麻湯圓", 65, "冬季限定，小火慢煮。", "新品", "芝麻"),
)
