"""Generate the demo corpus: news-like sentence pairs for the demo, tests and benchmarks.

Both sentences of a pair describe the same event. The second sentence changes voice, order, synonyms or detail, whether
or not it is a paraphrase. If it is not a paraphrase, one or two facts differ as well: a number, a name, a negation, or
who did it to whom. The words that two sentences share therefore say little about whether they mean the same.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import pandas as pd

from pipeline.sources.corpus import Corpus, published_origin
from pipeline.sources.glue import glue_task

SIZE = 1000  # pairs for data.task=demo
DEMO = replace(glue_task("mrpc"), name="demo")
EQUIVALENT = 0.675  # proportion of paraphrases, as in MRPC


@dataclass(frozen=True)
class _Verb:
    """A verb and its synonyms.

    Attributes:
        forms: The past tense, participle and base form of each synonym.
        amount: Phrases with the same meaning that put a number after the verb.
    """

    forms: tuple[tuple[str, str, str], ...]
    amount: tuple[str, ...]


_VERBS = (
    _Verb(
        (("bought", "bought", "buy"), ("acquired", "acquired", "acquire"), ("purchased", "purchased", "purchase")),
        ("for $ {} million", "for {} million dollars"),
    ),
    _Verb(
        (("beat", "beaten", "beat"), ("defeated", "defeated", "defeat"), ("outplayed", "outplayed", "outplay")),
        ("by {} points", "by a margin of {} points"),
    ),
    _Verb(
        (("overtook", "overtaken", "overtake"), ("surpassed", "surpassed", "surpass")),
        ("by {} percent in sales", "in sales by {} percent"),
    ),
    _Verb(
        (("sued", "sued", "sue"), ("took to court", "taken to court", "take to court")),
        ("over {} unpaid bills", "over {} bills left unpaid"),
    ),
    _Verb(
        (("praised", "praised", "praise"), ("commended", "commended", "commend")),
        ("for creating {} jobs", "for the creation of {} jobs"),
    ),
)
# The vocabulary is small, so that each word is in many sentences. Otherwise a model would not see a name, a verb or a
# number often enough in a thousand pairs to learn to compare it.
_STEMS = (
    "Falcon", "Maple", "Summit", "Harbor", "Granite", "Phoenix", "Cobalt", "Meadow", "Anchor", "Lantern", "Compass",
    "Orchid",
)  # fmt: skip
_BUSINESSES = ("Energy", "Bank", "Airways", "Motors", "Foods")
_CITIES = ("Boston", "Chicago", "Denver", "Houston", "Seattle", "Atlanta")
_TIMES = ("on Monday", "on Tuesday", "on Wednesday", "on Thursday", "on Friday", "on Saturday")
_AMOUNTS = (12, 20, 35, 50, 80, 140, 200, 300, 450, 600, 750, 900)
_SOURCES = (
    ("officials said", "officials told reporters"),
    ("a spokesman said", "according to a spokesman"),
    ("a court filing showed", "according to a court filing"),
)


@dataclass(frozen=True)
class _Event:
    agent: str
    patient: str
    verb: _Verb
    amount: int
    time: str
    city: str
    source: tuple[str, str]
    negated: bool


@dataclass(frozen=True)
class _Style:
    """How a sentence describes an event. The style does not change the facts."""

    passive: bool
    verb: tuple[str, str, str]
    amount: str
    time_first: bool
    source: str
    source_first: bool
    with_city: bool


def pairs(count: int) -> Iterator[tuple[str, str, int]]:
    """Yield pairs as (sentence1, sentence2, label). The label of a paraphrase is 1.

    A smaller count gives the first pairs of a larger one.
    """
    rng = random.Random(2028)
    for _ in range(count):
        event = _event(rng)
        style = _style(event, rng)
        label = int(rng.random() < EQUIVALENT)
        retold_event = event if label else _altered(event, rng)
        # Paraphrases change more of the style. Otherwise they would share more words than the other pairs.
        changes = rng.choices((1, 2, 3, 4), weights=(1, 2, 3, 3) if label else (3, 3, 2, 1))[0]
        retelling = _restyled(style, event, rng, changes)
        yield _tell(event, style), _tell(retold_event, retelling), label


def _event(rng: random.Random) -> _Event:
    agent, patient = rng.sample(_STEMS, 2)
    return _Event(
        agent=f"{agent} {rng.choice(_BUSINESSES)}",
        patient=f"{patient} {rng.choice(_BUSINESSES)}",
        verb=rng.choice(_VERBS),
        amount=rng.choice(_AMOUNTS),
        time=rng.choice(_TIMES),
        city=rng.choice(_CITIES),
        source=rng.choice(_SOURCES),
        negated=rng.random() < 0.15,
    )


def _style(event: _Event, rng: random.Random) -> _Style:
    return _Style(
        passive=rng.random() < 0.25,
        verb=rng.choice(event.verb.forms),
        amount=rng.choice(event.verb.amount),
        time_first=rng.random() < 0.4,
        source=rng.choice(event.source),
        source_first=rng.random() < 0.3,
        with_city=rng.random() < 0.7,
    )


def _restyled(style: _Style, event: _Event, rng: random.Random, changes: int) -> _Style:
    """Return a style that differs in exactly this number of choices."""
    restyled = style
    while sum(getattr(restyled, entry.name) != getattr(style, entry.name) for entry in fields(style)) != changes:
        restyled = _style(event, rng)
    return restyled


def _altered(event: _Event, rng: random.Random) -> _Event:
    """Return the event with one or two changed facts: a number, a name, whether it happened, or who did it to whom."""
    for change in rng.sample(("number", "agent", "patient", "negation", "roles"), rng.randint(1, 2)):
        if change == "number":
            event = replace(event, amount=rng.choice([amount for amount in _AMOUNTS if amount != event.amount]))
        elif change == "agent":
            event = replace(event, agent=_new_name(event, rng))
        elif change == "patient":
            event = replace(event, patient=_new_name(event, rng))
        elif change == "negation":
            event = replace(event, negated=not event.negated)
        else:
            event = replace(event, agent=event.patient, patient=event.agent)
    return event


def _new_name(event: _Event, rng: random.Random) -> str:
    stems = [stem for stem in _STEMS if stem not in event.agent and stem not in event.patient]
    return f"{rng.choice(stems)} {rng.choice(_BUSINESSES)}"


def _tell(event: _Event, style: _Style) -> str:
    past, participle, base = style.verb
    if style.passive:
        core = f"{event.patient} {'was not' if event.negated else 'was'} {participle} by {event.agent}"
    else:
        core = f"{event.agent} {f'did not {base}' if event.negated else past} {event.patient}"
    core = f"{core} {style.amount.format(event.amount)}"
    if style.with_city:
        core += f" in {event.city}"
    core = f"{event.time} , {core}" if style.time_first else f"{core} {event.time}"
    sentence = f"{style.source} : {core}" if style.source_first else f"{core} , {style.source}"
    return f"{sentence[0].upper()}{sentence[1:]} ."


def load_demo() -> Corpus:
    """Generate `SIZE` pairs, and split them in about the same proportions as MRPC."""
    table = pd.DataFrame(pairs(SIZE), columns=[*DEMO.text_columns, "label"]).assign(idx=range(SIZE))
    bounds = [0, int(0.64 * SIZE), int(0.76 * SIZE), SIZE]
    splits = {split: table[start:end] for split, (start, end) in zip(DEMO.splits, pairwise(bounds), strict=True)}
    return Corpus(DEMO, splits, published_origin(splits, language="en"))
