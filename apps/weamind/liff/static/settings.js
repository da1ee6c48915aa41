// Home and office, chosen and saved. Nothing is ever sent into the chat: the bot would take it for a query.

const TIMEOUT = 15000;
const WORDS = { home: "住家", office: "公司" };
const KINDS = Object.keys(WORDS);
const $ = (id) => document.getElementById(id);
const current = { home: null, office: null };
let counties = [];

class Failure extends Error {
  constructor(status) {
    super(`status ${status}`);
    this.status = status;
  }
}

// ---- asking

async function ask(path, options = {}) {
  const ending = new AbortController();
  const timer = setTimeout(() => ending.abort(), TIMEOUT);
  try {
    const answer = await fetch(path, { ...options, signal: ending.signal });
    if (!answer.ok) throw new Failure(answer.status);
    return await answer.json();
  } finally {
    clearTimeout(timer);
  }
}

function askAsMe(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${liff.getAccessToken()}` };
  return ask(path, { ...options, headers });
}

function store(kind, place) {
  return askAsMe("/users/locations", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ location_type: kind, place }),
  });
}

// ---- the two cards

const countySelect = (kind) => $(`${kind}-county`);
const townSelect = (kind) => $(`${kind}-town`);

function prompt(words) {
  const option = new Option(words, "", true, true);
  option.disabled = true;
  return option;
}

function fillCounties(kind) {
  const options = counties.map((county) => new Option(county.name, county.code));
  countySelect(kind).replaceChildren(prompt("請選擇縣市"), ...options);
}

function fillTowns(kind) {
  const county = counties.find((each) => each.code === countySelect(kind).value);
  const towns = county ? county.towns.map((town) => new Option(town.name, town.code)) : [];
  const whole = county ? [new Option(`整個${county.name}`, county.code)] : [];
  townSelect(kind).replaceChildren(prompt("請選擇鄉鎮市區"), ...towns, ...whole);
  townSelect(kind).disabled = !county;
}

function show(kind, place) {
  current[kind] = place ? place.code : null;
  document.querySelector(`#${kind} [data-now]`).textContent = place ? place.name : "尚未設定";
  const listed = place && /^[0-9]/.test(place.code); // a landmark, set in the chat, is in no list
  fillCounties(kind);
  if (listed) countySelect(kind).value = place.code.slice(0, 5);
  fillTowns(kind);
  if (listed) townSelect(kind).value = place.code;
}

// ---- what may be saved

const chosen = (kind) => townSelect(kind).value;
const isChanged = (kind) => chosen(kind) !== "" && chosen(kind) !== current[kind];
const isHalfDone = (kind) => countySelect(kind).value !== "" && chosen(kind) === "";

function judge() {
  $("save").disabled = !KINDS.some(isChanged) || KINDS.some(isHalfDone);
}

// ---- telling

function hideAll() {
  for (const id of ["loading", "done", "problem", "again", "login", "close"]) $(id).hidden = true;
}

function showMessage(id, words) {
  hideAll();
  $(id).textContent = words;
  $(id).hidden = false;
  $(id).focus();
  $(id).scrollIntoView({ block: "nearest" });
}

function tellDone(saved) {
  const lines = saved.map((kind) => `✅ ${WORDS[kind]}已設為${document.querySelector(`#${kind} [data-now]`).textContent}`);
  showMessage("done", [...lines, liff.isInClient() ? "" : "您可以關閉這個頁面了。"].filter(Boolean).join("\n"));
  $("close").hidden = !liff.isInClient();
}

function tellStranger() {
  showMessage("problem", liff.isInClient() ? "登入已過期，請關閉後再從聊天室開啟一次。" : "登入已過期，請重新登入。");
  $("close").hidden = !liff.isInClient();
  $("login").hidden = liff.isInClient();
}

function tellFailure(error, words) {
  if (error.status === 401) tellStranger();
  else showMessage("problem", words);
}

// ---- saving

function lock(isLocked) {
  for (const kind of KINDS) $(kind).disabled = isLocked;
  $("save").textContent = isLocked ? "儲存中…" : "儲存";
  $("save").disabled = isLocked;
}

async function save(event) {
  event.preventDefault();
  if ($("save").disabled) return;
  const saved = [];
  const wanted = KINDS.filter(isChanged);
  hideAll();
  lock(true);
  try {
    for (const kind of wanted) {
      const answer = await store(kind, chosen(kind));
      show(kind, answer.place);
      saved.push(kind);
    }
    tellDone(saved);
  } catch (error) {
    const missing = wanted.filter((kind) => !saved.includes(kind)).map((kind) => WORDS[kind]);
    tellFailure(error, `😥 ${missing.join("和")}沒有儲存成功，請稍後再試一次。`);
  } finally {
    lock(false);
    judge();
  }
}

// ---- beginning

async function begin() {
  hideAll();
  $("loading").hidden = false;
  try {
    await liff.init({ liffId: document.querySelector("meta[name=liff-id]").content });
    if (!liff.isLoggedIn()) return liff.login();
    const [places, me] = await Promise.all([ask("/liff/places"), askAsMe("/users/me")]);
    counties = places.counties;
    for (const kind of KINDS) show(kind, me[kind]);
    hideAll();
    $("form").hidden = false;
  } catch (error) {
    tellFailure(error, "😥 目前無法載入您的設定，請稍後再試一次。您也可以在聊天室輸入「設定」。");
    $("again").hidden = error.status === 401;
  }
}

for (const kind of KINDS) {
  countySelect(kind).addEventListener("change", () => fillTowns(kind));
  $(kind).addEventListener("change", () => { hideAll(); judge(); });
}
$("form").addEventListener("submit", save);
// A new start, and not begin(): if the SDK did not come, there is nothing to begin with.
$("again").addEventListener("click", () => location.reload());
$("login").addEventListener("click", () => { liff.logout(); liff.login(); });
$("close").addEventListener("click", () => liff.closeWindow());
begin();
