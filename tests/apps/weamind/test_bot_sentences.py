"""Everyday sentences: what people write, what they expect, and how often they get it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_line import events
from local_line.sources import Source, new_id

from .conftest import BANQIAO, XINYI, RunBot, RunningBot, is_forecast
from .test_bot_handlers import labels, mentioning

pytestmark = pytest.mark.only_on("linux", "darwin")
RECORDED = Path(__file__).parent / "recorded"
ENOUGH = 0.95
TURN = "｜"
FIRST = "sentences.tsv"
LISTS = [
    pytest.param(each, marks=[] if each == FIRST else [pytest.mark.long])
    for each in sorted(each.name for each in RECORDED.glob("sentences*.tsv"))
]


@dataclass(frozen=True)
class Sentence:
    """What a person writes, and what they expect: see recorded/sentences.tsv."""

    where: str
    words: str
    gets: str
    says: str


def sentences(name: str) -> list[Sentence]:
    """All sentences of a file."""
    found = []
    for line in (RECORDED / name).read_text().splitlines():
        if line and not line.startswith("# ") and line != "#":
            found.append(Sentence(*[*line.split("\t"), "", ""][:4]))
    return found


async def write(bot: RunningBot, sentence: Sentence) -> list[dict[str, Any]]:
    """What comes back for it."""
    source = person = bot.line.somebody()
    seen = 0
    if sentence.where == "home":
        await bot.line.tap(f"action=set&type=home&place={XINYI}", source=person)
        await bot.line.tap(f"action=set&type=office&place={BANQIAO}", source=person)
        await bot.replies(seen := 2, source=person)
    elif sentence.where in ("group", "mention"):
        source = Source.group(new_id("group"), person.chat_id)
    *before, last = sentence.words.split(TURN)
    seen = await talk(bot, person, before, seen)
    is_mention = sentence.where == "mention"
    draft = mentioning(f"@WeaMind {last}".strip()) if is_mention else events.text(last)
    await bot.line.send(draft, source=source)
    await bot.settled()
    return bot.line.chat(source).sent[seen:]


async def talk(bot: RunningBot, person: Source, turns: list[str], seen: int) -> int:
    """Say *turns*, one after the other; how many messages there are then."""
    for words in turns:
        await bot.line.say(words, source=person)
        await bot.settled()
        assert len(bot.line.chat(person).sent) > seen
        seen = len(bot.line.chat(person).sent)
    return seen


SHAPES = {
    "silence": [], "card": ["flex"], "answer": ["text", "flex"], "both": ["text", "flex", "flex"],
    "three": ["text", "flex", "flex", "flex"],
}  # fmt: skip


def miss(sentence: Sentence, sent: list[dict[str, Any]]) -> str | None:
    """What is not as expected. None: everything is."""
    kind, *names = sentence.gets.split()
    text = sent[0].get("text", "") if sent else ""
    shape = ["flex" if is_forecast(each) else "text" for each in sent]
    expected = SHAPES.get(kind, ["text"])
    if shape != expected:
        return f"{shape or 'nothing'} {text!r}"
    for word in sentence.says.split():
        if not any(each in text for each in word.split("/")):
            return f"no {word} in {text!r}"
    return _miss_of_place(kind, names, sent, text)


def _miss_of_place(
    kind: str, names: list[str], sent: list[dict[str, Any]], text: str
) -> str | None:
    if kind in ("card", "answer") and not _shows(sent[-1], names[0]):
        return f"another place: {sent[-1]['altText'][:40]!r}"
    if kind == "answer" and not sent[-1]["altText"].startswith(text):
        return f"another altText: {sent[-1]['altText'][:40]!r}"
    if kind in ("both", "three") and not all(map(_shows, sent[1:], names)):
        return f"other places: {[each['altText'][:40] for each in sent[1:]]}"
    if kind == "link" and "quickReply" in sent[0]:
        return f"offered {labels(sent[0])}"
    if kind == "which" and not set(names) <= set(labels(sent[0])):
        return f"offered {labels(sent[0])}"
    if kind == "where" and not labels(sent[0]):
        return "no buttons"
    if kind == "set" and ("✅" not in text or names[1] not in text):
        return f"not set: {text!r}"
    return None


def _shows(card: dict[str, Any], names: str) -> bool:
    shown = json.dumps(card["contents"], ensure_ascii=False)
    return any(each in shown for each in names.split("/"))


async def test_a_question_gets_the_answer_to_it(run_bot: RunBot) -> None:
    """A comparison is compared, two days are two lines, a new topic has its own day, and who
    complains is not asked for a place: each sentence of answers.tsv."""
    async with run_bot() as bot:
        for sentence in sentences("answers.tsv"):
            assert miss(sentence, await write(bot, sentence)) is None, sentence.words


@pytest.mark.parametrize("name", LISTS)
async def test_most_everyday_sentences_are_understood(
    run_bot: RunBot, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """At least 95 in 100 get what the person expects; the others are printed."""
    listed = sentences(name)
    assert len(listed) >= 50
    misses: list[str] = []
    async with run_bot() as bot:
        for sentence in listed:
            if found := miss(sentence, await write(bot, sentence)):
                misses.append(f"{sentence.where}: {sentence.words!r} → {sentence.gets}: {found}")
        assert bot.count("line_events_total", outcome="failed") == 0
    right = 1 - len(misses) / len(listed)
    with capsys.disabled():
        print(f"\n{name}: {len(listed)} sentences, {right:.1%} as expected", *misses, sep="\n  ")
    assert right >= ENOUGH
