"""The weather administration's answers: two shapes, strings for numbers, and names that change."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.weamind.places.place import Place
from apps.weamind.weather.cards import forecast_message
from apps.weamind.weather.cwa import _TOWNSHIPS, Cwa, tls_context
from apps.weamind.weather.cwa_answers import read_county, read_township
from apps.weamind.weather.forecast import TAIPEI, Forecast, Sky, steps_ahead
from apps.weamind.weather.provider import Reason, WeatherUnavailable

from .recorded.mutations import mutated
from .recorded.upstream import Upstream, recorded, saying

BANQIAO = Place("65000010", "新北市", "板橋區", 25.0115, 121.4509)
TAIPEI_CITY = Place("63000", "臺北市", None, 25.0375, 121.5637)
NOW = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
TOWNSHIP, COUNTY = recorded("cwa_township"), recorded("cwa_county")
KEY = "a-key-for-tests"


def township(**elements: Any) -> Any:
    """The recorded answer; *elements*: by the key of their values, what is done to them."""
    body = recorded("cwa_township")
    for element in body["records"]["Locations"][0]["Location"][0]["WeatherElement"]:
        for key, change in elements.items():
            if key in element["Time"][0]["ElementValue"][0]:
                change(element)
    return body


def place_of(body: Any) -> Any:
    return body["records"]["Locations"][0]["Location"][0]


def reason_of(reading: Any, body: Any, place: Place) -> Reason:
    with pytest.raises(WeatherUnavailable) as caught:
        reading(body, place, now=NOW)
    return caught.value.reason


# ---- townships


def test_what_a_township_has() -> None:
    """This hour, sixteen steps of three hours, and the days that are known as a whole."""
    forecast = read_township(township(), BANQIAO, now=NOW)
    assert (forecast.place_code, forecast.provider) == ("65000010", "cwa")
    assert forecast.now is not None and forecast.now.at == NOW.replace(minute=0)
    assert forecast.now.sky is not None and forecast.now.temperature == 22.0
    assert [step.start.hour for step in forecast.steps[:3]] == [18, 21, 0]
    assert all(step.low is not None and step.rain is not None for step in forecast.steps)
    assert [day.on for day in forecast.days] == [date(2026, 3, day) for day in (2, 3, 4)]
    assert forecast.attribution.text == "資料來源：中央氣象署"


def test_elements_are_known_by_their_values() -> None:
    """Renamed elements are read all the same, in any order."""

    def rename(element: Any) -> None:
        element["ElementName"] = "改名了"

    keys = ("Temperature", "Weather", "ProbabilityOfPrecipitation", "RelativeHumidity")
    body = township(**dict.fromkeys(keys, rename))
    place_of(body)["WeatherElement"].reverse()
    assert read_township(body, BANQIAO, now=NOW) == read_township(TOWNSHIP, BANQIAO, now=NOW)


@pytest.mark.parametrize("nothing", ["", "-99", "-99.0", " ", "-", None, "N/A", "-999", "1000"])
def test_ways_to_say_nothing(nothing: Any) -> None:
    """A missing value is None, and neither -99 nor 0."""

    def blank(element: Any) -> None:
        for time in element["Time"]:
            time["ElementValue"][0] = dict.fromkeys(time["ElementValue"][0], nothing)

    body = township(Temperature=blank, ProbabilityOfPrecipitation=blank)
    forecast = read_township(body, BANQIAO, now=NOW)
    assert all(step.low is step.high is step.rain is None for step in forecast.steps)
    assert forecast.steps[0].sky is not None and forecast.now is None and forecast.days == ()


def test_words_without_a_code_and_a_code_without_words() -> None:
    """Either is enough."""

    def only(key: str) -> Any:
        def keep(element: Any) -> None:
            for time in element["Time"]:
                time["ElementValue"][0] = {key: time["ElementValue"][0][key]}

        return keep

    words = read_township(township(Weather=only("Weather")), BANQIAO, now=NOW)
    codes = read_township(township(Weather=only("WeatherCode")), BANQIAO, now=NOW)
    assert words.steps == read_township(TOWNSHIP, BANQIAO, now=NOW).steps
    assert [step.sky and step.sky.emoji for step in codes.steps] == [
        step.sky and step.sky.emoji for step in words.steps
    ]


def test_a_day_is_whole_or_not_shown() -> None:
    """A day with a missing hour has no known maximum."""

    def drop(element: Any) -> None:
        element["Time"] = [
            time for time in element["Time"] if "03-03T12:00" not in time["DataTime"]
        ]

    days = read_township(township(Temperature=drop), BANQIAO, now=NOW).days
    assert [day.on.day for day in days] == [2, 4]


def test_the_rain_of_a_day_is_that_of_all_its_hours() -> None:
    """Where it is missing for some of them, they might be the wettest: not known."""

    def drop(element: Any) -> None:
        element["Time"] = [
            time for time in element["Time"] if "03-03T12:00" not in time["StartTime"]
        ]

    days = read_township(township(ProbabilityOfPrecipitation=drop), BANQIAO, now=NOW).days
    assert [day.rain is None for day in days] == [False, True, False]


def test_the_most_exact_span_counts() -> None:
    """Where a probability comes for 3 hours and for 12, that for 3 is shown."""
    body = township()
    spans = [
        {
            "StartTime": "2026-03-01T18:00:00+08:00",
            "EndTime": "2026-03-02T06:00:00+08:00",
            "ElementValue": [{"ProbabilityOfPrecipitation": "99"}],
        }
    ]
    place_of(body)["WeatherElement"].insert(0, {"ElementName": "12小時降雨機率", "Time": spans})
    assert read_township(body, BANQIAO, now=NOW) == read_township(TOWNSHIP, BANQIAO, now=NOW)


def test_the_forecast_may_begin_later() -> None:
    """In the hour before it begins there is no weather of now, and the first step is empty."""
    early = read_township(TOWNSHIP, BANQIAO, now=NOW - timedelta(hours=1))
    assert early.now is None and early.steps[0].low is None and early.steps[1].low == 22.0


def test_a_card_begins_with_the_first_hours_that_are_known() -> None:
    """Not with dashes, in the hour before the forecast begins."""
    early = NOW - timedelta(hours=1)
    forecast = read_township(TOWNSHIP, BANQIAO, now=early)
    assert steps_ahead(forecast, early)[0] == forecast.steps[1]
    assert "– –" not in forecast_message(forecast, now=early)["altText"]


# ---- which place


def test_another_township_is_not_this_one() -> None:
    """An answer about another place, or none, is no data; also 信義區 of another county."""
    elsewhere = Place("65000020", "新北市", "三重區", 25.06, 121.49)
    assert reason_of(read_township, TOWNSHIP, elsewhere) is Reason.NO_DATA
    empty = township()
    empty["records"]["Locations"][0]["Location"] = []
    assert reason_of(read_township, empty, BANQIAO) is Reason.NO_DATA
    namesake = township()
    del place_of(namesake)["Geocode"]
    assert read_township(namesake, BANQIAO, now=NOW).place_code == "65000010"
    namesake["records"]["Locations"][0]["LocationsName"] = "基隆市"
    assert reason_of(read_township, namesake, BANQIAO) is Reason.NO_DATA


def test_either_spelling_of_tai() -> None:
    """Names are compared as they are meant."""
    body = recorded("cwa_county")
    body["records"]["location"][1]["locationName"] = "台北市"
    assert read_county(body, TAIPEI_CITY, now=NOW) == read_county(COUNTY, TAIPEI_CITY, now=NOW)


def test_every_county_has_its_dataset() -> None:
    """Twenty-two, all different."""
    assert len(_TOWNSHIPS) == len(set(_TOWNSHIPS.values())) == 22


# ---- shapes


@pytest.mark.parametrize(
    "body", [None, [], {}, "x", {"success": "true"}, {"success": "false", "records": {}},
             {"success": "true", "records": []}, {"records": {"Locations": []}}],
)  # fmt: skip
def test_what_is_no_answer_of_cwa(body: Any) -> None:
    """Anything without `success` and `records` is unreadable."""
    assert reason_of(read_township, body, BANQIAO) is Reason.UNREADABLE
    assert reason_of(read_county, body, TAIPEI_CITY) is Reason.UNREADABLE


def test_the_older_shape_says_nothing() -> None:
    """Its values have no names, and are not guessed at."""
    older = recorded("cwa_township_older")
    assert reason_of(read_township, older, BANQIAO) is Reason.NO_DATA


def test_either_case_of_names() -> None:
    """`records.locations[].location[]` and `records.Locations[].Location[]` are the same."""
    lower = _in_lower_case(TOWNSHIP)
    assert read_township(lower, BANQIAO, now=NOW) == read_township(TOWNSHIP, BANQIAO, now=NOW)
    upper = _in_upper_case(COUNTY)
    assert read_county(upper, TAIPEI_CITY, now=NOW) == read_county(COUNTY, TAIPEI_CITY, now=NOW)


_VALUES = ("Temperature", "Weather", "Probability", "Apparent", "Relative", "Wind")


def _in_lower_case(node: Any) -> Any:
    if isinstance(node, list):
        return [_in_lower_case(item) for item in node]
    if not isinstance(node, dict):
        return node
    keep = "WeatherElement" not in node and any(key.startswith(_VALUES) for key in node)
    return {
        key if keep else key[0].lower() + key[1:]: _in_lower_case(value)
        for key, value in node.items()
    }


def _in_upper_case(node: Any) -> Any:
    if isinstance(node, list):
        return [_in_upper_case(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key[0].upper() + key[1:]: _in_upper_case(value) for key, value in node.items()}


# ---- counties


def test_what_a_county_has() -> None:
    """Three periods, each with its lowest and highest temperature; no days, and no moment."""
    forecast = read_county(COUNTY, TAIPEI_CITY, now=NOW)
    first, second, third = forecast.steps
    assert (first.start.hour, first.end.hour, second.start.hour) == (18, 6, 6)
    assert (first.low, first.high, first.rain, first.sky) == (18, 22, 20, Sky("多雲", "☁️"))
    assert (second.low, second.high, second.rain) == (19, 26, 60)
    assert second.sky == Sky("陰短暫陣雨", "🌦️") and third.low == 17
    assert forecast.now is None and forecast.days == ()


def test_periods_that_are_over_are_not_shown() -> None:
    """The first is the one that now is in."""
    later = read_county(COUNTY, TAIPEI_CITY, now=NOW + timedelta(hours=13))
    assert [step.start.hour for step in later.steps] == [6, 18]
    assert reason_of(
        lambda body, place, now: read_county(body, place, now=now + timedelta(days=2)),
        COUNTY,
        TAIPEI_CITY,
    ) is Reason.NO_DATA  # fmt: skip


def test_one_temperature_alone_is_neither_the_lowest_nor_the_highest() -> None:
    """Without MinT, MaxT is not shown as both."""
    body = recorded("cwa_county")
    elements = body["records"]["location"][1]["weatherElement"]
    elements[:] = [element for element in elements if element["elementName"] != "MinT"]
    forecast = read_county(body, TAIPEI_CITY, now=NOW)
    assert all(step.low is step.high is None for step in forecast.steps)
    assert forecast.steps[0].rain == 20


# ---- fuzz


@settings(max_examples=250)
@given(body=mutated(TOWNSHIP), minutes=st.integers(-60, 2 * 24 * 60))
def test_a_broken_township_is_never_a_wrong_number(body: Any, minutes: int) -> None:
    """With anything missing or replaced: no forecast, or one whose every number was reported, for
    the time that it is shown at."""
    try:
        forecast = read_township(body, BANQIAO, now=NOW + timedelta(minutes=minutes))
    except WeatherUnavailable:
        return
    said = list(everything_said(body))
    check_steps(said, forecast)
    check_days(said, forecast)
    if forecast.now is not None:
        assert forecast.now.temperature in points(said, "Temperature", forecast.now.at)


@settings(max_examples=250)
@given(body=mutated(COUNTY), hours=st.integers(0, 40))
def test_a_broken_county_is_never_a_wrong_number(body: Any, hours: int) -> None:
    """The same, for the other shape."""
    try:
        forecast = read_county(body, TAIPEI_CITY, now=NOW + timedelta(hours=hours))
    except WeatherUnavailable:
        return
    for step in forecast.steps:
        reported = [
            number(parameter["parameterName"])
            for start, end, parameter in everything_said(body)
            if (start, end) == (step.start, step.end) and "parameterName" in parameter
        ]
        for shown in (step.low, step.high, step.rain):
            assert shown is None or shown in reported
        assert step.low is None or step.high is None or step.low <= step.high


def check_steps(said: list[Any], forecast: Forecast) -> None:
    for step in forecast.steps:
        if step.low is not None:
            assert step.low == step.high and step.low in points(said, "Temperature", step.start)
        if step.rain is not None:
            assert step.rain in spans(said, "ProbabilityOfPrecipitation", step.start)
        if step.sky is not None:
            words = spans(said, "Weather", step.start, as_number=False)
            codes = spans(said, "WeatherCode", step.start, as_number=False)
            assert step.sky.text in [str(word)[:20] for word in words] or any(codes)


def check_days(said: list[Any], forecast: Forecast) -> None:
    for day in forecast.days:
        reported = [
            number(values["Temperature"])
            for start, end, values in said
            if end is None and start.date() == day.on and "Temperature" in values
        ]
        believable = [value for value in reported if value is not None and -30 <= value <= 50]
        assert day.low in believable and day.high in believable


def everything_said(node: Any) -> Iterator[tuple[datetime, datetime | None, dict[str, Any]]]:
    """Every value of the document with its time, wherever it stands."""
    if isinstance(node, list):
        for item in node:
            yield from everything_said(item)
    if not isinstance(node, dict):
        return
    at = time_of(node.get("DataTime"))
    start = time_of(node.get("StartTime", node.get("startTime")))
    end = time_of(node.get("EndTime", node.get("endTime")))
    values = node.get("ElementValue", node.get("parameter"))
    for value in values if isinstance(values, list) else [values]:
        if isinstance(value, dict) and (at or start):
            yield (at, None, value) if at else (start, end, value)  # type: ignore[misc]
    for child in node.values():
        yield from everything_said(child)


def points(said: list[Any], key: str, at: datetime) -> list[Any]:
    return [number(values[key]) for start, end, values in said
            if end is None and start == at and key in values]  # fmt: skip


def spans(said: list[Any], key: str, at: datetime, *, as_number: bool = True) -> list[Any]:
    return [number(values[key]) if as_number else values[key] for start, end, values in said
            if end is not None and start <= at < end and key in values]  # fmt: skip


def time_of(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
        return time.astimezone(TAIPEI) if time.tzinfo else time.replace(tzinfo=TAIPEI)
    except (TypeError, ValueError, OverflowError):
        return None


def number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError):
        return None


# ---- over the wire


async def test_what_cwa_is_asked() -> None:
    """Townships by their county's dataset, counties by theirs; the key in a header only."""
    async with Upstream(saying(TOWNSHIP)) as upstream:
        provider = Cwa(KEY, base_url=upstream.url, clock=lambda: NOW)
        assert (await provider.fetch(BANQIAO)).place_name == "新北市板橋區"
        upstream.behaviour = saying(COUNTY)
        assert (await provider.fetch(TAIPEI_CITY)).place_name == "臺北市"
        await provider.aclose()
    asked = {each.path.rpartition("/")[2]: each.query for each in upstream.asked}
    assert asked == {
        "F-D0047-069": {"format": "JSON", "LocationName": "板橋區"},
        "F-D0047-071": {"format": "JSON", "LocationName": "板橋區"},
        "F-C0032-001": {"format": "JSON", "locationName": "臺北市"},
        "F-D0047-091": {"format": "JSON", "LocationName": "臺北市"},
    }
    assert {each.path.rpartition("/")[0] for each in upstream.asked} == {"/api/v1/rest/datastore"}
    assert {asked.headers["authorization"] for asked in upstream.asked} == {KEY}


async def test_a_county_that_nobody_knows_is_not_asked_for() -> None:
    """No data, without a question."""
    async with Upstream(saying(TOWNSHIP)) as upstream:
        provider = Cwa(KEY, base_url=upstream.url)
        with pytest.raises(WeatherUnavailable, match="no data for this place"):
            await provider.fetch(Place("99999999", "桃花縣", "源鄉", 24.0, 121.0))
        await provider.aclose()
    assert upstream.asked == []


@pytest.mark.parametrize("key", ["", " ", "a b", "鑰匙", "a\nb"])
def test_a_key_that_cannot_be_one(key: str) -> None:
    """ValueError at once, which does not repeat it."""
    with pytest.raises(ValueError, match="CWA needs") as caught:
        Cwa(key)
    assert not key.strip() or key not in str(caught.value)


def test_the_key_is_in_no_repr() -> None:
    """Logging the provider does not log the key."""
    assert KEY not in repr(Cwa(KEY))


# ---- TLS


def test_only_the_form_of_certificates_is_forgiven() -> None:
    """One flag differs; names and signatures are checked in any case."""
    strict, forgiving = tls_context(strict=True), tls_context(strict=False)
    assert strict.verify_flags ^ forgiving.verify_flags == ssl.VERIFY_X509_STRICT
    assert strict.verify_flags & ssl.VERIFY_X509_STRICT
    for context in (strict, forgiving):
        assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


async def test_a_chain_without_a_key_identifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the office has it: accepted by default, refused when strict, if its root is known;
    refused in any case, if it is not."""
    with _serving(_chain(tmp_path), times=6) as url:
        assert await _reason(url, strict=False) is Reason.UNREACHABLE
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "root.pem"))
        assert await _reason(url, strict=False) is None
        assert await _reason(url, strict=True) is Reason.UNREACHABLE


@contextmanager
def _serving(tls: ssl.SSLContext, *, times: int) -> Iterator[str]:
    """The recorded answer over TLS. In a thread: asyncio complains about handshakes that fail."""
    body = json.dumps(TOWNSHIP).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"

    def serve() -> None:
        for _ in range(times):
            client, _ = listening.accept()
            try:
                with tls.wrap_socket(client, server_side=True) as secured:
                    secured.recv(65_536)
                    secured.sendall(head.encode() + body)
            except OSError:
                client.close()  # refused by the client

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}"
        thread.join(20)
        assert not thread.is_alive()


async def _reason(url: str, *, strict: bool) -> Reason | None:
    provider = Cwa(KEY, base_url=url, strict_tls=strict, deadline=20, clock=lambda: NOW)
    try:
        await provider.fetch(BANQIAO)
    except WeatherUnavailable as error:
        return error.reason
    finally:
        await provider.aclose()
    return None


def _chain(folder: Path) -> ssl.SSLContext:
    """A server certificate for localhost, and its root, without a Subject Key Identifier."""
    if shutil.which("openssl") is None:
        pytest.skip("NOT TESTED: TLS, there is no openssl to make certificates with")
    (folder / "openssl.cnf").write_text(
        "[req]\ndistinguished_name=dn\nprompt=no\n[dn]\nCN=localhost\n"
        "[root]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
        "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none\n"
        "[leaf]\nsubjectAltName=DNS:localhost\nsubjectKeyIdentifier=none\n"
        "authorityKeyIdentifier=none\n"
    )
    for name, more in (
        ("root", ["-x509", "-extensions", "root", "-subj", "/CN=root"]),
        ("leaf", ["-x509", "-extensions", "leaf", "-CA", "root.pem", "-CAkey", "root.key"]),
    ):
        subprocess.run(
            ["openssl", "req", "-config", "openssl.cnf", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-keyout", f"{name}.key",
             "-out", f"{name}.pem", *more],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
    return context
