"""Our own guard, altered: each mutant is wrong in one way, and names the cases that see it."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from dibs_torture import App
from dibs_torture.asgi import Receive, Scope, Send

from dibs import AsyncDibs
from dibs._async import lease_table, renewer
from dibs._core import claim
from dibs._http import content, policy, problems, responses, submission
from dibs._http.facts import RequestFacts, RequestHeaders
from dibs._http.submission import Submitter
from dibs.integrations import asgi
from dibs.integrations.asgi import DibsMiddleware, Policy
from dibs.testing import Server

LEASE, WINDOW = 1.0, 60.0
Alteration = Callable[[pytest.MonkeyPatch], None]
DROPPED = ("set-cookie", "date", "connection", "keep-alive", "content-length")
DROPPED += ("www-authenticate", "proxy-authenticate")


@dataclass(frozen=True)
class Mutant:
    """One way to be wrong: what is altered, and which cases must fail for it, and no others."""

    wrong: str
    caught_by: set[str]
    alter: Alteration = lambda patch: None
    policy: dict[str, Any] = field(default_factory=dict[str, Any])
    adapter: dict[str, Any] = field(default_factory=dict[str, Any])
    namespace: Callable[[], str] = str
    layer: Callable[[App, Server], App] = lambda app, server: app

    def wrap(self, server: Server, opened: list[AsyncDibs]) -> Callable[..., App]:
        """A wrap for the suite; what it opens is in *opened*."""
        options: dict[str, Any] = {"key": "required", "lease": LEASE, "window": WINDOW}
        policy = Policy("POST,PUT /guarded*", **({"after": "replay"} | options | self.policy))

        def wrap(app: App, service: str = "") -> App:
            opened.append(AsyncDibs(server.url, namespace=self.namespace(), budget=2.0))
            guard = DibsMiddleware(app, dibs=opened[-1], policies=[policy], service=service)
            return self.layer(guard, server)

        return wrap


def facts(change: Callable[[RequestFacts], RequestFacts]) -> Alteration:
    """The guard sees other facts than there are."""

    def alter(patch: pytest.MonkeyPatch) -> None:
        true = asgi.submission_of
        patch.setattr(
            asgi,
            "submission_of",
            lambda policy, facts, keys, site: true(policy, change(facts), keys, site),
        )

    return alter


def _as_json(seen: RequestFacts) -> RequestFacts:
    if seen.media_type != "application/x-www-form-urlencoded":
        return seen
    pairs = [list(pair) for pair in parse_qsl(seen.body.decode())]
    headers = RequestHeaders({"content-type": "application/json"})
    return seen._replace(body=json.dumps(pairs).encode(), headers=headers)


def _without_files(seen: RequestFacts) -> RequestFacts:
    if seen.media_type != "multipart/form-data":
        return seen
    return seen._replace(body=seen.body.partition(b"filename")[0], headers=RequestHeaders())


def submitters(change: Callable[[Submitter, dict[str, str]], Submitter]) -> Alteration:
    """The guard takes somebody else for who submits. *change* gets the headers, too."""

    def alter(patch: pytest.MonkeyPatch) -> None:
        true = submission.identify

        def changed(user: object, headers: Any, *rest: Any, **more: Any) -> Any:
            found = true(user, headers, *rest, **more)
            return change(found, headers) if isinstance(found, Submitter) else found

        patch.setattr(submission, "identify", changed)

    return alter


def _with_cookies(found: Submitter, headers: dict[str, str]) -> Submitter:
    return found._replace(user=f"{found.user} {headers.get('cookie')}")


def _without_service(patch: pytest.MonkeyPatch) -> None:
    true = asgi.submission_of
    patch.setattr(
        asgi,
        "submission_of",
        lambda policy, facts, keys, site: true(policy, facts, keys, replace(site, service="")),
    )


def _cuts_count(patch: pytest.MonkeyPatch) -> None:
    read = asgi.RequestBody.read

    async def counted(self: Any, headers: dict[str, str], policy: Any) -> Any:
        receive, count = self._receive, 0

        async def counting() -> Any:
            nonlocal count
            count += 1
            return await receive()

        self._receive = counting
        try:
            return await read(self, headers, policy)
        finally:
            self._receive = receive
            headers["x-pieces"] = str(count)

    patch.setattr(asgi.RequestBody, "read", counted)
    facts(lambda seen: seen._replace(query=f"{seen.query} {seen.headers['x-pieces']}"))(patch)


def _leaking(app: App, server: Server) -> App:
    async def layer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            server.client().set("guarded", repr(scope["headers"]), px=900)
        await app(scope, receive, send)

    return layer


def _never_renewed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(renewer.AsyncRenewer, "keep", lambda self, lease: None)


def _more_headers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        responses,
        "storable",
        lambda headers: tuple(
            (name.decode(), value.decode())
            for name, value in headers
            if name.decode().lower() not in DROPPED
        ),
    )


def _final(*statuses: int) -> Alteration:
    """Answers with these statuses are stored, also if they say "later"."""

    def alter(patch: pytest.MonkeyPatch) -> None:
        for name in ("_LATER", "_NOT_FINAL"):
            left = tuple(each for each in getattr(policy, name) if each not in statuses)
            patch.setattr(policy, name, left)
        if 429 in statuses:
            patch.setattr(responses.Recording, "is_later", False)

    return alter


def _refusing(**changes: str) -> Alteration:
    """Refusals have other headers."""

    def alter(patch: pytest.MonkeyPatch) -> None:
        make = problems._problem

        def changed(*args: Any, **options: Any) -> Any:
            made = make(*args, **options)
            lines = [(name, changes.get(name.replace("-", "_"), value)) for name, value in made[1]]
            return made._replace(headers=tuple(lines))

        patch.setattr(problems, "_problem", changed)

    return alter


def _showing_keys(patch: pytest.MonkeyPatch) -> None:
    claim = asgi.claim_request

    async def shown(dibs: Any, policy: Any, name: str, submission: Any) -> Any:
        outcome = await claim(dibs, policy, name, submission)
        if not isinstance(outcome, responses.Response):
            return outcome
        line = ("x-lock", getattr(submission, "key", ""))
        return outcome._replace(headers=(*outcome.headers, line))

    patch.setattr(asgi, "claim_request", shown)


def _ending(forgotten: str) -> Alteration:
    """What was done is forgotten, if a write meets this."""

    def alter(patch: pytest.MonkeyPatch) -> None:
        decide = lease_table.next_write

        def decided(record: Any, write: Any, met: Any) -> Any:
            return claim.LATE if met.what == forgotten else decide(record, write, met)

        patch.setattr(lease_table, "next_write", decided)

    return alter


class _AnyScheme:
    def __contains__(self, scheme: str) -> bool:
        return bool(scheme)


MUTANTS: dict[str, Mutant] = {
    "method_ignored": Mutant(
        "a key counts for every method",
        {"other_method"},
        facts(lambda seen: seen._replace(method="")),
    ),
    "case_ignored": Mutant(
        "tokens are compared without case",
        {"other_user_by_case"},
        submitters(lambda found, _: found._replace(user=found.user and found.user.lower())),
    ),
    "any_scheme": Mutant(
        "a new signature is another user",
        {"signed_login"},
        lambda patch: patch.setattr(submission, "_STABLE", _AnyScheme()),
    ),
    "forms_by_bytes": Mutant(
        "another boundary is another form",
        {"form_with_another_boundary"},
        lambda patch: patch.setattr(content, "read_multipart", lambda kind, body: None),
    ),
    "json_by_bytes": Mutant(
        "another order is another payload",
        {"json_written_otherwise"},
        lambda patch: patch.setattr(content, "_json_data", lambda body, decoder: None),
    ),
    "cors_replayed": Mutant(
        "the permission of one origin goes to another",
        {"replay_drops_cors"},
        lambda patch: patch.setattr(responses, "_PREFIXES_NOT_STORED", ("ratelimit",)),
    ),
    "repeated_headers_lost": Mutant(
        "of several lines one is replayed",
        {"replay_keeps_repeated_headers"},
        lambda patch: patch.setattr(
            responses,
            "storable",
            lambda headers, true=responses.storable: tuple(dict(true(headers)).items()),
        ),
    ),
    "two_lengths": Mutant(
        "the length is stored, and computed again",
        {"replay_of_nothing"},
        lambda patch: patch.setattr(
            responses, "_NOT_STORED", responses._NOT_STORED - {"content-length"}
        ),
    ),
    "later_kept": Mutant(
        "come back later is a result", {"later_is_no_result"}, _final(423, 425, 429)
    ),
    "login_kept": Mutant("log in is a result", {"login_is_no_result"}, _final(401, 403)),
    "invalid_kept": Mutant(
        "a key belongs to what was not valid", {"invalid_is_no_result"}, _final(400, 422)
    ),
    "back_in_a_day": Mutant(
        "a running request blocks for a day", {"refusal_says_when"}, _refusing(retry_after="86400")
    ),
    "refusals_cached": Mutant(
        "a refusal may be kept",
        {"refusal_is_not_cached"},
        _refusing(cache_control="public, max-age=60"),
    ),
    "keys_shown": Mutant(
        "a refusal names its key in the store", {"store_key_stays_inside"}, _showing_keys
    ),
    "guards_itself": Mutant(
        "a request is its own duplicate",
        {"guarded_twice"},
        lambda patch: patch.setattr(asgi, "mark_guarded", lambda marks: None),
    ),
    "forgets_when_full": Mutant(
        "what does not fit was not done", {"full_store"}, _ending("refused")
    ),
    "forgets_when_late": Mutant(
        "what took too long was not done", {"work_that_blocks_its_loop"}, _ending("free")
    ),
    "shared_by_all_users": Mutant(
        "all users have one space of keys",
        {"other_user", "other_user_while_running", "other_user_by_case"},
        submitters(lambda found, _: Submitter(None, None)),
    ),
    "path_ignored": Mutant(
        "a key counts on every path",
        {"other_path"},
        facts(lambda seen: seen._replace(path="")),
    ),
    "query_ignored": Mutant(
        "the query is no part of the payload",
        {"other_query"},
        facts(lambda seen: seen._replace(query="")),
    ),
    "sixteen_bytes_compared": Mutant(
        "the payload is its first 16 bytes",
        {"payloads_that_begin_alike", "other_file", "big_body_with_another_end"}
        | {"form_with_another_boundary", "json_written_otherwise"},
        facts(lambda seen: seen._replace(body=seen.body[:16], long=None)),
    ),
    "never_renewed": Mutant(
        "a claim ends while the work goes on", {"work_outlasts_its_lease"}, _never_renewed
    ),
    "day_long_lease": Mutant(
        "a crash blocks its key for a day", {"lease_ends_by_itself"}, policy={"lease": 86400}
    ),
    "ten_year_window": Mutant(
        "an answer is kept for ten years",
        {"result_ends_with_its_window"},
        policy={"window": 10 * 365 * 86400},
    ),
    "namespace_of_its_own": Mutant(
        "each process has keys of its own",
        {"another_instance", "another_instance_while_running"},
        namespace=lambda: f"{uuid.uuid4()}:",
    ),
    "headers_in_the_store": Mutant(
        "the headers of requests are in the store",
        {"secrets_stay_out_of_the_store"},
        layer=_leaking,
    ),
    "more_headers_replayed": Mutant(
        "whatever is not on a short list is replayed",
        {"replay_has_no_trace_of_the_first", "replay_drops_cors"},
        _more_headers,
    ),
    "cookies_are_users": Mutant(
        "another cookie is another user", {"cookies_change"}, submitters(_with_cookies)
    ),
    "files_ignored": Mutant(
        "files are no part of a form",
        {"other_file", "form_with_another_boundary"},
        facts(_without_files),
    ),
    "kinds_ignored": Mutant(
        "a form is the same as a list of pairs", {"json_is_no_form"}, facts(_as_json)
    ),
    "cuts_compared": Mutant(
        "a body that is cut otherwise is another one",
        {"body_in_pieces", "big_body_cut_otherwise"},
        _cuts_count,
    ),
    "root_path_ignored": Mutant(
        "below a root path nothing is guarded",
        {"behind_a_root_path"},
        lambda patch: patch.setattr(asgi, "paths_of", lambda scope: (scope["path"],)),
    ),
    "service_ignored": Mutant(
        "two applications on one store share keys",
        {"another_service"},
        _without_service,
    ),
    "not_found_kept": Mutant(
        "a 404 is a result",
        {"not_found_is_no_result"},
        lambda patch: patch.setattr(policy, "_FROM_ROUTER", ()),
    ),
    "coding_kept": Mutant(
        "a coded answer goes to whoever asks",
        {"replay_can_be_read"},
        lambda patch: patch.setattr(problems, "readable", lambda stored, *_: stored),
    ),
    "unknown_is_somebody": Mutant(
        "all who are not known are one",
        {"unknown_client"},
        submitters(lambda found, _: Submitter(found.user or "anybody", None)),
        policy={"key": "optional"},
        adapter={"required": False, "keyless": "guard"},
    ),
    "keyless_swallowed": Mutant(
        "what carries no key is guarded, and should not be",
        {"keyless_runs"},
        policy={"key": "optional"},
        adapter={"required": False, "keyless": "run"},
    ),
    "keyless_open": Mutant(
        "what carries no key is not guarded, and should be",
        {"keyless_is_guarded"},
        policy={"key": "only"},
        adapter={"required": False, "keyless": "guard"},
    ),
}


@contextlib.contextmanager
def altered(mutant: Mutant) -> Any:
    """The guard is that mutant until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.alter(patch)
        yield
