"""Places outside of Taiwan that people ask for most."""

from ..places.spelling import fold

_NAMES = """
日本 東京 大阪 京都 北海道 札幌 沖繩 琉球群島 那霸 福岡 名古屋 橫濱 神戶 奈良 廣島 仙台 金澤 熊本
鹿兒島 長崎 富士山 箱根 輕井澤 小樽 函館
韓國 南韓 北韓 首爾 釜山 濟州島 濟州 仁川 大邱
中國 大陸 北京 上海 廣州 深圳 廈門 福州 杭州 南京 成都 重慶 武漢 西安 天津 蘇州 青島 大連 昆明
哈爾濱 西藏 新疆 海南島 東莞 寧波 泉州
香港 澳門 九龍
泰國 曼谷 清邁 普吉島 芭達雅 越南 河內 胡志明市 峴港 富國島 新加坡 馬來西亞 吉隆坡 檳城 沙巴 印尼
峇里島 巴里島 雅加達 菲律賓 馬尼拉 宿霧
長灘島 柬埔寨 吳哥窟 緬甸 寮國 印度 新德里 尼泊爾 馬爾地夫 斯里蘭卡 關島 帛琉 塞班島
美國 紐約 洛杉磯 舊金山 西雅圖 波士頓 芝加哥 拉斯維加斯 夏威夷 華盛頓 休士頓 加州 邁阿密 加拿大
溫哥華 多倫多 墨西哥 巴西 阿根廷
英國 倫敦 法國 巴黎 德國 柏林 慕尼黑 義大利 羅馬 米蘭 威尼斯 佛羅倫斯 西班牙 巴塞隆納 馬德里
葡萄牙 里斯本 荷蘭 阿姆斯特丹 比利時 布魯塞爾
瑞士 蘇黎世 奧地利 維也納 捷克 布拉格 希臘 雅典 冰島 芬蘭 瑞典 挪威 丹麥 哥本哈根 俄羅斯 莫斯科
土耳其 伊斯坦堡 波蘭 匈牙利 布達佩斯
澳洲 雪梨 墨爾本 布里斯本 伯斯 紐西蘭 奧克蘭 皇后鎮 杜拜 阿聯酋 埃及 開羅 以色列 南非 肯亞 摩洛哥
歐洲 美洲 非洲 國外 月球 火星
Japan Tokyo Osaka Kyoto Hokkaido Sapporo Okinawa Fukuoka Nagoya Korea Seoul Busan Jeju China
Beijing Shanghai Shenzhen Guangzhou Xiamen HongKong
Macau Macao Thailand Bangkok Phuket Vietnam Hanoi Singapore Malaysia Indonesia Bali Jakarta
Philippines Manila Cebu India Guam
USA America NewYork LosAngeles SanFrancisco Seattle Boston Chicago Hawaii Canada Vancouver Toronto
UK England London France Paris Germany Berlin Munich Italy Rome Milan Venice Spain Barcelona
Madrid Amsterdam Zurich Vienna Prague Iceland
Australia Sydney Melbourne Auckland Dubai Moscow Istanbul
"""
_FOLDED = {fold(name): name for name in _NAMES.split()}


def abroad(text: str) -> str | None:
    """The place abroad that *text*, of a few words, names. None: none that we know."""
    return _FOLDED.get(fold(text))


def abroad_in(text: str) -> str | None:
    """The longest such place that occurs in *text*; a name in letters only as a whole text."""
    said = fold(text)
    found = [name for name in _FOLDED if not name.isascii() and name in said]
    return _FOLDED[max(found, key=len)] if found else None
