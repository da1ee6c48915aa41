"""What counties and townships are also called: shorter, older, or by a part that stands for them.

Only names that mean one place. Places with their own weather or coordinates are in `landmarks.txt`.
"""

COUNTIES = {
    "臺北市": "北市",
    "新北市": "臺北縣 北縣",
    "桃園市": "桃園縣 桃市 桃縣",
    "臺中市": "臺中縣 中市 中縣",
    "臺南市": "臺南縣 南市 南縣",
    "高雄市": "高雄縣 高市 高縣 港都",
    "基隆市": "基市 雨都",
    "新竹市": "竹市 風城",
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
    "臺北市信義區": "信義計畫區 信義商圈",
    "臺北市萬華區": "西門町 艋舺 Ximending",
    "臺北市文山區": "木柵 景美",
    "臺北市士林區": "天母",
    "新北市淡水區": "Danshui",
    "嘉義縣阿里山鄉": "吳鳳鄉",
    "屏東縣琉球鄉": "小琉球 Xiaoliuqiu LittleLiuqiu",
    "屏東縣三地門鄉": "三地鄉",
    "臺東縣綠島鄉": "GreenIsland",
    "臺東縣蘭嶼鄉": "OrchidIsland",
    "高雄市那瑪夏區": "三民鄉",
    "金門縣烈嶼鄉": "小金門",
}
"""Township → what stands for it."""

OF_A_COUNTY = {"臺南市中西區": "中區 西區"}
"""Township → what stands for it, but only after the name of its county: others are called so."""

METROPOLIS = {"臺北": ("臺北市", "新北市"), "Taipei": ("臺北市", "新北市")}
"""Before the name of a township this may mean either: 板橋 is said to be in 臺北."""
