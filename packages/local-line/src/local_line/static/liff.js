// LIFF's SDK for pages on this machine: as in a browser outside of LINE's app. The page loads it from
// local-line's /liff/edge/2/sdk.js in the place of LINE's own; what is not here, it does not have.

(() => {
  const home = new URL(document.currentScript.src).origin;
  const kept = (name) => `LIFF_LOCAL:${liff.id}:${name}`;
  const NOT_HERE = ["scanCode", "scanCodeV2", "shareTargetPicker", "sendMessages", "requestFriendship", "createShortcutOnHomeScreen"];
  let tokens = null; // { access_token, id_token, expires_at }
  let beReady;

  function failure(code, message) {
    return Object.assign(new Error(message), { name: "LiffError", code });
  }

  // ---- beginning

  async function init({ liffId, withLoginOnExternalBrowser = false } = {}, onDone, onFailure) {
    try {
      if (!liffId) throw failure("INVALID_CONFIG", "liffId is necessary for liff.init()");
      liff.id = liffId;
      await takeCode();
      tokens = remembered();
      if (!tokens && withLoginOnExternalBrowser) return login();
      beReady();
      onDone?.();
    } catch (error) {
      if (!onFailure) throw error;
      onFailure(error);
    }
  }

  function remembered() {
    const found = JSON.parse(localStorage.getItem(kept("tokens")) ?? "null");
    return found && found.expires_at > Date.now() ? found : null;
  }

  /** Back from the login: its code is worth the tokens, once, and leaves the address. */
  async function takeCode() {
    const here = new URL(location.href), asked = JSON.parse(sessionStorage.getItem(kept("login")) ?? "null");
    const code = here.searchParams.get("code");
    if (!asked || here.searchParams.get("state") !== asked.state) return;
    sessionStorage.removeItem(kept("login"));
    for (const name of ["code", "state", "error", "error_description", "liffClientId", "liffRedirectUri"]) here.searchParams.delete(name);
    history.replaceState(history.state, "", here);
    if (!code) throw failure("UNAUTHORIZED", "The user didn't allow it.");
    const form = { grant_type: "authorization_code", code, redirect_uri: asked.redirect, client_id: channel(), liff_id: liff.id };
    const answer = await fetch(`${home}/oauth2/v2.1/token`, { method: "POST", body: new URLSearchParams(form) });
    const body = await answer.json();
    if (!answer.ok) throw failure("INIT_FAILED", body.error_description);
    localStorage.setItem(kept("tokens"), JSON.stringify({ ...body, expires_at: Date.now() + body.expires_in * 1000 }));
  }

  const channel = () => liff.id.split("-")[0];

  // ---- who it is

  function login({ redirectUri = location.href } = {}) {
    if (!liff.id) throw failure("INVALID_CONFIG", "Call liff.init() first.");
    const state = crypto.getRandomValues(new Uint32Array(2)).join("");
    sessionStorage.setItem(kept("login"), JSON.stringify({ state, redirect: redirectUri }));
    const query = { response_type: "code", client_id: channel(), redirect_uri: redirectUri, state, scope: "openid profile", liff_id: liff.id };
    location.assign(`${home}/oauth2/v2.1/authorize?${new URLSearchParams(query)}`);
  }

  function logout() {
    localStorage.removeItem(kept("tokens"));
    tokens = null;
  }

  async function ask(path) {
    if (!tokens) throw failure("UNAUTHORIZED", "Need access_token for api call, Please login first");
    const answer = await fetch(home + path, { headers: { Authorization: `Bearer ${tokens.access_token}` } });
    const body = await answer.json();
    if (!answer.ok) throw failure(String(answer.status), body.message);
    return body;
  }

  function getDecodedIDToken() {
    if (!tokens) return null;
    const bytes = atob(tokens.id_token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"));
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(bytes, (each) => each.charCodeAt(0))));
  }

  function getContext() {
    if (!liff.id) return null;
    const user = getDecodedIDToken()?.sub;
    return { type: "external", liffId: liff.id, endpointUrl: location.origin + location.pathname, scope: ["openid", "profile"], ...(user && { userId: user }) };
  }

  // ---- all of it

  const liff = {
    id: null,
    ready: new Promise((done) => { beReady = done; }),
    init, login, logout, getDecodedIDToken, getContext,
    isLoggedIn: () => tokens !== null,
    getAccessToken: () => tokens?.access_token ?? null,
    getIDToken: () => tokens?.id_token ?? null,
    getProfile: () => ask("/v2/profile"),
    getFriendship: () => ask("/friendship/v1/status"),
    isInClient: () => false,
    isApiAvailable: (name) => typeof liff[name] === "function" && !NOT_HERE.includes(name),
    getOS: () => "web",
    getLanguage: () => navigator.language,
    getAppLanguage: () => navigator.language,
    getVersion: () => "2.27.0",
    getLineVersion: () => null,
    openWindow: ({ url }) => { window.open(url, "_blank"); },
    closeWindow: () => { window.close(); },
  };
  for (const name of NOT_HERE) liff[name] = async () => { throw failure("FORBIDDEN", `liff.${name}() works in LINE's app only.`); };
  window.liff = liff;
})();
