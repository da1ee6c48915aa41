"""Take the pictures of the documentation again: `python -m tests.pictures`, or some by name.

They need chromium, and fonts for Chinese and for emoji. Look at them before they are committed.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from local_line.accounts import Picture
from PIL import Image, ImageDraw

from apps.weamind.places.search import search
from apps.weamind.weather import open_meteo
from apps.weamind.weather.cards import forecast_message
from apps.weamind.weather.forecast import TAIPEI, Hazard
from apps.weamind.weather.sample import make_up
from dibs.testing import Server
from dibs.testing.servers import free_port
from tests.apps.browser import TIMEOUT, launched
from tests.apps.playground_process import running
from tests.local_line.stage import Json, Stage, flex, say, text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "images"
JULY = datetime(2026, 7, 15, 16, 20, tzinfo=TAIPEI)


def main() -> None:
    """Take all pictures, or those whose names are given."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(PICTURES))
    names = parser.parse_args().names or list(PICTURES)
    for name in names:
        with launched() as browser:
            PICTURES[name](browser, FOLDER / name)
        print(FOLDER / name)


@contextmanager
def _opened(browser: Any, url: str, width: int, height: int, **rest: Any) -> Iterator[Any]:
    context = browser.new_context(
        viewport={"width": width, "height": height}, reduced_motion="reduce", **rest
    )
    context.set_default_timeout(TIMEOUT * 1000)
    page = context.new_page()
    page.goto(url)
    yield page
    context.close()


@contextmanager
def _console(browser: Any) -> Iterator[Any]:
    """The console of an application that does a little of everything, for some seconds."""
    port = free_port()
    with ExitStack() as stack:
        store = stack.enter_context(Server.start("valkey"))
        command = [sys.executable, "-m", "tests.console.busy_shop", store.url, str(port)]
        served = stack.enter_context(subprocess.Popen(command, cwd=ROOT))
        stack.callback(served.terminate)
        page = stack.enter_context(_opened(browser, "about:blank", 1100, 980))
        _reload_until_it_answers(page, f"http://127.0.0.1:{port}/ops/")
        page.locator("#changes li").nth(5).wait_for()
        yield page


def console(browser: Any, file: Path) -> None:
    """What is stuck, and what ends first."""
    with _console(browser) as page:
        _save(page.screenshot(), file)


def console_schedules(browser: Any, file: Path) -> None:
    """A schedule that is overdue, and one that is not."""
    with _console(browser) as page:
        page.locator("[data-group=schedules]").click()
        page.locator("#rows", has_text="backup").wait_for()
        _save(page.screenshot(clip={"x": 0, "y": 0, "width": 1100, "height": 620}), file)


def console_why(browser: Any, file: Path) -> None:
    """Why a key is stuck, and the command that frees it."""
    with _console(browser) as page:
        page.locator("#rows .why").first.click()
        page.locator("#why .command").wait_for()
        box = page.locator("#why").bounding_box()
        clip = {"x": box["x"] - 20, "y": box["y"] - 20}
        clip |= {"width": box["width"] + 40, "height": box["height"] + 40}
        _save(page.screenshot(clip=clip), file)


def console_process(browser: Any, file: Path) -> None:
    """What this process holds and waits for, and its figures by template, after two minutes."""
    with _console(browser) as page:
        page.evaluate("location.hash = '#process'")
        page.wait_for_timeout(120_000)
        _save(page.screenshot(full_page=True), file)


def _save(shot: bytes, file: Path) -> None:
    Image.open(io.BytesIO(shot)).convert("RGB").save(file, quality=82, method=6)


def _reload_until_it_answers(page: Any, url: str) -> None:
    from playwright.sync_api import Error

    for _ in range(round(TIMEOUT)):
        try:
            page.goto(url)
            return
        except Error:
            page.wait_for_timeout(1000)


def local_line(browser: Any, file: Path) -> None:
    """A phone with a bot, and the calls between them: one not served, one in full."""
    with _stage() as stage:
        named = {"name": "咖啡小幫手", "picture": _portrait()}
        stage.line.channel = replace(stage.line.channel, **named)
        asked = text("想喝什麼？也可以傳照片給我。", "拿鐵", "美式")
        stage.bot.says = lambda event: [COFFEE if "拿鐵" in event["message"]["text"] else asked]
        with _opened(browser, stage.line.page_url, 1280, 920, locale="zh-TW") as page:
            page.locator("#bot-name", has_text="咖啡").wait_for()
            say(page, "早安")
            page.get_by_role("button", name="拿鐵").click()
            page.locator(".fx-bubble").wait_for()
            page.locator(".row.mine .mark", has_text="已讀").nth(1).wait_for()
            _call_what_is_not_served(stage)
            page.locator("#wire li").nth(4).wait_for()
            page.locator("#wire li", has_text="message/reply").first.locator("summary").click()
            page.locator(".in-full").wait_for()
            page.locator("#wire").evaluate("list => list.scrollTo(0, 0)")
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=file)


def local_line_pad(browser: Any, file: Path) -> None:
    """A card with two mistakes, beside the last one without."""
    with _stage() as stage:
        card = json.dumps(COFFEE["contents"], indent=2, ensure_ascii=False)
        wrong = card.replace('"size": "kilo"', '"size": "medium"').replace(
            '"weight"', '"wieght"', 1
        )
        url = f"{stage.line.page_url}pad"
        with _opened(browser, url, 1280, 860, locale="zh-TW") as page:
            page.locator("#json").fill(card)
            page.locator(".fx-bubble", has_text="拿鐵").wait_for()
            page.locator("#json").fill(wrong)
            page.locator("#mistakes li").nth(1).wait_for()
            page.locator("#json").evaluate("field => field.scrollTo(0, 0)")
            page.evaluate("document.activeElement.blur()")
            page.screenshot(path=file)


@contextmanager
def _stage() -> Iterator[Stage]:
    stage = Stage()
    try:
        yield stage
    finally:
        stage.close()


def _call_what_is_not_served(stage: Stage) -> None:
    try:
        stage.call("GET", "/v2/bot/orders/17")
    except AssertionError:
        return  # 404


def _portrait() -> Picture:
    """A cup."""
    image = Image.new("RGB", (96, 96), "#7a4a2b")
    draw = ImageDraw.Draw(image)
    draw.ellipse((54, 40, 80, 64), outline="#fbf3e4", width=5)
    draw.rounded_rectangle((22, 34, 66, 72), 14, fill="#fbf3e4")
    file = io.BytesIO()
    image.save(file, "PNG")
    return Picture(file.getvalue(), "image/png")


def _words(words: str, **rest: Any) -> Json:
    return {"type": "text", "text": words, **rest}


def _button(label: str, style: str, **rest: Any) -> Json:
    action = {"type": "postback", "label": label, "data": f"do={label}"}
    return {"type": "button", "style": style, "height": "sm", "action": action, **rest}


COFFEE = flex(
    {
        "type": "bubble",
        "size": "kilo",
        "body": {
            "type": "box",
            "layout": "vertical",
            "spacing": "sm",
            "contents": [
                _words("拿鐵・中杯", weight="bold", size="lg"),
                _words("約 8 分鐘後可取，取餐編號 17", size="sm", color="#555555", wrap=True),
                {"type": "separator"},
                {
                    "type": "box",
                    "layout": "horizontal",
                    "contents": [
                        _words("小計", size="sm", color="#555555"),
                        _words("NT$ 110", size="sm", weight="bold", align="end"),
                    ],
                },
            ],
        },
        "footer": {
            "type": "box",
            "layout": "horizontal",
            "spacing": "sm",
            "contents": [
                _button("付款", "primary", color="#7a4a2b"),
                _button("取消", "secondary"),
            ],
        },
    },
    "拿鐵，約 8 分鐘",
)


def playground_once(browser: Any, file: Path) -> None:
    """Two clicks, one order."""
    with running() as playground, _opened(browser, f"{playground.url}/#once", 1280, 1180) as page:
        page.locator("#lines li").first.wait_for()
        page.locator("#orders-note:empty").wait_for(state="attached")  # the shop is open
        page.locator("#double").click()
        page.locator("#tickets li").first.wait_for()
        page.locator(".try .says", has_text="a moment ago").wait_for()
        page.evaluate("document.activeElement.blur()")
        page.mouse.move(0, 0)
        page.screenshot(path=file)


def playground_cached(browser: Any, file: Path) -> None:
    """Two hundred guests, as they came: one request of dibs, those of the older algorithm."""
    url = "/#cached"
    with running() as playground, _opened(browser, playground.url + url, 1280, 900) as page:
        page.locator(".dish").first.wait_for()
        page.locator("#rush").click()
        page.locator("#side-seed .verdict:not(:empty)").wait_for()
        box = page.locator(".comparison").bounding_box()
        clip = {"x": box["x"] - 16, "y": box["y"] - 16} | {
            "width": box["width"] + 32,
            "height": box["height"] + 24,
        }
        slider = page.locator("#rush-replay input")
        last = float(slider.get_attribute("max"))
        moments = [last * number / FRAMES for number in range(FRAMES + 1)]
        frames: list[Image.Image] = []
        for moment in moments:
            slider.evaluate(
                "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')); }",
                moment,
            )
            frames.append(Image.open(io.BytesIO(page.screenshot(clip=clip))).convert("RGB"))
        pace = round(last * 1000 / FRAMES)
        # Twice, and then it stands still at its end.
        frames[0].save(
            file,
            save_all=True,
            append_images=frames[1:],
            duration=[*([pace] * FRAMES), 4000],
            loop=2,
            quality=80,
            method=6,
        )


FRAMES = 24
"""Of the animation."""


def weamind_card(browser: Any, file: Path) -> None:
    """The three parts of the bot's card, with a warning."""
    made_up = make_up(search("玉山").places[0], now=JULY)
    hazards = (Hazard("南投縣", "豪雨特報"), Hazard("南投縣", "陸上強風特報"))
    some = replace(made_up, sample=False, attribution=open_meteo.ATTRIBUTION, hazards=hazards)
    with _stage() as stage:
        stage.bot.says = lambda event: [forecast_message(some, now=JULY)]
        url = f"{stage.line.page_url}?bare"
        options = {"locale": "zh-TW", "device_scale_factor": 1.5}
        with _opened(browser, url, 1100, 800, **options) as page:
            page.locator("#bot-name", has_text="My bot").wait_for()
            say(page, "玉山")
            page.locator(".fx-carousel .fx-bubble").nth(2).wait_for()
            page.locator(".face").evaluate_all(
                'all => all.forEach(each => (each.style.visibility = "hidden"))'
            )
            box = page.locator(".fx-carousel").bounding_box()
            last = page.locator(".fx-carousel .fx-bubble").nth(2).bounding_box()
            width = last["x"] + last["width"] - box["x"]
            clip = {"x": box["x"] - 12, "y": last["y"] - 12, "width": width + 24}
            page.screenshot(path=file, clip=clip | {"height": last["height"] + 24})


PICTURES: dict[str, Callable[[Any, Path], None]] = {
    "console.webp": console,
    "console-process.webp": console_process,
    "console-schedules.webp": console_schedules,
    "console-why.webp": console_why,
    "local-line.png": local_line,
    "local-line-pad.png": local_line_pad,
    "playground-cached.webp": playground_cached,
    "playground-once.png": playground_once,
    "weamind-card.png": weamind_card,
}

if __name__ == "__main__":
    main()
