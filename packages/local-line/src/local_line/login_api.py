"""LINE Login and channel access tokens.

GET  /oauth2/v2.1/verify?access_token=  200: {"scope", "client_id", "expires_in"} · 400
POST /oauth2/v2.1/verify  id_token, client_id   200: what it says · 400
GET  /v2/profile, /oauth2/v2.1/userinfo, /friendship/v1/status   with a user's token
POST /v2/oauth/{accessToken|verify|revoke} · /oauth2/v2.1/{token|revoke} · /oauth2/v3/token
GET  /oauth2/v2.1/tokens/kid
GET  /dialog/bot/accountLink?linkToken=&nonce=   where a bot's own page sends people back to
"""

import secrets
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response

from . import events
from .accounts import Person, same
from .calls import ApiRoute, Asked, done
from .logins import SHORT_TTL, STATELESS_TTL, USER_TTL, issuer_of
from .platform import Platform
from .refusals import Refusal
from .sources import Source

_JWT = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes; none of them needs a channel access token."""
    api = LoginApi(platform)
    routes = [
        ("GET", "/oauth2/v2.1/verify", api.verify),
        ("POST", "/oauth2/v2.1/verify", api.verify_id_token),
        ("GET", "/v2/profile", api.profile),
        ("GET", "/oauth2/v2.1/userinfo", api.userinfo),
        ("GET", "/friendship/v1/status", api.friendship),
        ("POST", "/v2/oauth/accessToken", api.issue_short),
        ("POST", "/v2/oauth/verify", api.verify_posted),
        ("POST", "/v2/oauth/revoke", api.revoke),
        ("POST", "/oauth2/v2.1/token", api.issue),
        ("POST", "/oauth2/v2.1/revoke", api.revoke),
        ("GET", "/oauth2/v2.1/tokens/kid", api.key_ids),
        ("POST", "/oauth2/v3/token", api.issue_stateless),
        ("GET", "/dialog/bot/accountLink", api.link_account),
    ]
    return [ApiRoute(method, path, handler, is_open=True) for method, path, handler in routes]


class LoginApi:
    """The routes about tokens and logins."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    # ---- what a token says

    async def verify(self, asked: Asked) -> Response:
        """Return how long an access token is valid, and for which channel."""
        return self._verified(asked.query("access_token") or "")

    async def verify_posted(self, asked: Asked) -> Response:
        """The same, for short-lived channel access tokens."""
        return self._verified((await asked.form()).get("access_token", ""))

    def _verified(self, token: str) -> Response:
        platform = self._platform
        left = platform.logins.left(token, platform.clock())
        if left is None and same(token, platform.channel.access_token):
            left = 0.0  # the console's does not end
        if left is None:
            return _refused("invalid_request", "access token expired")
        facts: dict[str, Any] = {"client_id": platform.channel.channel_id}
        is_user = platform.logins.user(token, platform.clock()) is not None
        facts |= {"scope": "profile openid"} if is_user else {}
        return done(facts | {"expires_in": int(left)})

    async def verify_id_token(self, asked: Asked) -> Response:
        """Return the claims of an ID token.

        400: it is not LINE's, not for that channel, or expired.
        """
        form, platform = await asked.form(), self._platform
        try:
            claims = platform.logins.claims(form.get("id_token", ""), platform.clock())
        except ValueError as error:
            return _refused("invalid_request", str(error))
        if form.get("client_id") != claims["aud"]:
            return _refused("invalid_request", "Invalid IdToken Audience.")
        if "nonce" in form and form["nonce"] != claims.get("nonce"):
            return _refused("invalid_request", "Invalid IdToken Nonce.")
        if "user_id" in form and form["user_id"] != claims["sub"]:
            return _refused("invalid_request", "Invalid IdToken Subject Identifier.")
        return done(claims)

    # ---- who it is

    async def profile(self, asked: Asked) -> Response:
        """Return the user of a token."""
        return done(self._person(asked).profile())

    async def userinfo(self, asked: Asked) -> Response:
        """Return the user of a token, in the fields of OpenID Connect."""
        person = self._person(asked)
        picture = {"picture": person.picture_url} if person.picture_url else {}
        return done({"sub": person.user_id, "name": person.name} | picture)

    async def friendship(self, asked: Asked) -> Response:
        """Return whether the user of a token has added the bot."""
        return done({"friendFlag": self._person(asked).is_friend})

    def _person(self, asked: Asked) -> Person:
        user_id = self._platform.logins.user(asked.bearer, self._platform.clock())
        if user_id is None:
            raise Refusal(401, "The access token expired")
        asked.chat_id = user_id
        return self._platform.accounts.person(user_id)

    async def link_account(self, asked: Asked) -> Response:
        """Send the bot an event that an account was linked.

        400: the token is unknown or expired.
        """
        token, nonce = asked.query("linkToken") or "", asked.query("nonce") or ""
        user_id = self._platform.link_tokens.spend(token, self._platform.clock())
        if user_id is None or not nonce:
            return PlainTextResponse("This link is used, too old or incomplete.", 400)
        asked.chat_id = user_id
        draft = events.account_link(nonce).by(Source.user(user_id))
        self._platform.start(self._platform.happen([draft]))
        return PlainTextResponse("The accounts are linked. You can close this page.")

    # ---- tokens of the channel

    async def issue_short(self, asked: Asked) -> Response:
        """Issue a token for 30 days, for the channel's id and secret."""
        form = await asked.form()
        if form.get("grant_type") != "client_credentials" or not self._is_secret(form):
            return _refused("invalid_client", "invalid client_secret")
        return done(self._token(SHORT_TTL))

    async def issue_stateless(self, asked: Asked) -> Response:
        """Issue a token for 15 minutes, for the channel's secret or a JWT."""
        form = await asked.form()
        if form.get("grant_type") != "client_credentials":
            return _refused("unsupported_grant_type", "unsupported grant type")
        if not self._is_secret(form) and not self._is_assertion(form):
            return _refused("invalid_client", "Invalid client")
        return done(self._token(STATELESS_TTL))

    async def issue(self, asked: Asked) -> Response:
        """Issue a token for 30 days: a user's for a code, or the channel's for a JWT.

        The signature of a JWT is not verified.
        """
        form = await asked.form()
        if form.get("grant_type") == "authorization_code":
            return self._user_token(form)
        if form.get("grant_type") != "client_credentials" or not self._is_assertion(form):
            return _refused("invalid_client", "Invalid client_assertion")
        key_id = secrets.token_urlsafe(16)
        return done(self._token(SHORT_TTL, key_id) | {"key_id": key_id})

    def _user_token(self, form: dict[str, str]) -> Response:
        platform, now = self._platform, self._platform.clock()
        uri = form.get("redirect_uri", "")
        grant = platform.logins.redeem(form.get("code", ""), uri, now)
        if grant is None:
            return _refused("invalid_grant", "invalid authorization code")
        is_liff = grant.liff_id is not None and grant.liff_id == form.get("liff_id")
        if not is_liff and not self._is_secret(form):
            return _refused("invalid_client", "invalid client_secret")
        person = platform.accounts.person(grant.user_id)
        login = platform.logins.log_in(person, now, nonce=grant.nonce)
        token = {"access_token": login.access_token, "token_type": "Bearer"}
        scope = {"scope": "openid profile", "expires_in": USER_TTL}
        return done(token | scope | {"id_token": login.id_token})

    async def key_ids(self, asked: Asked) -> Response:
        """List the ids of valid tokens that were issued for a JWT."""
        form = dict(asked.request.query_params)
        if not self._is_assertion(form):
            return _refused("invalid_client", "Invalid client_assertion")
        return done({"kids": self._platform.logins.key_ids(self._platform.clock())})

    async def revoke(self, asked: Asked) -> Response:
        """Revoke a token. The answer does not say whether it was ever valid."""
        self._platform.logins.revoke((await asked.form()).get("access_token", ""))
        return Response(status_code=200)

    def _token(self, ttl: int, key_id: str | None = None) -> dict[str, Any]:
        token = self._platform.logins.issue(self._platform.clock(), ttl=ttl, key_id=key_id)
        return {"access_token": token, "expires_in": ttl, "token_type": "Bearer"}

    def _is_secret(self, form: dict[str, str]) -> bool:
        channel = self._platform.channel
        given = form.get("client_id", ""), form.get("client_secret", "")
        return same(given[0], channel.channel_id) and same(given[1], channel.secret)

    def _is_assertion(self, form: dict[str, str]) -> bool:
        issuer = issuer_of(form.get("client_assertion", ""))
        right = self._platform.channel.channel_id
        return form.get("client_assertion_type") == _JWT and issuer == right


def _refused(error: str, words: str) -> Response:
    return JSONResponse({"error": error, "error_description": words}, 400)
