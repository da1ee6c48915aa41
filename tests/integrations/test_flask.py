"""The decorator for Flask: views, errors, streams, forms, and whose cookie it was."""

import functools
import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, abort, request, send_file, session
from flask.testing import FlaskClient
from flask.views import MethodView

from dibs import Dibs, Event, UsageError
from dibs.integrations.flask import install, once, prevent_duplicate_submit
from dibs.testing import Server, eventually

from . import is_problem

pytestmark = pytest.mark.usefixtures("nothing_stays_open")

KEYED = {"idempotency-key": "k-1"}
replaying = once(window=60, after="replay", key="required")


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url, budget=5) as dibs:
        yield dibs


def shop(dibs: Dibs | str, **options: Any) -> Flask:
    app = Flask(__name__)
    app.secret_key = "of the tests"
    install(app, dibs, **options)
    return app


def is_replay(response: Any) -> bool:
    return response.headers.get("Idempotent-Replayed") == "true"


# ---- a double click


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_of_many_at_once_one_runs_in_flask(valkey: Server, dibs: Dibs, kind: str) -> None:
    """The seed's own decorator: one order, the others 429; afterwards it is free."""
    app = shop(dibs)
    runs: list[Any] = []
    gate = threading.Event()
    guard = prevent_duplicate_submit(interval=10, message="請稍候…")

    def order() -> tuple[dict[str, int], int]:
        runs.append(request.get_json())
        assert gate.wait(20)
        return {"order": len(runs)}, 201

    async def async_order() -> tuple[dict[str, int], int]:
        return order()

    app.post("/orders")(guard(order if kind == "plain" else async_order))

    def click(_: int) -> Any:
        return app.test_client().post("/orders", json={"tea": 1})

    with ThreadPoolExecutor(6) as people:
        clicks = [people.submit(click, number) for number in range(6)]
        eventually(lambda: sum(each.done() for each in clicks) == 5, within=90)
        [key] = valkey.keys()
        left = valkey.client().pttl(key) / 1000
        gate.set()
        answers = [each.result() for each in clicks]
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) == 5 and runs == [{"tea": 1}]
    for each in refused:
        assert is_problem(each.get_json(force=True), each.headers, 429)
        assert each.get_json(force=True)["message"] == "請稍候…"
        assert left <= each.get_json(force=True)["retryAfter"] <= 10
    assert click(0).get_json() == {"order": 2} and valkey.keys() == []


def test_retry_after_is_true_in_flask(dibs: Dibs) -> None:
    """Who waits as long as told gets through."""
    app = shop(dibs)
    app.post("/orders")(once(window=2, after="hold")(lambda: "ordered"))
    client = app.test_client()
    assert client.post("/orders").status_code == 200
    refused = client.post("/orders")
    assert refused.status_code == 429 and refused.headers["Retry-After"] in ("1", "2")
    sleep(int(refused.headers["Retry-After"]))
    assert client.post("/orders").status_code == 200


# ---- views and keys


def test_a_retry_gets_the_first_answer_in_flask(dibs: Dibs) -> None:
    """Status, body and headers of any return value of the view; never a cookie."""
    app = shop(dibs)
    outcomes: dict[str, Any] = {
        "text": "ordered",
        "json": ({"order": 1}, 201, {"X-Total": "1"}),
        "nothing": ("", 204),
        "headers": Response(b"\x00\xff", 202, [("Link", "</a>"), ("Link", "</b>")]),
    }

    @app.post("/<how>")
    @replaying
    def view(how: str) -> Any:
        session["user"] = "of one person"
        return outcomes[how]

    @app.after_request
    def stamp(response: Response) -> Response:
        response.headers["X-Stamp"] = "1"
        return response

    for how in outcomes:
        first, again = [app.test_client().post(f"/{how}", headers=KEYED) for _ in range(2)]
        assert (again.status, again.data) == (first.status, first.data)
        assert again.headers.getlist("Link") == first.headers.getlist("Link")
        for name in ("Content-Type", "X-Total", "X-Stamp", "Content-Length"):
            assert again.headers.get(name) == first.headers.get(name), (how, name)
        assert "Set-Cookie" in first.headers and "Set-Cookie" not in again.headers
        assert is_replay(again) and not is_replay(first)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Idempotency-Key", '"k-1"')], 201),
        ([], 400),
        ([("Idempotency-Key", "")], 400),
        ([("Idempotency-Key", "a"), ("Idempotency-Key", "b")], 400),
        ([("Idempotency-Key", "a,b")], 400),
        ([("Idempotency-Key", '"a,b"')], 201),
        ([("Idempotency-Key", "k" * 256)], 400),
    ],
    ids=str,
)
def test_keys_in_flask(valkey: Server, dibs: Dibs, headers: Any, status: int) -> None:
    """Raw or quoted; missing, malformed or two of them are refused, and nothing is done."""
    app = shop(dibs)
    runs: list[int] = []
    app.post("/orders")(replaying(lambda: (runs.append(1) or "ordered", 201)))
    answer = app.test_client().post("/orders", headers=headers)
    assert answer.status_code == status
    assert len(runs) == len(valkey.keys()) == (status == 201)
    if status == 400:
        assert is_problem(answer.get_json(force=True), answer.headers, 400)


def test_the_same_key_with_another_payload(dibs: Dibs) -> None:
    """422, and the first answer is still there for the right one."""
    app = shop(dibs)
    app.post("/orders")(replaying(lambda: "ordered"))
    client = app.test_client()
    client.post("/orders", json={"tea": 1}, headers=KEYED)
    other = client.post("/orders", json={"tea": 2}, headers=KEYED)
    assert is_problem(other.get_json(force=True), other.headers, 422)
    assert is_replay(client.post("/orders", json={"tea": 1}, headers=KEYED))


def test_blueprints_classes_and_names(valkey: Server) -> None:
    """Each is a separate route; events name the rule, never a value of the request."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        app = shop(dibs)
        by_cart = once(window=60, after="hold", by="body.cart")

        class Lines(MethodView):
            @by_cart
            def post(self, number: int) -> str:
                return f"line of {number}"

            @by_cart
            def put(self, number: int) -> str:
                return f"line of {number}"

        for prefix in ("/orders/<int:number>", "/refunds/<int:number>"):
            blueprint = Blueprint(prefix.split("/")[1], __name__)
            blueprint.post("/pay")(by_cart(lambda number: f"paid {number}"))
            blueprint.add_url_rule("/lines", view_func=Lines.as_view("lines"))
            app.register_blueprint(blueprint, url_prefix=prefix)
        client = app.test_client()
        for path in ("/orders/9001/pay", "/refunds/9001/pay", "/orders/9001/lines"):
            assert client.post(path, json={"cart": 1}).status_code == 200, path
            assert client.post(path, json={"cart": 1}).status_code == 429, path
        assert client.put("/orders/9001/lines", json={"cart": 1}).status_code == 200
    assert {event.name for event in events} == {
        "POST /orders/<int:number>/pay", "POST /refunds/<int:number>/pay",
        "POST /orders/<int:number>/lines", "PUT /orders/<int:number>/lines",
    }  # fmt: skip


def test_by_a_part_of_the_path_in_flask(dibs: Dibs) -> None:
    """As the rule names it."""
    app = shop(dibs)
    app.post("/orders/<int:number>/<note>")(
        once(window=60, after="hold", by=["path.number"])(lambda number, note: note)
    )
    client = app.test_client()
    statuses = [client.post(f"/orders/{path}").status_code for path in ("1/a", "1/b", "2/a")]
    assert statuses == [200, 429, 200]


# ---- who it is


def test_nobody_gets_the_answer_of_somebody_else_in_flask(dibs: Dibs) -> None:
    """By login; a key without a login belongs to no user, and is not theirs."""
    app = shop(dibs)
    app.post("/orders")(replaying(lambda: "ordered"))
    people: list[tuple[str, dict[str, str]]] = [
        ("10.0.0.1", {}),
        ("10.0.0.3", {"Authorization": "Bearer a"}),
        ("10.0.0.3", {"Authorization": "Bearer b"}),
        ("10.0.0.3", {"Authorization": "Bearer 10.0.0.1"}),
    ]
    for address, headers in people:
        for number in range(2):
            answer = app.test_client(use_cookies=False).post(
                "/orders", headers={**KEYED, **headers}, environ_base={"REMOTE_ADDR": address}
            )
            assert is_replay(answer) is (number == 1), (address, headers)


def test_the_application_says_who_it_is_in_flask(dibs: Dibs) -> None:
    """By a function without arguments, which may look at the session."""
    app = shop(dibs, user=lambda: session.get("user"))
    app.post("/orders")(replaying(lambda: "ordered"))
    for user in ("a", "b"):
        for number in range(2):
            client = app.test_client()
            with client.session_transaction() as jar:
                jar["user"] = user
            assert is_replay(client.post("/orders", headers=KEYED)) is (number == 1)


@pytest.mark.parametrize("secret", ["of the app", "given"])
def test_hashes_are_keyed_by_the_secret_of_the_app(valkey: Server, dibs: Dibs, secret: str) -> None:
    """Or by one that is given: another secret, other keys, and no data in any of them."""
    keys: list[str] = []
    for number in range(3):
        app = Flask(__name__)
        app.secret_key = f"secret {number if secret == 'of the app' else 0}"
        other = {"secret": f"other {number}"} if secret == "given" else {}
        install(app, dibs, user=lambda: "U4711", **other)  # type: ignore[arg-type]
        app.post("/orders")(once(window=60, after="hold")(lambda: "ordered"))
        assert app.test_client().post("/orders", json={"mail": "a@b.c"}).status_code == 200
        keys = valkey.keys()
        assert len(keys) == number + 1
    stored = str(keys) + str([valkey.client().get(key) for key in keys])
    assert "U4711" not in stored and "a@b.c" not in stored


# ---- errors


class OutOfStock(Exception):
    pass


def failing_shop(dibs: Dibs, seen: list[Any]) -> Flask:
    app = shop(dibs)

    def watched(view: Any) -> Any:
        @functools.wraps(view)
        def watching(*args: Any, **kwargs: Any) -> Any:
            try:
                return view(*args, **kwargs)
            except Exception as error:
                seen.append(type(error).__name__)
                raise

        return watching

    @app.errorhandler(OutOfStock)
    def sold_out(error: OutOfStock) -> Any:
        return {"detail": "sold out"}, 409

    @app.post("/<how>")
    @watched
    @replaying
    def view(how: str) -> Any:
        seen.append(how)
        if how == "handled":
            raise OutOfStock
        if how == "broken":
            raise LookupError("of the view")
        if how == "none":
            return None
        abort(int(how))

    return app


@pytest.mark.parametrize(
    ("how", "status", "times"),
    [("handled", 409, 1), ("404", 404, 1), ("403", 403, 2), ("503", 503, 2), ("broken", 500, 2),
     ("none", 500, 2)],
)  # fmt: skip
def test_errors_are_answers_in_flask(
    valkey: Server, dibs: Dibs, how: str, status: int, times: int
) -> None:
    """What a handler makes of an exception: kept below 500, else done again.

    Decorators around the guard, such as one that rolls back, see the exception itself.
    """
    seen: list[Any] = []
    client = failing_shop(dibs, seen).test_client()
    first, again = [client.post(f"/{how}", headers=KEYED) for _ in range(2)]
    assert first.status_code == again.status_code == status and first.data == again.data
    assert is_replay(again) is (times == 1) and seen.count(how) == times
    assert len(seen) == 2 * times, "each time it ran, the exception was seen outside"
    assert len(valkey.keys()) == (times == 1)


def test_what_is_raised_through_the_app_is_raised(valkey: Server, dibs: Dibs) -> None:
    """While testing, or where something else is to catch it: the very same, and the key is free."""
    app = failing_shop(dibs, [])
    app.testing = True

    @app.post("/gone")
    @replaying
    def gone() -> str:
        raise SystemExit(3)

    with pytest.raises(LookupError, match="of the view"):
        app.test_client().post("/broken", headers=KEYED)
    assert valkey.keys() == []
    with pytest.raises(SystemExit):
        app.test_client().post("/gone", headers=KEYED)
    assert valkey.keys() == []


# ---- streams and files


def test_a_stream_is_guarded_until_its_end_in_flask(valkey: Server, dibs: Dibs) -> None:
    """While it flows a second one is refused; when it is read, or left, the claim ends."""
    app = shop(dibs)
    runs: list[int] = []

    def stream() -> Any:
        runs.append(1)
        return Response(iter([b"one ", b"two ", b"three"]))

    app.post("/release", endpoint="release")(once(window=60)(stream))
    app.post("/replay", endpoint="replay")(once(window=60, after="replay")(stream))
    for is_read in (True, False):
        flowing = app.test_client().post("/release")
        assert next(iter(flowing.response)) == b"one "
        assert app.test_client().post("/release").status_code == 429
        if is_read:
            assert b"".join(flowing.response) == b"two three"
        flowing.close()
        assert valkey.keys() == []
    assert app.test_client().post("/replay", buffered=True).data == b"one two three"
    again = app.test_client().post("/replay")
    assert again.status_code == 429 and len(runs) == 3, "done, and not kept"
    assert again.get_json(force=True)["state"] == "done"


def test_a_file_passes_and_is_not_done_again(dibs: Dibs) -> None:
    """What the server sends itself is not kept."""
    app = shop(dibs)
    app.post("/file")(replaying(lambda: send_file(io.BytesIO(b"a receipt"), "text/plain")))
    assert app.test_client().post("/file", headers=KEYED, buffered=True).data == b"a receipt"
    again = app.test_client().post("/file", headers=KEYED)
    assert again.status_code == 409 and is_problem(again.get_json(force=True), again.headers, 409)


def test_what_is_too_long_to_be_kept_is_not_done_again_in_flask(dibs: Dibs) -> None:
    """It reaches the client whole; a retry learns that it was done."""
    app = shop(dibs)
    app.post("/long")(once(window=60, after="replay", key="required", most=10)(lambda: "x" * 11))
    assert app.test_client().post("/long", headers=KEYED).data == b"x" * 11
    assert app.test_client().post("/long", headers=KEYED).status_code == 409


# ---- the body stays readable


def test_the_view_reads_what_was_sent_in_flask(dibs: Dibs) -> None:
    """As bytes, as a stream, as JSON or as a form: the guard has taken nothing away."""
    app = shop(dibs)

    @app.post("/<how>")
    @once(window=60)
    def view(how: str) -> Any:
        if how == "stream":
            return request.stream.read()
        if how == "form":
            return sorted(map(list, request.form.items(multi=True)))
        return request.get_data() if how == "data" else request.get_json()

    client = app.test_client()
    form = {"content_type": "application/x-www-form-urlencoded"}
    sent = b"token=a%20b&token=c"
    assert client.post("/data", data=sent, **form).data == sent
    assert client.post("/stream", data=sent, **form).data == sent
    assert client.post("/form", data=sent, **form).json == [["token", "a b"], ["token", "c"]]
    assert client.post("/stream", data=b"\x00 raw").data == b"\x00 raw"
    assert client.post("/json", json={"a": 1}).json == {"a": 1}


def test_forms_and_files_in_flask(dibs: Dibs) -> None:
    """A file reaches the view, and counts; so do the values of a field, in order."""
    app = shop(dibs)
    runs: list[Any] = []

    @app.post("/pictures")
    @once(window=60, after="hold")
    def picture() -> str:
        runs.append((request.form.getlist("tag"), request.files["file"].read()))
        return "kept"

    sent = [(["a", "b"], b"0"), (["a", "b"], b"0"), (["b", "a"], b"0"), (["a", "b"], b"1")]
    for tags, content in sent:
        data = {"tag": tags, "file": (io.BytesIO(content), "a.png")}
        app.test_client().post("/pictures", data=data)
    assert runs == sent[1:]


def test_what_is_too_long_to_be_read_is_not_claimed(valkey: Server, dibs: Dibs) -> None:
    """413 as ever."""
    app = shop(dibs)
    app.config["MAX_CONTENT_LENGTH"] = 10
    app.post("/orders")(once(window=60)(lambda: "never"))
    assert app.test_client().post("/orders", data=b"x" * 11).status_code == 413
    assert valkey.keys() == []


# ---- install and outages


def test_without_install_the_sentence_says_so_in_flask() -> None:
    """UsageError: what to call, and where."""
    app = Flask(__name__)
    app.testing = True
    app.post("/orders")(replaying(lambda: "never"))
    with pytest.raises(UsageError, match=r"call install\(app, dibs\)"):
        app.test_client().post("/orders", headers=KEYED)


def test_an_address_will_do(valkey: Server) -> None:
    """A URL in place of a Dibs."""
    app = shop(valkey.url)
    app.post("/orders")(replaying(lambda: "ordered"))
    # Within a while: the budget of a URL is short, and the machine may be busy.
    eventually(lambda: is_replay(app.test_client().post("/orders", headers=KEYED)), within=90)
    app.extensions["dibs"]._dibs.close()


def test_in_an_outage_the_policy_decides_in_flask(own_server: Server) -> None:
    """Open: it runs, unguarded. Closed: 503, and nothing is done."""
    runs: list[str] = []
    with Dibs(own_server.url, budget=0.3) as dibs:
        app = shop(dibs)

        def order() -> str:
            runs.append(request.path)
            return "ordered"

        app.add_url_rule(
            "/open", "open", once(window=60, on_outage="open")(order), methods=["POST"]
        )
        app.add_url_rule(
            "/closed", "closed", once(window=60, on_outage="closed")(order), methods=["POST"]
        )
        client: FlaskClient = app.test_client()
        client.post("/open")
        own_server.freeze()
        assert client.post("/open").status_code == 200
        refused = client.post("/closed")
        assert is_problem(refused.get_json(force=True), refused.headers, 503)
        assert refused.headers["Retry-After"] == "1" and runs == ["/open", "/open"]
        own_server.thaw()


# ---- bodies that others have read


def test_a_form_that_was_read_before_the_view_counts(valkey: Server, dibs: Dibs) -> None:
    """As an extension does that looks for a token in every form."""
    app = shop(dibs)
    app.before_request(lambda: request.form.get("token") and None)
    app.post("/orders")(once(window=60, after="hold")(lambda: request.form["cart"]))
    client = app.test_client()
    statuses = [client.post("/orders", data={"cart": cart}).status_code for cart in (1, 2, 1)]
    assert statuses == [200, 200, 429]


def test_a_body_that_was_read_before_is_not_guessed_in_flask(valkey: Server, dibs: Dibs) -> None:
    """It can no longer be compared."""
    app = shop(dibs)
    app.testing = True
    app.before_request(lambda: request.stream.read() and None)
    app.post("/orders")(replaying(lambda: "ordered"))
    with pytest.raises(UsageError, match="before the guard"):
        app.test_client().post("/orders", json={"cart": 1}, headers=KEYED)
    assert valkey.keys() == []


# ---- a commit after the view


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("place", ["after_request", "teardown_request", "teardown_appcontext"])
def test_an_answer_is_stored_after_a_commit_that_comes_after_the_view(
    dibs: Dibs, place: str, is_first: bool
) -> None:
    """Wherever the application commits, declared before or after `install`."""
    app = Flask(__name__)
    commits: list[str] = []

    def commit(passed: Any) -> Any:
        commits.append("failed" if not commits else "done")
        if commits[-1] == "failed":
            raise OSError("the database is gone")
        return passed

    if is_first:
        getattr(app, place)(commit)
    install(app, dibs)
    if not is_first:
        getattr(app, place)(commit)

    @app.post("/orders")
    @replaying
    def order() -> tuple[dict[str, int], int]:
        return {"order": len(commits)}, 201

    def submit() -> Any:
        try:
            return app.test_client().post("/orders", json={}, headers=KEYED)
        except OSError:
            return None  # from a teardown: the server answers with a 500

    first = submit()
    assert first is None or first.status_code == 500
    again = submit()
    assert (again.status_code, is_replay(again)) == (201, False)
    assert is_replay(submit())
