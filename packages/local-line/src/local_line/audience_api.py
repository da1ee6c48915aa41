"""Audiences over HTTP: made by hand, by file, or from what people did, and looked at.

/v2/bot/audienceGroup/upload, …/upload/byFile, …/click, …/imp, …/list, …/{audienceGroupId}
"""

from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

from starlette.responses import Response

from .audiences import Audience
from .calls import ApiRoute, Asked, done
from .platform import Platform
from .refusals import Detail, Refusal, wrong_body, wrong_parameter
from .sources import is_id

Json = dict[str, Any]
_MOST_USERS = 10_000


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes; what is fixed stands before what is not."""
    api = AudienceApi(platform)
    group = "/v2/bot/audienceGroup"
    one, shared = f"{group}/{{audienceGroupId}}", f"{group}/shared"
    return [
        ApiRoute("POST", f"{group}/upload", api.create),
        ApiRoute("PUT", f"{group}/upload", api.add),
        ApiRoute("POST", f"{group}/upload/byFile", api.create_by_file),
        ApiRoute("PUT", f"{group}/upload/byFile", api.add_by_file),
        ApiRoute("POST", f"{group}/click", api.create_by_click),
        ApiRoute("POST", f"{group}/imp", api.create_by_impression),
        ApiRoute("GET", f"{group}/list", api.list_all),
        ApiRoute("GET", f"{shared}/list", api.list_shared),
        ApiRoute("GET", f"{shared}/{{audienceGroupId}}", api.get_shared),
        ApiRoute("PUT", f"{one}/updateDescription", api.rename),
        ApiRoute("GET", one, api.get),
        ApiRoute("DELETE", one, api.delete),
    ]


class AudienceApi:
    """The audiences of the bot."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    # ---- made

    async def create(self, asked: Asked) -> Response:
        """Create an audience of these users."""
        body = await asked.json()
        return self._made(_word(body), _uploaded(body), body)

    async def add(self, asked: Asked) -> Response:
        """Add these users to an audience."""
        body = await asked.json()
        self._added(body.get("audienceGroupId"), _uploaded(body), body)
        return done(status=202)

    async def create_by_file(self, asked: Asked) -> Response:
        """Create an audience of the users in a file, one in each line."""
        parts = await _parts(asked)
        return self._made(_word(parts), _listed(parts), parts)

    async def add_by_file(self, asked: Asked) -> Response:
        """Add the users in a file to an audience."""
        parts = await _parts(asked)
        number = parts.get("audienceGroupId", "")
        self._added(int(number) if number.isdigit() else None, _listed(parts), parts)
        return done(status=202)

    async def create_by_click(self, asked: Asked) -> Response:
        """Create the audience of users who clicked a link.

        Clicks are not tracked here, so it is empty.
        """
        body = await asked.json()
        more = {name: body[name] for name in ("requestId", "clickUrl") if name in body}
        return self._from_message("CLICK", body, more, users=())

    async def create_by_impression(self, asked: Asked) -> Response:
        """Create the audience of users who have seen a message: all of its recipients."""
        body = await asked.json()
        sending = self._platform.sendings.find(str(body.get("requestId")))
        seen = () if sending is None else sending.recipients
        return self._from_message("IMP", body, {"requestId": body.get("requestId")}, users=seen)

    def _made(self, name: str, users: list[str], body: Json) -> Response:
        now = self._platform.clock()
        audience = self._platform.audiences.create("UPLOAD", name, now)
        self._platform.audiences.upload(audience, users, body.get("uploadDescription", ""), now)
        return done(audience.summary(), 202)

    def _added(self, number: Any, users: list[str], body: Json) -> None:
        audience, now = self._audience(number), self._platform.clock()
        self._platform.audiences.upload(audience, users, body.get("uploadDescription", ""), now)

    def _from_message(self, kind: str, body: Json, more: Json, users: tuple[str, ...]) -> Response:
        sending = self._platform.sendings.find(str(body.get("requestId")))
        if sending is None or sending.kind not in ("broadcast", "narrowcast"):
            raise wrong_body([Detail("requestId", "REQUEST_NOT_FOUND")])
        now = self._platform.clock()
        audience = self._platform.audiences.create(kind, _word(body), now, more)
        audience.users |= set(users)
        return done(audience.summary(), 202)

    # ---- looked at

    async def list_all(self, asked: Asked) -> Response:
        """List a page of audiences."""
        return done(self._page(asked, self._platform.audiences.all()))

    async def list_shared(self, asked: Asked) -> Response:
        """List no shared audiences; with `includesOwnedAudienceGroups`, the bot's own."""
        own = asked.query("includesOwnedAudienceGroups") == "true"
        return done(self._page(asked, self._platform.audiences.all() if own else []))

    def _page(self, asked: Asked, audiences: list[Audience]) -> Json:
        page, size = _whole(asked, "page", None, 10**9), _whole(asked, "size", 20, 40)
        wanted = (asked.query("description") or "").lower()
        found = [each for each in audiences if wanted in each.description.lower()]
        first, last = (page - 1) * size, page * size
        facts: Json = {"audienceGroups": [each.facts() for each in found[first:last]]}
        facts |= {"hasNextPage": last < len(found), "totalCount": len(found)}
        return facts | {"readWriteAudienceGroupTotalCount": len(found), "page": page, "size": size}

    async def get(self, asked: Asked) -> Response:
        """Return an audience, and how its users were added."""
        audience = self._asked_for(asked)
        return done({"audienceGroup": audience.facts(), "jobs": audience.jobs})

    async def get_shared(self, asked: Asked) -> Response:
        """Return a shared audience, and whose it is."""
        audience, channel = self._asked_for(asked), self._platform.channel
        owner = {"serviceType": "msgapi", "id": channel.basic_id, "name": channel.name}
        return done({"audienceGroup": audience.facts(), "jobs": audience.jobs, "owner": owner})

    async def rename(self, asked: Asked) -> Response:
        """Rename an audience."""
        self._asked_for(asked).description = _word(await asked.json())
        return done()

    async def delete(self, asked: Asked) -> Response:
        """Delete an audience."""
        self._platform.audiences.delete(self._asked_for(asked))
        return done()

    def _asked_for(self, asked: Asked) -> Audience:
        text = asked.part("audienceGroupId")
        return self._audience(int(text) if text.isascii() and text.isdigit() else None)

    def _audience(self, number: Any) -> Audience:
        found = self._platform.audiences.find(number) if type(number) is int else None
        if found is None:
            raise Refusal(400, "AUDIENCE_GROUP_NOT_FOUND", [Detail("", "AUDIENCE_GROUP_NOT_FOUND")])
        return found


def _word(body: Json) -> str:
    value = body.get("description")
    if not isinstance(value, str) or not 1 <= len(value) <= 120:
        raise wrong_body([Detail("description", "Length must be between 1 and 120")])
    return value


def _uploaded(body: Json) -> list[str]:
    listed = body.get("audiences", [])
    if not isinstance(listed, list) or len(listed) > _MOST_USERS:
        raise wrong_body([Detail("audiences", f"Size must be between 0 and {_MOST_USERS}")])
    return _only_users([each.get("id") if isinstance(each, dict) else None for each in listed])


def _listed(parts: dict[str, str]) -> list[str]:
    return _only_users(
        [line.strip() for line in parts.get("file", "").splitlines() if line.strip()]
    )


def _only_users(ids: list[Any]) -> list[str]:
    if not all(is_id(each, "U") for each in ids):
        raise wrong_body([Detail("audiences", "WRONG_BODY_VALUE")])
    return ids


async def _parts(asked: Asked) -> dict[str, str]:
    """The fields of a form with a file. Refusal: 415, the body is not one."""
    if asked.media_type != "multipart/form-data":
        raise Refusal(415, f"The content type, {asked.media_type}, is not supported")
    head = f"Content-Type: {asked.header('content-type')}\r\n\r\n".encode("latin-1")
    message = BytesParser(policy=HTTP).parsebytes(head + await asked.data())
    found: dict[str, str] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        found[str(name)] = data.decode("utf-8", "replace") if isinstance(data, bytes) else ""
    return found


def _whole(asked: Asked, name: str, usual: int | None, most: int) -> int:
    text = asked.query(name)
    if text is None and usual is not None:
        return usual
    if text is None or not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= most:
        raise wrong_parameter(name)
    return int(text)
