"""English prose from templates and a seeded generator: headings and paragraphs of a document."""

from dataclasses import dataclass
from typing import Final

import numpy as np


@dataclass(frozen=True)
class Topic:
    """Words of one subject; each list fills one slot of the sentence templates."""

    title: str
    place: tuple[str, ...]
    thing: tuple[str, ...]
    person: tuple[str, ...]
    act: tuple[str, ...]


TOPICS: Final = (
    Topic(
        "Notes from the harbour",
        ("the harbour", "the old quay", "the breakwater", "the slipway"),
        ("the mooring lines", "a coat of varnish", "the tide table", "the channel markers", "the ferry timetable"),
        ("the harbour master", "two fishermen", "the pilot", "a retired boat builder"),
        ("checks", "repairs", "writes down", "paints over", "carries away"),
    ),
    Topic(
        "Living in the old town",
        ("the market square", "the upper street", "the covered passage", "the corner by the bakery"),
        ("the shutters", "the paving stones", "a row of lamps", "the plans of 1912", "the rain gutters"),
        ("the neighbours", "a mason from the next valley", "the council", "the tenants upstairs"),
        ("measures", "restores", "argues about", "takes photographs of", "replaces"),
    ),
    Topic(
        "A field guide to the valley",
        ("the valley floor", "the south slope", "the river bend", "the upper meadow"),
        ("the first snow", "wild thyme", "the boundary stones", "three kinds of moss", "the water level"),
        ("the ranger", "a school class", "the surveyor", "our guide"),
        ("records", "points out", "maps", "looks for", "compares"),
    ),
    Topic(
        "Kitchen garden, month by month",
        ("the greenhouse", "the raised bed", "the compost heap", "the south wall"),
        ("early potatoes", "the seed trays", "last year's beans", "the rain barrel", "a bed of leeks"),
        ("the gardener", "my grandmother", "the apprentice", "everyone with a spade"),
        ("waters", "covers", "digs up", "labels", "harvests"),
    ),
    Topic(
        "Small machines, explained",
        ("the workbench", "the back of the workshop", "the test stand", "the tool cabinet"),
        ("the drive belt", "a worn bearing", "the pressure gauge", "the spare fuse", "the gear train"),
        ("the mechanic", "a careful amateur", "the technician", "the instructor"),
        ("adjusts", "takes apart", "lubricates", "tests", "draws"),
    ),
    Topic(
        "The night sky for beginners",
        ("the observatory", "the dark side of the hill", "the dome", "the roof terrace"),
        ("the phases of the moon", "a double star", "the exposure time", "the star chart", "the finder scope"),
        ("the astronomer", "a visiting class", "the night assistant", "the club's oldest member"),
        ("observes", "charts", "calibrates", "explains", "looks up"),
    ),
)

_WHEN: Final = ("In the morning", "Before noon", "Every spring", "Twice a year", "On quiet days", "After the rain")
_WHY: Final = (
    "because the weather rarely holds for longer than an hour",
    "although nobody remembers who started it",
    "so that the next person finds everything in its place",
    "and the result is better than the plan had promised",
    "while the rest of the group waits with tea and bread",
    "which takes patience rather than strength",
)
_ASIDES: Final = (
    "It costs little and lasts for years.",
    "The figures below were taken over two seasons.",
    "None of this needs special equipment.",
    "There is more to it than first meets the eye.",
    "A second visit usually tells more than the first.",
    "Ask before you borrow the key.",
)


def paragraph(rng: np.random.Generator, topic: Topic, words: int) -> str:
    """Return whole sentences on ``topic``: at least ``words`` words, and at most one sentence more."""
    sentences: list[str] = []
    count = 0
    while count < words:
        sentence = _sentence(rng, topic)
        sentences.append(sentence)
        count += len(sentence.split())
    return " ".join(sentences)


def heading(rng: np.random.Generator, topic: Topic) -> str:
    """Return a section heading as Markdown."""
    place = _pick(rng, topic.place)
    return f"## {place[0].upper()}{place[1:]}: {_pick(rng, topic.thing)}"


def pick_topic(rng: np.random.Generator) -> Topic:
    """Return one of :data:`TOPICS`, each with equal probability."""
    return TOPICS[int(rng.integers(len(TOPICS)))]


def _sentence(rng: np.random.Generator, topic: Topic) -> str:
    person, place, thing, act = (_pick(rng, words) for words in (topic.person, topic.place, topic.thing, topic.act))
    match int(rng.integers(5)):
        case 0:
            return f"{_pick(rng, _WHEN)} {person} {_plural(act, person)} {thing} at {place}, {_pick(rng, _WHY)}."
        case 1:
            return f"At {place}, {person} {_plural(act, person)} {thing}."
        case 2:
            return f"Of all things at {place}, {person} {_plural(act, person)} {thing} first, {_pick(rng, _WHY)}."
        case 3:
            return f"Nobody who has seen {place} forgets {thing}."
        case _:
            return _pick(rng, _ASIDES)


def _plural(act: str, person: str) -> str:
    """Return ``act`` without its third-person ending if ``person`` is several people."""
    if person not in ("two fishermen", "the neighbours", "the tenants upstairs"):
        return act
    verb, _, rest = act.partition(" ")
    return f"{verb.removesuffix('es') if verb.endswith('ches') else verb.removesuffix('s')} {rest}".rstrip()


def _pick(rng: np.random.Generator, words: tuple[str, ...]) -> str:
    return words[int(rng.integers(len(words)))]
