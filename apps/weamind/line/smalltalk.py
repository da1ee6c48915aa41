"""What people say that is not about the weather: greetings, thanks, goodbyes, a smile."""

import re
from unicodedata import category, normalize

_ADDRESSED = r"(?:weamind|機器人|小幫手|小編|大家|各位|bot)?"
_ENDING = r"[喔哦噢啊阿呀啦耶欸唷囉嘿呢吧哟的了嗎ㄛㄚ]*"

_REMOVE = r"(?:我?(?:要|想))?(?:幫我)?(?:刪除|刪掉|清除|清空|移除|取消)(?:我的?)?"

_SAID: tuple[tuple[str, str], ...] = (
    ("morning", r"早安?|早啊|早上好|大家早|good ?morning|gm|morning|早早|早呀"),
    ("noon", r"午安|下午好|中午好|good ?afternoon"),
    ("night", r"晚安|晚上好|good ?night|good ?evening|gn"),
    (
        "hello",
        r"[你妳您](?:今天|最近)?(?:過得)?好(?:不好)?|哈[囉嘍啰喽羅]+|嗨+|hi+|hey+|hello+|halo|安安|在嗎|[你妳]在嗎|有人嗎|"
        r"yo|嘿+|哈哈囉|初次見面|こんにちは",
    ),
    (
        "thanks",
        r"(?:好[的哦喔啊]?)?(?:非常|太|真的)?(?:謝謝|谢谢|感謝|多謝|感恩|謝|謝囉|謝拉|3q+|thx|"
        r"thanks?(?: ?(?:you|u))?|ty|辛苦|麻煩|arigato|ありがとう)(?:謝|[你妳您]|大大|"
        r"您的?幫忙|告知|一下)*",
    ),
    ("bye", r"掰+|掰掰|拜拜|再見|bye+(?: ?bye)?|886|下次見|明天見|88"),
    ("sorry", r"(?:真的)?(?:對不起|抱歉|不好意思|歹勢|sorry)"),
    (
        "okay",
        r"好+的?|ok+|okay|嗯+|恩+|喔+|哦+|噢+|收到|了解|瞭解|知道|懂|可以|是|對|沒錯|行|"
        r"沒問題|原來如此|讚讚讚?|👌",
    ),
    ("laugh", r"哇+塞?|(?:哈|呵|嘻|嘿|科|顆|xd|ha|he|lol|w|笑死|好笑)+"),
    (
        "praise",
        r"(?:[你妳]|您)?(?:真的?|好|很|太|超|非常)*(?:棒|厲害|讚|優秀|聰明|可愛|方便|好用|"
        r"貼心|強|準|good|nice|great|cool|awesome)+",
    ),
    (
        "scold",
        r"[你妳]?(?:真的?|好|很|超|太|這麼)*(?:笨|蠢|差勁|廢)|.*(?:閉嘴|笨蛋|白痴|白癡|"
        r"智障|垃圾|廢物|(?:不要|別|不準|停止)再?(?:一直)?(?:傳|發|吵|煩|回)(?:訊息|東西)?(?:給?我)?(?:了|啦)|吵死|煩死|爛透|很爛|爛死|太爛|去死|幹你|幹+|靠北|三小|"
        r"fuck|shit|stupid|智商|好爛|爛)|.*(?:不準|亂報|騙人|騙我|沒用|不好用|很難用|難用|"
        r"錯的|報錯)",
    ),
    ("love", r"(?:我)?(?:好|很|最)?(?:愛|喜歡)[你妳您]|love ?(?:you|u)|i love you|<3"),
    (
        "who",
        r"(?:哈囉|你好|您好|嗨|請問)?[你妳您]?(?:是|到底是)(?:誰|什麼|甚麼|哪位|什麼東西)|[你妳您](?:的)?(?:叫|"
        r"名字)(?:什麼|甚麼|是什麼)?(?:名字)?|[你妳您]是(?:真人|機器人|ai|人|bot)|"
        r"who ?are ?(?:you|u)|自我介紹|介紹一下自己",
    ),
    (
        "help",
        r"[你妳您]?(?:會|能|可以)(?:做|幫我做|幫忙|幫我|查|問)?(?:些)?(?:什麼|甚麼|"
        r"啥)(?:事)?|(?:要|該)?怎麼(?:用|使用|操作|問|查|查詢)(?:天氣)?|如何(?:使用|查詢|"
        r"操作|用)|使用(?:方法|教學|說明|方式)|(?:有(?:什麼|哪些))?功能|幫助|教學|說明|"
        r"指令|help(?: me)?|[?]+|不會用|我?不懂|看不懂|什麼意思|how to use|what can you do",
    ),
    ("menu", r"選單|菜單|功能表|主選單|目錄|menu|其他|回主選單"),
    ("cancel", r"取消|算了|不用|沒事|不要|不查|停止|離開|返回|回去|cancel|stop|no|不[是對]?"),
    (
        "delete",
        r"(?:我?(?:要|想))?(?:幫我)?(?:刪除|清除|刪掉|清空|移除)(?:我的?|所有|全部|"
        r"個人)*(?:資料|紀錄|記錄|個資|設定|帳號)|忘記我|delete my data",
    ),
    (
        "settings",
        r"(?:我?(?:要|想))?(?:更改|修改|變更|改|看|查看)?(?:我的)?設定|(?:我的)?(?:住家|"
        r"公司)(?:是|在|設)*哪[裡邊兒]?|settings?",
    ),
    (
        "home",
        r"(?:我?(?:要|想))?(?:重新)?(?:設定?|更改|修改|變更|改|換)(?:我的?|一下)*(?:住家|"
        r"家|住址|地址|住的地方)(?:地址|位置|地點)?|(?:怎麼|如何)(?:設定|改|更改)住家",
    ),
    (
        "office",
        r"(?:我?(?:要|想))?(?:重新)?(?:設定?|更改|修改|變更|改|換)(?:我的?|一下)*(?:公司|"
        r"辦公室|上班地點|學校)(?:地址|位置|地點)?|(?:怎麼|如何)(?:設定|改|更改)公司",
    ),
    (
        "no home",
        rf"{_REMOVE}(?:住家|家|住址)(?:地址|位置|地點)?(?:的?設定)?|(?:把|將)?(?:我的?)?(?:住家|住址)"
        r"(?:的?設定)?(?:刪除|刪掉|清除|清空|移除|取消)",
    ),
    (
        "no office",
        rf"{_REMOVE}(?:公司|辦公室)(?:地址|位置|地點)?(?:的?設定)?|(?:把|將)?(?:我的?)?(?:公司|辦公室)"
        r"(?:的?設定)?(?:刪除|刪掉|清除|清空|移除|取消)",
    ),
    (
        "recent",
        r"我?(?:剛剛|剛才|之前|上次|最近)(?:有)?(?:查|問)(?:過|了|詢過?)?(?:什麼|甚麼|哪裡|"
        r"哪些)(?:地方)?|(?:我的?)?(?:查詢|搜尋)(?:紀錄|記錄|歷史)|歷史紀錄",
    ),
    (
        "location",
        r"我在哪[裡邊]?|(?:怎麼|如何|我?要|我?想)*(?:傳送?|分享|發送?)(?:我的?|目前)*"
        r"(?:位置|定位)(?:怎麼傳|給[你妳您])?",
    ),
    (
        "about",
        r"(?:天氣)?(?:資料|資訊|預報)(?:是|從)*(?:哪裡|哪邊|哪|誰)(?:來|給|提供)|"
        r"(?:資料)?來源(?:是什麼)?|(?:資料|預報|天氣)?(?:多久|幾分鐘)更新(?:一次)?|"
        r"(?:這個?|查詢)?(?:是|要不要|要|需要|會)*(?:錢|付費|收費|付錢|免費)",
    ),
    ("test", r"測試|test(?:ing)?|123+|1|測試中"),
    ("quake", r".*地震.*|earthquake"),
    ("remind", r".*(?:提醒|訂閱|通知我|推播|鬧鐘|subscribe).*"),
    (
        "only",
        r"(?:現在|今天|請問)*(?:幾點|星期幾|禮拜幾|週幾|幾月幾[號日]|幾號)|"
        r"[你妳您]?(?:在哪|住哪|幾歲|多大)[裡邊]?"
        r"|.*(?:農曆|月亮|月圓|流星雨?|投訴|客訴)"
        r"(?:今天|今晚|現在|圓不圓|圓|幾[號月日]+|看得到|看得見|日期|是)*"
        r"|.*(?:推薦|翻譯|導航).*"
        r"|.*(?:油價|停水|停電|股票|股價|樂透|大樂透|匯率|新聞|客服|電話|"
        r"路況|塞車|火車|高鐵時刻)",
    ),
    ("food", r".*(?:吃飽|吃飯|吃什麼|早餐|午餐|晚餐|宵夜).*"),
    ("bored", r".*(?:無聊|陪我|聊天|講笑話|說笑話|笑話|唱歌|心情不好|好累|好煩|想睡|失戀).*"),
)
_DISTRESS = re.compile(
    r"(?<![熱冷累悶曬睏餓煩笑][到得])(?<![熱冷累悶曬睏餓笑])想死(?![你妳您我他她])|不想活|活不下去|自殺|自殘"
    r"|輕生|結束(?:我的|自己的?)?生命|想要?跳樓|割腕|活著(?:好累|沒意思|沒有?意義)|(?<![熱冷累悶曬])死了算了|不如死"
    r"|kill myself|suicid|want to die"
)
_PATTERNS = [
    (name, re.compile(rf"{_ADDRESSED}(?:{pattern}){_ADDRESSED}{_ENDING}"))
    for name, pattern in _SAID
]
_SMILES = (
    ("thanks", "🙏"),
    ("love", "❤💕💖💗💓🥰😍😘💙💚💛🧡💜🖤🤍💞💘"),
    ("bye", "👋"),
    ("laugh", "😂🤣😆😄😁😃😀😊🙂😝😜😹"),
    ("okay", "👌👍🆗"),
    ("praise", "👏💯🎉✨⭐"),
    ("comfort", "😢😭😞😔😩😫🥺😣😖😤😡🤬😠"),
)


def is_distress(text: str) -> bool:
    """True: the person may need help; 熱到想死 is a way to say that it is hot."""
    return _DISTRESS.search(text) is not None


def smalltalk(text: str) -> str | None:
    """The kind of small talk; None: it may be a question about the weather."""
    core = spoken(text)
    if not core:
        return _smile(text)
    return next((name for name, pattern in _PATTERNS if pattern.fullmatch(core)), None)


def smalltalk_in(text: str) -> str | None:
    """The same for the first part of *text* that is small talk: 謝謝你喔 你很乖."""
    parts = re.split(r"[\s,，。.!！?？~～、;；:：]+", normalize("NFKC", text))
    return next((name for part in parts if spoken(part) and (name := smalltalk(part))), None)


def spoken(text: str) -> str:
    """*text* in small, narrow letters, without pictures and signs; of signs alone, only "?"."""
    plain = normalize("NFKC", text).lower().replace("\ufe0f", "")
    kept = "".join(sign for sign in plain if sign.isalnum() or sign in " <")
    core = " ".join(kept.split()).strip("<")
    if not core and "?" in plain and not any(category(sign) == "So" for sign in plain):
        return "?"
    return "<3" if plain.strip() == "<3" else core


def _smile(text: str) -> str | None:
    if not text.strip():
        return None
    for name, signs in _SMILES:
        if any(sign in text for sign in signs):
            return name
    return "smile"
