"""The embedded corpus: news-like sentence pairs that the project makes itself, for the demo, tests and benchmarks.

A pair tells one event twice. The second telling may change voice, order, synonyms and detail, whether or not it is a
paraphrase; if it is none, one fact differs as well: a number, a name, a negation, or who did it to whom. So the words
that two sentences share say little about whether they mean the same.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

SIZE = 1000  # pairs of the corpus that data.task=sample stands for
EQUIVALENT = 0.675  # share of paraphrases, as in MRPC


@dataclass(frozen=True)
class _Verb:
    """forms: synonyms as (past, participle, base). amount: what its number counts, as synonyms."""

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
    _Verb(
        (("criticized", "criticized", "criticize"), ("condemned", "condemned", "condemn")),
        ("for cutting {} jobs", "for the loss of {} jobs"),
    ),
    _Verb(
        (("rescued", "rescued", "rescue"), ("bailed out", "bailed out", "bail out")),
        ("with a loan of $ {} million", "with a {} million dollar loan"),
    ),
    _Verb(
        (("warned", "warned", "warn"), ("cautioned", "cautioned", "caution")),
        ("about {} safety violations", "about {} violations of safety rules"),
    ),
    _Verb(
        (("fined", "fined", "fine"), ("penalized", "penalized", "penalize")),
        ("$ {} million for late reports", "{} million dollars over late reports"),
    ),
    _Verb(
        (("supplied", "supplied", "supply"), ("provided", "provided", "provide")),
        ("with {} tons of steel", "with a load of {} tons of steel"),
    ),
)
_STEMS = (
    "Norvale", "Halden", "Brenmar", "Tessel", "Corwick", "Aldmere", "Pellston", "Kestrin", "Ostrava",
    "Lindholm", "Varley", "Montrose", "Ardent", "Calloway", "Fenwick", "Grantham", "Hollis", "Ivanmoor",
    "Jarrow", "Kirkwall", "Langdon", "Merriam", "Northgate", "Oakhurst", "Penrose", "Quillan", "Redfern",
    "Selwyn", "Thornby", "Ulverston", "Vantage", "Westmark", "Yarrow", "Zellner", "Ashford", "Belmont",
    "Carrick", "Dunmore", "Everly", "Farrow",
)  # fmt: skip
_KINDS = (
    "Energy", "Bank", "Airways", "Motors", "Foods", "Steel", "Media", "Insurance", "Pharma", "Software", "Rail",
    "Shipping", "Telecom", "United", "Rovers",
)  # fmt: skip
_CITIES = (
    "Boston", "Chicago", "Denver", "Houston", "Seattle", "Atlanta", "Detroit", "Phoenix", "Dallas", "Miami",
    "London", "Paris", "Berlin", "Madrid", "Rome", "Vienna", "Tokyo", "Seoul", "Sydney", "Toronto", "Dublin",
    "Oslo", "Lisbon", "Prague",
)  # fmt: skip
_TIMES = (
    "on Monday", "on Tuesday", "on Wednesday", "on Thursday", "on Friday", "on Saturday", "last week", "last month",
    "in January", "in March", "in May", "in June", "in August", "in October", "in December", "this year",
)  # fmt: skip
_AMOUNTS = range(2, 981)
_SOURCES = (
    ("officials said", "officials told reporters"),
    ("a spokesman said", "according to a spokesman"),
    ("a court filing showed", "according to a court filing"),
    ("the company said in a statement", "according to a statement of the company"),
    ("two people close to the talks said", "people with knowledge of the talks said"),
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
    """How an event is told; nothing of it changes what happened."""

    passive: bool
    verb: int
    amount: int
    time_first: bool
    source: int
    source_first: bool
    with_city: bool


def pairs(count: int, seed: int = 2002) -> Iterator[tuple[str, str, int]]:
    """Yield `count` pairs as (sentence1, sentence2, label), label 1 for a paraphrase.

    One at a time, in constant memory; the same seed gives the same pairs, of which fewer are a prefix of more.
    """
    rng = random.Random(seed)
    for _ in range(count):
        event, style = _event(rng), _style(rng)
        label = int(rng.random() < EQUIVALENT)
        told = event if label else _altered(event, rng)
        retelling = style
        while retelling == style:
            retelling = _style(rng)
        yield _tell(event, style), _tell(told, retelling), label


def _event(rng: random.Random) -> _Event:
    agent, patient = rng.sample(_STEMS, 2)
    return _Event(
        agent=f"{agent} {rng.choice(_KINDS)}",
        patient=f"{patient} {rng.choice(_KINDS)}",
        verb=rng.choice(_VERBS),
        amount=rng.choice(_AMOUNTS),
        time=rng.choice(_TIMES),
        city=rng.choice(_CITIES),
        source=rng.choice(_SOURCES),
        negated=rng.random() < 0.15,
    )


def _style(rng: random.Random) -> _Style:
    return _Style(
        passive=rng.random() < 0.35,
        verb=rng.randrange(6),  # taken modulo the number of synonyms
        amount=rng.randrange(2),
        time_first=rng.random() < 0.4,
        source=rng.randrange(2),
        source_first=rng.random() < 0.3,
        with_city=rng.random() < 0.7,
    )


def _altered(event: _Event, rng: random.Random) -> _Event:
    """The event with one fact changed: a number, a name, whether it happened, or who did it to whom."""
    match rng.randrange(5):
        case 0:
            return replace(event, amount=rng.choice([n for n in _AMOUNTS if n != event.amount]))
        case 1:
            return replace(event, agent=_renamed(event.agent, event.patient, rng))
        case 2:
            return replace(event, patient=_renamed(event.patient, event.agent, rng))
        case 3:
            return replace(event, negated=not event.negated)
        case _:
            return replace(event, agent=event.patient, patient=event.agent)


def _renamed(name: str, other: str, rng: random.Random) -> str:
    """Another name of the same kind, as easily told from `other` as any."""
    kind = name.split()[1]
    return f"{rng.choice([stem for stem in _STEMS if stem not in name and stem not in other])} {kind}"


def _tell(event: _Event, style: _Style) -> str:
    past, participle, base = event.verb.forms[style.verb % len(event.verb.forms)]
    if style.passive:
        core = f"{event.patient} {'was not' if event.negated else 'was'} {participle} by {event.agent}"
    else:
        core = f"{event.agent} {f'did not {base}' if event.negated else past} {event.patient}"
    core = f"{core} {event.verb.amount[style.amount].format(event.amount)}"
    if style.with_city:
        core += f" in {event.city}"
    core = f"{event.time} , {core}" if style.time_first else f"{core} {event.time}"
    source = event.source[style.source]
    told = f"{source} : {core}" if style.source_first else f"{core} , {source}"
    return f"{told[0].upper()}{told[1:]} ."
