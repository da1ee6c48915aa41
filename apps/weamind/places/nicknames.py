"""What places are also called: shorter, older, or by what one goes there for.

Only names that mean one place. A peak is missing on purpose: the weather of its township is that
of a valley.
"""

COUNTIES = {
    "臺北市": "北市",
    "新北市": "臺北縣 北縣",
    "桃園市": "桃園縣 桃市 桃縣",
    "臺中市": "臺中縣 中市 中縣",
    "臺南市": "臺南縣 南市 南縣",
    "高雄市": "高雄縣 高市 高縣",
    "基隆市": "基市",
    "新竹市": "竹市",
    "新竹縣": "竹縣",
    "苗栗縣": "苗縣",
    "彰化縣": "彰縣",
    "南投縣": "投縣",
    "雲林縣": "雲縣",
    "嘉義市": "嘉市",
    "嘉義縣": "嘉縣",
    "屏東縣": "屏縣",
    "宜蘭縣": "宜縣",
    "花蓮縣": "花縣",
    "臺東縣": "東縣",
    "澎湖縣": "澎縣",
    "金門縣": "金縣",
    "連江縣": "馬祖 Matsu",
}
"""County → what stands for it, also before the name of a township."""

TOWNS = {
    "臺北市中正區": "北車",
    "臺北市大同區": "大稻埕",
    "臺北市萬華區": "西門町 艋舺",
    "臺北市文山區": "木柵 景美",
    "臺北市士林區": "天母",
    "新北市淡水區": "Danshui",
    "新北市瑞芳區": "九份 金瓜石 猴硐",
    "新北市貢寮區": "福隆",
    "新北市萬里區": "野柳",
    "宜蘭縣蘇澳鎮": "南方澳",
    "宜蘭縣頭城鎮": "龜山島",
    "南投縣魚池鄉": "日月潭",
    "嘉義縣阿里山鄉": "吳鳳鄉",
    "屏東縣恆春鎮": "墾丁 鵝鑾鼻",
    "屏東縣琉球鄉": "小琉球",
    "屏東縣三地門鄉": "三地鄉",
    "臺東縣成功鎮": "三仙臺",
    "花蓮縣秀林鄉": "太魯閣",
    "澎湖縣白沙鄉": "吉貝",
    "高雄市那瑪夏區": "三民鄉",
    "金門縣烈嶼鄉": "小金門",
    "連江縣莒光鄉": "東莒 西莒",
}
"""Township → what stands for it."""

OF_A_COUNTY = {"臺南市中西區": "中區 西區"}
"""Township → what stands for it, but only after the name of its county: others are called so."""

METROPOLIS = {"臺北": ("臺北市", "新北市"), "Taipei": ("臺北市", "新北市")}
"""Before the name of a township this may mean either: 板橋 is said to be in 臺北."""
