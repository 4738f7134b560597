"""Web pages with texts that text filters are for: spam, repetition, another language, personal data, boilerplate."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from interleaved_assets.demo.documents import DemoDocument, DemoMember, Item, file_members
from interleaved_assets.demo.pictures import sharp
from interleaved_assets.demo.prose import TOPICS, heading, paragraph, pick_topic

_SIZE: Final = (320, 240)
_SPAM: Final = (
    "BUY NOW!!! CHEAP WATCHES, CHEAP BAGS, CHEAP SHOES!!! #sale #deal #win #free #cash",
    "Click here >>> http://example.org/win >>> limited offer >>> act now >>> 100% free $$$",
    "WIN WIN WIN $$$ 5000 $$$ TODAY ONLY $$$ CALL NOW $$$ #winner #jackpot #lucky",
)
_GERMAN: Final = (
    "Am Morgen prüft die Hafenmeisterin die Leinen, weil das Wetter selten länger als eine Stunde hält.",
    "Die Nachbarn vermessen den Marktplatz, und das Ergebnis ist besser, als der Plan versprochen hatte.",
    "Nach dem Regen zeichnet die Landvermesserin die Grenzsteine auf, während die anderen mit Tee warten.",
    "Niemand, der das Gewächshaus gesehen hat, vergisst die frühen Kartoffeln.",
)
_BOILERPLATE: Final = (
    "Home | About | Contact",
    "We use cookies to improve your visit.",
    "Read more",
    "Share this article",
)
_PERSONAL: Final = (
    "Questions go to jane.doe@example.org or to (555) 010-4477 on weekdays.",
    "The gate opens for 192.0.2.17; the form was filed under 078-05-1120.",
)


def web_pages(rng: np.random.Generator) -> Iterator[DemoMember]:
    """Yield the members of three pages of each kind, each with a picture, and of three ordinary ones."""
    for number in range(3 * len(_KINDS)):
        kind = list(_KINDS)[number % len(_KINDS)]
        picture = sharp(rng, *_SIZE)
        items: list[Item] = [*_KINDS[kind](rng), picture.caption, picture]
        fields: dict[str, Any] = {"url": f"https://example.org/pages/{number:03d}", "dump": "2024-10", "kind": kind}
        yield from file_members(DemoDocument(f"page-{number:03d}", items, fields, kind), ("jpg",))


def _ordinary(rng: np.random.Generator) -> list[Item]:
    """Return a heading and a paragraph on each of four subjects: prose on one would repeat itself."""
    topics = [TOPICS[int(number)] for number in rng.permutation(len(TOPICS))[:4]]
    return [heading(rng, topics[0]), *(paragraph(rng, topic, 30) for topic in topics)]


def _spam(rng: np.random.Generator) -> list[Item]:
    return [_SPAM[int(rng.integers(len(_SPAM)))] for _ in range(6)]


def _repetition(rng: np.random.Generator) -> list[Item]:
    repeated = paragraph(rng, pick_topic(rng), 25)
    return [" ".join([repeated] * 4), repeated, repeated]


def _another_language(rng: np.random.Generator) -> list[Item]:
    sentences = [_GERMAN[int(place)] for place in rng.permutation(len(_GERMAN))]
    return [" ".join(sentences[:2]), " ".join(sentences[2:])]


def _personal_data(rng: np.random.Generator) -> list[Item]:
    return [*_ordinary(rng), *_PERSONAL]


def _boilerplate(rng: np.random.Generator) -> list[Item]:
    return [_BOILERPLATE[0], *_ordinary(rng), *_BOILERPLATE[1:]]


_KINDS: Final[dict[str, Callable[[np.random.Generator], list[Item]]]] = {
    "ordinary": _ordinary,
    "spam": _spam,
    "repetition": _repetition,
    "German": _another_language,
    "personal data": _personal_data,
    "boilerplate": _boilerplate,
}
"""The function that makes the texts of each kind of page."""
