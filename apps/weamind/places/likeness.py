"""Which words may be meant for each other: those that sound alike, look alike, or differ by a slip.

A Chinese name is typed by its sound and picked from a list, so a mistyped character nearly always
sounds like the right one. The tables know the characters that occur in names, and the common ones
(5401 of them) that could stand in their place.
"""

from .spelling import fold

# Each group is one syllable with its tone. As in Taiwan's Mandarin zh, ch, sh and z, c, s are one,
# and so are -in and -ing, -en and -eng.
_SOUNDS = """
愛艾隘閡曖璦礙 安氨庵菴鞍諳鵪 澳傲奧懊 八巴叭扒芭疤捌笆 板阪版舨鈑闆 褒包胞苞 保寶堡葆飽褓
卑杯陂盃悲揹碑 背孛貝邶倍悖狽被備焙蓓輩鋇憊
壁必庇陛婢敝畢閉弼愎詖賁痺鉍嗶幣弊碧裨蔽篦斃臂薜避璧蹕襞 邊砭編蝙鞭 濱冰兵彬賓儐豳檳瀕繽
布不佈步怖埠部簿 巢潮晁曹朝嘈漕嘲槽 草吵炒 城埕成丞臣呈岑忱沉辰承乘宸涔晨陳曾程誠塵層澄橙諶懲
池弛持祠茨瓷詞慈馳磁雌墀踟遲辭 莿叱斥次伺赤刺翅敕啻飭賜熾 春村皴 達怛答靼躂韃
袋代岱待怠殆玳迨帶貸戴黛 丹耽單擔簞 淡旦但啖啗蛋氮彈憚誕澹 島搗導蹈禱 德得 地弟帝娣第棣蒂遞締諦
店佃玷惦奠殿電墊澱靛 頂鼎 定碇萣訂錠 冬東咚鼕 斗豆鬥脰逗痘竇 堵睹賭篤 肚妒杜度渡鍍蠹 端耑
峨俄娥訛蛾額鵝 二貳 番帆幡蕃繙翻藩 枋芳方坊 峰芬豐丰分吩氛封風紛烽棻楓蜂瘋鋒 份鳳奉忿俸憤奮糞縫
福弗伏佛孚扶彿怫拂服芙芣俘氟浮匐涪符紼紱幅菔袱蝠輻 富復父付咐阜附訃負赴副婦傅腹複賦駙縛賻覆馥
竿甘杆肝坩柑疳尷 岡杠肛缸剛釭綱鋼 港崗 高皋羔膏篙糕 歌戈疙咯哥胳割擱鴿 公功工弓攻供肱宮恭蚣躬龔
貢共 古股谷鼓牯罟骨詁鈷穀轂瞽蠱 官觀關冠倌棺鰥 館莞琯管 光洸胱 歸龜圭皈珪規傀瑰閨鮭 國幗
和河禾合何劾曷紇郃核盍涸盒荷蚵頜翮闔 恆橫桁痕衡 后後厚候逅堠鱟 湖囫弧狐胡斛壺瑚葫糊蝴鵠鬍 虎唬琥
花嘩 華滑猾譁 化划畫話劃樺 基乩肌圾唧姬屐飢嵇犄勣畸跡箕嘰畿稽緝機激璣積擊磯績蹟雞譏饑躋羈
吉集及伋即岌汲亟急疾級脊棘嫉戢極楫瘠輯藉籍 佳嘉家茄加夾迦浹痂袈傢葭豭 甲胛假賈鉀
尖間奸肩姦兼堅湔菅煎監箋緘縑艱殲韉 將江姜僵漿薑疆韁 礁交姣郊椒焦蛟跤嬌澆膠蕉鮫驕
腳角狡皎絞剿僥鉸餃矯繳攪 結孑劫杰拮桀訐捷傑睫節詰截碣竭潔羯
津金巾今斤京矜觔涇荊旌莖晶筋菁睛粳經兢精襟鯨驚 井阱景僅盡緊憬瑾儘璟錦頸謹饉警
靖近勁徑晉浸淨逕竟痙進敬禁境噤縉靜燼覲鏡競 九久灸玖韭酒 莒咀沮矩舉齟 軍君均菌鈞 崁看瞰 康慷糠
坑吭阬鏗 庫酷褲 來徠萊 蘭婪嵐闌藍攔瀾籃襤斕欄籣 樂叻 裡里李俚娌浬理鋰澧禮鯉醴邐
壢栗力立吏利例戾俐荔唳笠粒莉痢慄溧蒞厲曆歷勵隸癘鎘瀝麗礪礫儷蠣酈欐靂 蓮連帘廉奩漣憐濂聯簾鐮鰱
寮聊僚寥嘹暸燎遼療繚 烈列劣冽洌捩裂獵鬣
林苓麟伶泠昤玲凌淋羚翎聆蛉陵琳菱痳鈴零綾蔆鄰燐璘遴霖鴒磷臨轔齡櫺鱗靈 琉流留硫榴遛劉瘤瀏 六霤餾
隆龍窿嚨朧瓏矓籠聾 蘆盧廬瀘爐臚鑪顱鱸 路鹿陸僇碌祿賂戮穋錄麓露鷺 巒孿攣灤鑾鸞 崙侖倫淪綸輪
羅螺鑼鏍儸騾玀蘿邏籮 洛珞絡落漯犖雒駱 綠律率氯慮濾 麻痲蟆 瑪馬碼螞 麥脈賣邁 滿屘 茂冒耄帽貿瑁貌懋
梅眉沒枚玫莓媒湄楣煤霉黴 美每鎂 門虻捫萌盟蒙甍濛朦檬矇 彌迷糜謎麋靡瀰 苗描瞄 廟妙
名民岷明冥茗暝銘鳴瞑螟 牡母姆拇畝 那吶娜納捺鈉 南楠男喃難 鳥裊嬝 寧苧您凝嚀擰獰檸 濃農儂噥膿穠
暖煖 澎抨砰烹噴 埤皮枇毗疲啤陴琵脾鼙 坪屏平枰瓶貧萍評憑頻嬪蘋顰 埔朴圃浦普溥樸譜蹼
七棲妻柒悽戚淒期欺萋漆慼槭蹊 崎旗圻岐其奇歧祁俟祈祇耆淇畦棋琪琦祺齊錡臍騎麒鰭 前虔乾鈐鉗箝潛錢黔
橋喬僑憔樵瞧 清青侵卿氫欽傾蜻輕嶔親 坵丘邱秋蚯鞦鰍 球囚求泅酋梂毬裘 區曲屈蛆蛐嶇趨軀麴驅 仁人仍壬
榮戎容絨溶榕熔蓉融嶸鎔 如茹儒嚅孺濡燸蠕 瑞睿銳 沙剎砂紗殺莎煞裟撒鯊 三山杉刪姍芟柵珊舢衫跚煽潸縿羶
善汕疝扇訕散擅膳繕贍鱔 上尚喪 社色射涉設赦嗇瑟歙澀穡懾攝麝 伸深升生申身呻昇牲娠砷陞笙紳莘森甥僧聲
神什繩 獅尸司失私虱屍思施師斯絲溼詩嘶廝撕蝨濕鷥 石十拾食時塒實蝕識
勢四士市巳氏世仕示寺式似事侍兕姒泗祀室恃拭是柿舐耜豉逝視嗜嗣弒筮肆試軾飼飾誓奭適駟噬螫釋
松忪崧淞嵩鬆 壽受狩售授嗽綬瘦獸 蘇抒叔書梳殊倏淑疏甦舒菽酥樞蔬穌輸橾囌
樹朮夙戍束述恕素宿庶術速粟肅訴嗉塑溯墅漱數豎簌 雙霜孀 水髓 穗祟稅歲碎遂睡誶隧燧邃 臺台抬苔跆颱檯薹
太泰汰態 壇潭覃痰談曇檀罈譚 塘唐堂棠搪瑭膛糖螳醣 桃洮逃啕淘陶萄檮 田恬畋甜填鈿闐 同桐銅彤童僮潼瞳
投頭骰 土吐 屯豚飩臀 陀佗沱跎馱駝鴕 灣剜蜿豌彎 萬腕 望妄忘旺 圍圩韋桅唯帷惟幃違維濰闈
尾委洧娓偽偉猥痿葦緯諉鮪 文玟紋蚊雯聞 屋烏圬汙污巫嗚誣鎢 梧毋吾吳唔無蜈蕪鼯 五武午伍侮捂舞嫵憮鵡
霧兀勿戊物悟務晤塢寤誤騖 汐溪西夕兮吸希昔析唏奚息悉惜晞淅烯晰犀稀翕僖熙熄蜥嘻嬉膝熹羲錫蟋谿譆曦犧
峽匣狎俠柙狹暇瑕遐轄霞黠 下夏嚇 仙先秈祆掀暹鮮纖 線縣限峴現莧陷羨腺蜆僩憲餡獻霰 鄉香相廂湘箱襄瓖鑲
霄哮宵消梟逍硝嘐銷蕭簫瀟囂驍 小曉篠 心新星辛昕欣芯訢惺猩腥鋅薪馨 信姓興杏幸性倖悻釁 雄熊
秀岫袖嗅溴繡鏽 學穴 雅啞 延鹽妍言岩沿炎研筵閻檐顏簷嚴巖 燕咽彥唁宴晏堰焰硯雁厭燄諺嚥贗饜驗艷釅豔
楊羊佯徉洋烊揚陽暘煬瘍鍚颺 野也冶 宜圯夷沂迆怡咦姨迤栘胰訑痍移貽飴疑儀遺頤彝
義弋刈亦屹佚役抑邑佾易奕帟弈疫羿浥益異翌軼逸意溢睪肄裔詣蜴億毅誼劓憶縊翳翼臆鎰繹藝議譯囈懿驛
音鶯因姻英殷氤茵陰瑛慇蔭嬰應膺嚶罌櫻瓔纓鷹鸚 營吟迎垠盈寅淫塋楹夤熒鄞銀瑩嬴縈螢瀛蠅霪贏
引尹蚓郢飲影穎隱癮 永甬泳俑勇涌恿湧詠蛹踴
魚于余妤於盂臾俞禺竽娛雩愉渝腴萸隅愚榆瑜虞逾漁蝓褕諛餘覦輿歟 嶼予宇羽雨禹圄圉庾敔與語齬
玉聿育芋昱郁堉峪浴域御欲喻寓馭愈毓煜裕遇預嫗獄瘉慾澦禦諭豫燠癒譽鬱籲
元原員園源沅垣爰袁援湲圓猿緣轅騵 苑怨院媛愿願 雲云勻昀芸紜耘筠 彰張章漳獐臧樟璋蟑贓髒 長掌漲
造召兆灶皂炤棹詔照罩肇趙噪燥櫂譟躁 正鎮圳甽政振朕症陣幀証賑諍鄭震鴆證贈
芝之支卮汁吱孜枝泜知肢咨姿胝玆祗脂茲隻梔淄孳滋訾資貲緇蜘輜諮錙髭織
梓止只旨址姊芷咫指祉籽紙衹趾紫滓 治字自至志制炙峙致恣秩痔窒智痣蛭稚置輊雉漬滯製誌幟摯緻質櫛擲躓
中忠宗盅衷終棕綜鍾蹤鬃鐘 重仲眾粽縱 州洲舟周陬粥週鄒鄹 竹足卒竺族逐燭鏃躅 庄莊妝裝樁 壯狀撞
卓灼斫昨茁酌啄琢濁擢濯鐲 左佐
"""

_LOOKS = """
栗粟票 烏鳥島 士土 園圍團圓 恆桓 淡談痰 份分 竿芊芋 坑抗 板扳 埔捕補鋪 埤婢碑 崁坎 宜宣 屏摒併 彰影
雄堆 基墓 隆降 鶯鷥 澎膨彭 壽籌 礁樵 芬苓 苑宛 斗抖 虎虛 梧捂 萬邁 瑞端 朴樸扑 莿剌 烈裂 枋仿
壢曆瀝 橋撟矯轎橘 溪漢 港巷 汐沙 湖糊 潭譚 蘆廬 鹿麗 莊裝 店居 崙輪 峰蜂 灣彎
北背比 桃挑 東束柬 投役
"""


def _first_of_each(groups: str) -> dict[int, str]:
    """A table that makes every character of a group its first one."""
    folded = (fold(group) for group in groups.split())
    return {ord(character): group[0] for group in folded for character in group}


_BY_SOUND = _first_of_each(_SOUNDS)
_BY_LOOK = _first_of_each(_LOOKS)


def sounds(text: str) -> str:
    """The same for folded texts that sound the same."""
    return text.translate(_BY_SOUND)


def looks(text: str) -> str:
    """The same for folded texts that look much the same."""
    return text.translate(_BY_LOOK)


def is_slip(one: str, other: str) -> bool:
    """Whether one character is wrong, missing or too much, or two neighbours are exchanged."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    if one[:1] != other[:1] and one[-1:] != other[-1:] and len(one) > 2 < len(other):
        return False  # a slip spares one end: most words are distinguished by that
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    one, other = one[start:], other[start:]
    if len(one) != len(other):
        return one[1:] == other or one == other[1:]
    return one[1:] == other[1:] or (one[1::-1] == other[:2] and one[2:] == other[2:])
