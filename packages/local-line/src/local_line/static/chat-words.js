// The words of the page, in two languages. `?lang=` decides, then what was chosen before, then the browser.

const WORDS = {
  motto: ["LINE on this machine: phones, a bot, and the wire between them.", "這台電腦上的 LINE：手機、機器人，以及往來的每一則資料。"],
  pages: ["Pages", "頁面"],
  chat: ["Chat", "聊天"],
  pad: ["Flex pad", "Flex 試寫板"],
  menus: ["Rich menus", "圖文選單"],
  padMotto: ["Messages as JSON: drawn, and checked as LINE does.", "以 JSON 寫訊息：立即顯示，並依 LINE 的規則檢查。"],
  json: ["JSON of a Flex container, a message, or a request", "Flex 容器、訊息或請求的 JSON"],
  drawn: ["What it looks like", "顯示結果"],
  mistakes: ["Mistakes", "錯誤"],
  atLine: ["line {0}", "第 {0} 行"],
  accepted: ["LINE would take it.", "LINE 會接受。"],
  format: ["Format", "排版"],
  example: ["Example", "範例"],
  sendToChat: ["Send to the chat", "傳送到聊天"],
  inTheChat: ["It is in the chat.", "已經在聊天裡。"],
  tried: ["What the bot would get", "機器人會收到"],
  sendEvent: ["Send it to the bot", "傳送給機器人"],
  eventSent: ["Sent; the chat shows what the bot says.", "已送出；機器人的回應在聊天頁。"],
  menusMotto: ["The bot’s rich menus: what they look like, who sees them, what their areas do.", "機器人的圖文選單：外觀、誰看得到、每一格的動作。"],
  menusEmpty: ["There is none yet. A bot makes one with POST /v2/bot/richmenu.", "還沒有圖文選單。機器人可用 POST /v2/bot/richmenu 建立。"],
  menusHint: ["Tap an area: you see the event that the bot would get.", "點一格，就會看到機器人會收到的事件。"],
  defaultMenu: ["default", "預設"],
  seenBy: ["on the phone of {0}", "{0} 的手機看得到"],
  alias: ["alias {0}", "別名 {0}"],
  withoutPicture: ["no picture yet", "還沒有圖片"],
  skipHead: ["Skip to the page", "跳到內容"],
  gone: ["This page has lost its server. Start it again; the page finds it by itself.", "這個頁面連不上伺服器。重新啟動後，頁面會自動恢復。"],
  skip: ["Skip to the chat", "跳到聊天"],
  tools: ["Developer tools", "開發工具"],
  people: ["Whose phone", "誰的手機"],
  beside: ["{0} beside", "並排 {0}"],
  besideOf: ["The phone of {0}", "{0} 的手機"],
  language: ["中文", "English"],
  where: ["Where", "在哪裡"],
  private: ["1:1 chat", "一對一聊天"],
  group: ["Group", "群組"],
  room: ["Multi-person chat", "多人聊天"],
  anonymous: ["Group, no user id", "群組（不提供使用者 ID）"],
  does: ["What LINE does", "LINE 做的事"],
  follow: ["Add the bot", "加入好友"],
  followAgain: ["Add it again", "再次加入"],
  unblock: ["Unblock it", "解除封鎖"],
  unfollow: ["Block it", "封鎖"],
  redeliver: ["Redeliver the last event", "重送上一個事件"],
  pair: ["The last one twice, in one webhook", "同一則訊息送兩次（同一個 webhook）"],
  leave: ["Remove the bot from here", "將機器人移出這裡"],
  beacon: ["Pass a beacon", "經過 Beacon"],
  standby: ["Standby", "待命模式（standby）"],
  redelivery: ["Redeliver what fails", "失敗時自動重送"],
  wire: ["Over the wire", "往來的資料"],
  wireEmpty: ["Nothing yet. Say something, or tap the menu.", "還沒有資料。說句話，或點選單試試。"],
  legendOut: ["a webhook to the bot, and its answer", "送給機器人的 webhook 與它的回應"],
  legendIn: ["a call of the bot to LINE’s API", "機器人呼叫 LINE API"],
  talkEmpty: ["Write to the bot, or tap its menu.", "傳訊息給機器人，或點選單試試。"],
  talk: ["Conversation", "對話"],
  quick: ["Quick replies", "快速回覆"],
  more: ["More: place, sticker, picture, file", "更多：位置、貼圖、照片、檔案"],
  location: ["Location", "位置資訊"],
  sticker: ["Sticker", "貼圖"],
  image: ["Picture", "照片"],
  file: ["File …", "檔案…"],
  mention: ["@ the bot", "@ 機器人"],
  say: ["Write a message", "輸入訊息"],
  blocked: ["Blocked", "已封鎖"],
  send: ["Send", "傳送"],
  cancel: ["Cancel", "取消"],
  ok: ["OK", "確定"],
  menu: ["Rich menu", "圖文選單"],
  menuArea: ["Area {0} of the menu", "選單第 {0} 格"],
  camera: ["Camera", "相機"],
  cameraRoll: ["Photos", "相簿"],
  read: ["Read", "已讀"],
  lost: ["Not delivered", "未送達"],
  typing: ["Typing", "正在輸入"],
  bot: ["The bot: ", "機器人："],
  you: ["You: ", "您："],
  unsent: ["This message was unsent", "訊息已收回"],
  unsend: ["Unsend", "收回"],
  quote: ["Reply to this", "回覆這則"],
  quoting: ["Replying to: {0}", "回覆：{0}"],
  video: ["Video", "影片"],
  audio: ["Voice", "語音"],
  seconds: ["{0} s", "{0} 秒"],
  imagemap: ["Image map", "影像地圖"],
  seen: ["Seen to its end", "看完影片"],
  cards: ["{0} cards, to scroll sideways", "{0} 張卡片，可左右捲動"],
  coupon: ["Coupon", "優惠券"],
  until: ["until {0}", "有效至 {0}"],
  picture: ["Picture", "圖片"],
  sendPlace: ["Share a place", "傳送位置資訊"],
  place: ["Place", "地點"],
  latitude: ["Latitude", "緯度"],
  longitude: ["Longitude", "經度"],
  address: ["Address (may be empty)", "地址（可留白）"],
  spot: ["A spot on the map", "地圖上的點"],
  chooseTime: ["Choose a date and time", "選擇日期時間"],
  date: ["Date", "日期"],
  time: ["Time", "時間"],
  datetime: ["Date and time", "日期與時間"],
  waking: ["The bot is being woken …", "機器人啟動中…"],
  liffUnknown: ["Where is the page of this LIFF app? Start local-line with --liff {0}=URL", "找不到這個 LIFF app 的網頁。請以 --liff {0}=網址 啟動 local-line"],
  wouldOpen: ["A phone would open {0}", "手機會開啟 {0}"],
  wouldCopy: ["A phone would copy: {0}", "手機會複製：{0}"],
  copied: ["Copied.", "已複製。"],
  request: ["Sent", "送出"],
  answer: ["Answered", "回應"],
  nothing: ["nothing", "無內容"],
  showPicture: ["Picture: show", "圖片：顯示"],
  noPicture: ["Picture: cannot be loaded", "圖片：無法載入"],
  showIcon: ["{0}: show the icon", "{0}：顯示圖示"],
  notSent: ["Not sent: the server does not answer.", "未送出：連不上伺服器。"],
  curl: ["Copy as curl", "複製為 curl"],
  replay: ["Replay", "重播"],
  unknownCall: ["not served", "沒有提供"],
  reference: ["LINE’s reference", "LINE 的參考文件"],
  redelivered: ["redelivered", "重送"],
  onStandby: ["standby", "待命"],
  noAnswer: ["no answer in 2 s", "2 秒內沒有回應"],
  noConnection: ["no connection: is the bot running?", "連不上：機器人有啟動嗎？"],
  noHttp: ["no HTTP answer: did the bot crash?", "沒有 HTTP 回應：機器人當掉了嗎？"],
  sameSecret: ["refused: does the bot have the same channel secret?", "被拒絕：機器人的 channel secret 一樣嗎？"],
  rightPath: ["is the path of the webhook right?", "webhook 的路徑正確嗎？"],
  botFailed: ["the bot failed: its log says why", "機器人發生錯誤：請看它的記錄"],
  webhookRow: ["webhook: ", "webhook："],
  callRow: ["call: ", "呼叫："],
};

const KEY = "local-line.language";
const asked = new URLSearchParams(location.search).get("lang") ?? stored();
export const language = ["en", "zh"].includes(asked) ? asked : navigator.language.startsWith("zh") ? "zh" : "en";

function stored() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}

/** The words of that name; {0} is replaced by the first of *parts*. */
export function word(name, ...parts) {
  const text = WORDS[name]?.[language === "zh" ? 1 : 0] ?? name;
  return text.replace(/\{(\d)\}/g, (_, index) => parts[index]);
}

/** The page in the other language, at the same place. */
export function switchLanguage() {
  const other = language === "zh" ? "en" : "zh";
  try { localStorage.setItem(KEY, other); } catch { /* it is asked for in the address */ }
  const address = new URL(location.href);
  address.searchParams.set("lang", other);
  location.replace(address);
}

/** What stands in the page is in the language: `data-word` for the text, `data-label` for readers. */
export function translate(root = document) {
  document.documentElement.lang = language === "zh" ? "zh-Hant" : "en";
  for (const element of root.querySelectorAll("[data-word]")) element.textContent = word(element.dataset.word);
  for (const element of root.querySelectorAll("[data-label]")) element.setAttribute("aria-label", word(element.dataset.label));
  for (const link of root.querySelectorAll(".pages a")) link.search = location.search; // the same phone, place and language
  for (const element of root.querySelectorAll("[data-hint]")) element.placeholder = word(element.dataset.hint);
}
