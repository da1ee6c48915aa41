"""The rich menu: how it looks, what its buttons do, and how LINE gets it in spite of failures."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from local_line.local import LocalLine
from local_line.richmenus import LARGEST_IMAGE, check_menu, check_picture
from PIL import Image, ImageChops, ImageColor

from apps.weamind.line import texts
from apps.weamind.richmenu.applying import Applied, apply, remove
from apps.weamind.richmenu.buttons import BUTTONS, HEIGHT, WIDTH
from apps.weamind.richmenu.channel import Channel, LineError, Refused, Unreachable, data_base
from apps.weamind.richmenu.definition import definition, is_own, name, name_of, picture
from apps.weamind.richmenu.plan import Menu, Plan, State, plan
from tests.apps.weamind.conftest import ACCESS_TOKEN, SECRET, RunBot
from tools.richmenu.drawing import CARD, COLOURS, INK, draw, png
from tools.richmenu.glyphs import contours, glyphs

MENU, CONTENT = "/v2/bot/richmenu", "/v2/bot/richmenu/{richMenuId}/content"
EVERYBODY = "/v2/bot/user/all/richmenu"
OLDER = "dibs.weamind:0123456789abcdef"
FOREIGN = "somebody's own menu"


# ------------------------------------------------------------------------------------ the picture


def test_line_takes_the_picture() -> None:
    """A PNG of 2500 by 1686, of at most 1 MB."""
    check_picture(picture(), "image/png")
    with Image.open(io.BytesIO(picture())) as image:
        assert (image.format, image.size) == ("PNG", (WIDTH, HEIGHT)) == ("PNG", (2500, 1686))
    assert len(picture()) <= LARGEST_IMAGE


def test_the_picture_is_what_is_drawn() -> None:
    """`menu.png` is up to date: no label and no colour was changed without drawing it again."""
    drawn = draw()
    with Image.open(io.BytesIO(picture())) as kept:
        difference = ImageChops.difference(drawn, kept.convert("RGB"))
    # Another version of Pillow may round an edge another way; a change is more than that.
    assert max(high for _, high in difference.getextrema()) <= 40
    histogram = difference.convert("L").histogram()
    assert sum(histogram[9:]) < WIDTH * HEIGHT / 10_000
    assert len(png(drawn)) <= LARGEST_IMAGE


def luminance(colour: str) -> float:
    parts = [part / 255 for part in ImageColor.getrgb(colour)[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """As WCAG has it, from 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_it_can_be_read() -> None:
    """Labels have a contrast of 7 (AAA), icons of 4.5, where 3 would do."""
    assert contrast(INK, CARD) >= 7
    for own, pale in COLOURS.values():
        assert contrast(own, pale) >= 4.5
    assert contrast("#000000", "#ffffff") == pytest.approx(21)  # the measure itself is right


@pytest.mark.parametrize("button", BUTTONS, ids=lambda button: button.icon)
def test_every_button_has_its_icon_and_its_label(button: Any) -> None:
    """Also at 800 pixels, the smallest that LINE shows; and nothing runs into the neighbour."""
    x, y, width, height = button.bounds
    with Image.open(io.BytesIO(picture())) as image:
        tile = image.convert("RGB").crop((x, y, x + width, y + height))
    for colour, top, bottom in ((COLOURS[button.icon][0], 80, 540), (INK, 560, 790)):
        part = tile.crop((0, top, width, bottom))
        box = _where(part, colour)
        assert box is not None
        assert box[0] > 80 and box[1] > 20 and box[2] < part.width - 80 and box[3] < part.height
    small = tile.resize((267, 270), Image.Resampling.LANCZOS)
    assert _where(small, INK, near=60) and _where(small, COLOURS[button.icon][0], near=60)


def _where(image: Image.Image, colour: str, near: int = 4) -> tuple[int, int, int, int] | None:
    """The box around all pixels of about that colour."""
    plain = Image.new("RGB", image.size, colour)
    far = ImageChops.difference(image, plain).convert("L")
    return far.point([255 if value <= near else 0 for value in range(256)]).getbbox()


def test_there_is_a_letter_for_every_character() -> None:
    """No font has to be there; and the letters' licence lies beside them."""
    for button in BUTTONS:
        for character in button.label:
            letter = glyphs()[character]
            assert letter.advance == 1000 and letter.contours
    from tools.richmenu import glyphs as module

    licence = Path(module.__file__).with_name("LICENCE.md").read_text("utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence and "Adobe" in licence


def test_a_path_is_read_as_svg_has_it() -> None:
    """Lines, curves, several of each after one letter; anything else is an error."""
    square = contours("M0 0H10V10L0 10Z")
    assert square == [[(0, 0), (10, 0), (10, 10), (0, 10)]]
    curve = contours("M0 0C0 4 8 4 8 0Z M-1 -1 2 -3Z")
    assert curve[0][0] == (0, 0) and curve[0][-1] == pytest.approx((8, 0))
    assert (4.0, 3.0) in [(pytest.approx(x), pytest.approx(y)) for x, y in curve[0]]
    assert curve[1] == [(-1, -1), (2, -3)]
    with pytest.raises(ValueError, match="may have"):
        contours("M0 0Q1 1 2 2Z")


# ------------------------------------------------------------------------------------ the buttons


def test_line_takes_the_menu() -> None:
    """It keeps LINE's limits; its six areas cover the picture, and none lies upon another."""
    menu = definition()
    check_menu(menu)
    assert len(menu["chatBarText"]) <= 14
    areas = [tuple(area["bounds"].values()) for area in menu["areas"]]
    assert sum(width * height for _, _, width, height in areas) == WIDTH * HEIGHT
    covered = Image.new("L", (WIDTH, HEIGHT))
    for x, y, width, height in areas:
        covered.paste(255, (x, y, x + width, y + height))
    assert covered.histogram()[255] == WIDTH * HEIGHT


def test_the_six_buttons() -> None:
    """Which they are, in their order."""
    assert [(button.label, button.data) for button in BUTTONS] == [
        ("住家", "action=weather&type=home"),
        ("公司", "action=weather&type=office"),
        ("最近查詢", "action=recent_queries"),
        ("設定", "action=settings"),
        ("目前位置", "action=weather&type=current"),
        ("其他", "action=other&type=menu"),
    ]


async def test_the_bot_answers_every_button(run_bot: RunBot) -> None:
    """None of them is a button that it does not know."""
    async with run_bot() as bot:
        for number, button in enumerate(BUTTONS, 1):
            await bot.line.tap(button.data)
            [*_, answer] = await bot.replies(number)
            assert answer.get("text") != texts.UNKNOWN_TAP


def test_the_name_tells_what_is_seen() -> None:
    """Another picture or another button is another menu; the same is the same; ours is ours."""
    content = {key: value for key, value in definition().items() if key != "name"}
    assert name_of(content, picture()) == name() == definition()["name"]
    assert name_of(content, picture() + b" ") != name()
    assert name_of(content | {"chatBarText": "選單"}, picture()) != name()
    assert is_own(name()) and is_own(OLDER)
    for foreign in (FOREIGN, "", "weamind", f"{OLDER}0", f"x{OLDER}", OLDER.upper()):
        assert not is_own(foreign)


@pytest.mark.parametrize(
    ("menus", "default", "wanted"),
    [
        ([], None, Plan(True, ())),
        ([Menu("1", name())], "1", Plan(False, ())),
        ([Menu("1", name())], None, Plan(True, ("1",))),
        ([Menu("1", OLDER)], "1", Plan(True, ("1",))),
        ([Menu("1", OLDER), Menu("2", name()), Menu("3", name())], "2", Plan(False, ("1", "3"))),
        ([Menu("1", FOREIGN)], "1", Plan(True, ())),
        ([Menu("1", FOREIGN), Menu("2", OLDER)], "1", Plan(True, ("2",))),
        ([Menu("1", name())], "gone", Plan(True, ("1",))),
    ],
)
def test_the_plan_makes_what_is_missing_and_removes_our_others(
    menus: list[Menu], default: str | None, wanted: Plan
) -> None:
    """Nothing to make when it is current; of ours, everything else goes; foreign ones never do."""
    assert plan(State(tuple(menus), default)) == wanted


# ---------------------------------------------------------------------------------------- at LINE


@asynccontextmanager
async def account(**options: Any) -> AsyncIterator[tuple[LocalLine, Channel]]:
    """LINE on this machine, and the bot's account there."""
    async with (
        LocalLine(secret=SECRET, access_token=ACCESS_TOKEN) as line,
        Channel(line.api_base, ACCESS_TOKEN, **options) as channel,
    ):
        yield line, channel


def put(line: LocalLine, name: str, *, shown: bool = False) -> str:
    """A menu that already exists."""
    menu_id = line.menus.create(check_menu(definition() | {"name": name}))
    line.menus.upload(menu_id, check_picture(picture(), "image/png"))
    if shown:
        line.menus.set_default(menu_id)
    return menu_id


def names(line: LocalLine) -> list[str]:
    return sorted(menu["name"] for menu in line.menus.all())


def changes(line: LocalLine) -> list[tuple[str, str, int]]:
    return [(call.method, call.route, call.status) for call in line.calls if call.method != "GET"]


def whole(line: LocalLine) -> bool:
    """All users see our current menu, with its picture."""
    shown = line.menus.get(line.menus.default)
    return shown["name"] == name() and line.menus.picture(line.menus.default).data == picture()


async def test_it_is_applied_once() -> None:
    """The first time it is made, drawn and shown; the second time nothing is done."""
    async with account() as (line, channel):
        assert await apply(channel) == Applied(made=True, removed=0)
        assert whole(line)
        assert [route for _, route, _ in changes(line)] == [
            MENU,
            CONTENT,
            f"{EVERYBODY}/{{richMenuId}}",
        ]
        first = line.menus.default
        assert await apply(channel) == Applied(made=False, removed=0)
        assert line.menus.default == first and len(changes(line)) == 3


async def test_older_ones_go_and_foreign_ones_stay() -> None:
    """Ours are superseded after the new one is shown; what others made is not touched."""
    async with account() as (line, channel):
        put(line, OLDER, shown=True)
        put(line, FOREIGN)
        assert await apply(channel) == Applied(made=True, removed=1)
        assert whole(line) and names(line) == sorted([FOREIGN, name()])
        assert [route for _, route, _ in changes(line)][-2:] == [
            f"{EVERYBODY}/{{richMenuId}}",
            f"{MENU}/{{richMenuId}}",
        ]


async def test_a_foreign_default_is_replaced_and_kept() -> None:
    """Applying the menu shows it to all users; the other one can be shown again."""
    async with account() as (line, channel):
        other = put(line, FOREIGN, shown=True)
        await apply(channel)
        assert whole(line) and line.menus.picture(other)


@pytest.mark.parametrize(
    "route",
    [
        f"{MENU}/list",
        EVERYBODY,
        MENU,
        CONTENT,
        f"{EVERYBODY}/{{richMenuId}}",
    ],
)
@pytest.mark.parametrize("status", [429, 500])
async def test_a_failure_in_the_middle(route: str, status: int) -> None:
    """All users see the previous menu, no half menu is left, and the next attempt works."""
    async with account() as (line, channel):
        before = put(line, OLDER, shown=True)
        line.fail_next(route, status=status)
        with pytest.raises(Refused) as refused:
            await apply(channel)
        assert refused.value.status == status and refused.value.request_id
        assert line.menus.default == before and names(line) == [OLDER]
        assert (await apply(channel)).made
        assert whole(line) and names(line) == [name()]


async def test_nothing_answers_after_the_failure() -> None:
    """What could not be taken back then is removed the next time; it was never shown."""
    async with account() as (line, channel):
        before = put(line, OLDER, shown=True)
        line.fail_next(CONTENT, status=500)
        line.fail_next(f"{MENU}/{{richMenuId}}", status=500)
        with pytest.raises(LineError):
            await apply(channel)
        assert line.menus.default == before and names(line) == sorted([OLDER, name()])
        assert await apply(channel) == Applied(made=True, removed=2)
        assert whole(line) and names(line) == [name()]


class Deaf(Channel):
    """LINE does what it is asked to, and its answer never arrives."""

    async def set_default(self, menu_id: str) -> None:
        await super().set_default(menu_id)
        raise Unreachable("not within 10 s")


async def test_the_last_answer_is_lost() -> None:
    """LINE shows the menu, and its answer does not come: it is looked at again, and kept."""
    async with account() as (line, _), Deaf(line.api_base, ACCESS_TOKEN) as channel:
        put(line, OLDER, shown=True)
        assert await apply(channel) == Applied(made=True, removed=1)
        assert whole(line) and names(line) == [name()]


async def test_a_line_that_hangs() -> None:
    """It is not waited for longer than was said."""
    async with account(longest=0.05) as (line, channel):
        line.fail_next(f"{MENU}/list", delay=60)
        with pytest.raises(Unreachable, match=r"not within 0.05 s"):
            await apply(channel)


async def test_an_older_one_that_stays() -> None:
    """The output says how many are left, and the next run removes them."""
    async with account() as (line, channel):
        put(line, OLDER, shown=True)
        line.fail_next(f"{MENU}/{{richMenuId}}", status=500)
        assert await apply(channel) == Applied(made=True, removed=0, left=1)
        assert whole(line)
        assert await apply(channel) == Applied(made=False, removed=1)
        assert names(line) == [name()]


async def test_two_menus_applied_at_once() -> None:
    """All users see a complete one; a second one that was left is removed by the next run."""
    async with account() as (line, channel):
        await asyncio.gather(apply(channel), apply(channel))
        assert whole(line)
        await apply(channel)
        assert whole(line) and names(line) == [name()]


async def test_it_is_removed() -> None:
    """All of ours are gone, and nothing else; again, and there is nothing to do."""
    async with account() as (line, channel):
        put(line, OLDER)
        put(line, FOREIGN)
        await apply(channel)
        put(line, OLDER)
        assert await remove(channel) == Applied(made=False, removed=2)
        assert names(line) == [FOREIGN]
        assert await channel.default_menu() is None
        assert await remove(channel) == Applied(made=False, removed=0)


async def test_a_foreign_default_is_not_removed() -> None:
    """A foreign menu that all users see stays."""
    async with account() as (line, channel):
        other = put(line, FOREIGN, shown=True)
        put(line, OLDER)
        assert await remove(channel) == Applied(made=False, removed=1)
        assert line.menus.default == other


async def test_a_line_that_is_not_there() -> None:
    """Said in a sentence, without a token."""
    async with Channel("http://127.0.0.1:9", ACCESS_TOKEN) as channel:
        with pytest.raises(Unreachable, match="LINE did not answer: ConnectError"):
            await apply(channel)


def test_pictures_go_to_lines_other_host() -> None:
    """To that of a copy of LINE, where LINE is one."""
    assert data_base("https://api.line.me") == "https://api-data.line.me"
    assert data_base("http://127.0.0.1:8000/line") == "http://127.0.0.1:8000/line"


def test_the_glyphs_are_as_they_were_made() -> None:
    """One line for each character that a label has, and none that no label has."""
    from tools.richmenu import glyphs as module

    kept = json.loads(Path(module.__file__).with_name("glyphs.json").read_text("utf-8"))
    assert set(kept) == set("".join(button.label for button in BUTTONS))
