"""Texts drawn with a fixed seed: sentences, lists, spam, code, many scripts, and text without any words."""

import random
from collections.abc import Callable

_COMMON_WORDS = "the of and to a in that it with is was for on as be have this from at by not are but or an they which"
_COMMON = _COMMON_WORDS.split()
_STEMS_WORDS = "river stone market winter garden engine letter silver morning signal window forest paper harbour"
_STEMS = _STEMS_WORDS.split()
_NAMES = [f"{stem}{ending}" for stem in _STEMS for ending in ("", "s", "ing", "ed", "er")]
_OTHERS = {
    "cyrillic": ["река", "камень", "рынок", "зима", "сад", "письмо", "утро", "окно", "лес", "бумага"],
    "greek": ["ποτάμι", "πέτρα", "αγορά", "χειμώνας", "κήπος", "γράμμα", "πρωί", "παράθυρο"],
    "hindi": ["नदी", "पत्थर", "बाज़ार", "सर्दी", "बगीचा", "पत्र", "सुबह", "खिड़की"],
    "arabic": ["نهر", "حجر", "سوق", "شتاء", "حديقة", "رسالة", "صباح", "نافذة"],
    "chinese": ["河流石头市场", "冬天花园", "早上窗户。", "森林纸"],
    "emoji": ["😀", "🚀🚀", "👩‍👩‍👧", "…", "🇩🇪"],
    "signs": [
        "...",
        "--",
        "#",
        "##",
        "***",
        "{",
        "}",
        "|",
        "§",
        "→",
        "€5",
        "1,000",
        "a.b",
        "x-y",
        "“quoted”",
        "it's",
        "Lorem Ipsum",
        "lorem ipsum",
    ],
}


def _sentence(draw: random.Random, words: int) -> str:
    pool = [draw.choice(_COMMON) if draw.random() < 0.45 else draw.choice(_NAMES) for _ in range(words)]
    ending = draw.choice([".", ".", ".", "!", "?", "...", "…", "", ","])
    return " ".join([pool[0].capitalize(), *pool[1:]]) + ending


def _prose(draw: random.Random) -> str:
    lines = [_sentence(draw, draw.randint(3, 25)) for _ in range(draw.randint(1, 30))]
    return draw.choice(["\n", " ", "\n\n"]).join(lines)


def _list(draw: random.Random) -> str:
    mark = draw.choice(["- ", "• ", "  - ", "* ", "1. "])
    lines = [mark + _sentence(draw, draw.randint(1, 8)) for _ in range(draw.randint(3, 25))]
    return draw.choice(["\n", "\r\n", "\n\n"]).join([_sentence(draw, 9), *lines])


def _spam(draw: random.Random) -> str:
    lines = [_sentence(draw, draw.randint(2, 12)) for _ in range(draw.randint(1, 5))]
    return draw.choice(["\n", "\n\n", " ", "\n\n\n"]).join(draw.choice(lines) for _ in range(draw.randint(2, 40)))


def _loop(draw: random.Random) -> str:
    phrase = _sentence(draw, draw.randint(1, 6))
    return draw.choice([" ", ""]).join([phrase] * draw.randint(2, 60))


def _mixed(draw: random.Random) -> str:
    pools = draw.sample([*_OTHERS.values(), _NAMES, _COMMON], 3)
    words = [draw.choice(draw.choice(pools)) for _ in range(draw.randint(1, 150))]
    return "".join(word + draw.choice([" ", " ", " ", "\n", "\u00a0", "\t", "  ", "\n\n"]) for word in words)


def _noise(draw: random.Random) -> str:
    places = [
        (0x20, 0x7F),
        (0x20, 0x7F),
        (0xA0, 0x250),
        (0x2000, 0x2070),
        (0x202A, 0x202F),
        (0x1F600, 0x1F640),
        (0x4E00, 0x4E20),
    ]
    return "".join(chr(draw.randrange(*draw.choice(places))) for _ in range(draw.randint(0, 300)))


def _few(draw: random.Random) -> str:
    return draw.choice(
        ["", " ", "\n", "\n\n", "word", " word\n", "...", "…", "#", "-", "\n\n\nx\n\n\n", "a\r\nb\r\n", "\u2028"]
    )


_KINDS: tuple[Callable[[random.Random], str], ...] = (_prose, _prose, _list, _spam, _loop, _mixed, _noise, _few)


def drawn_texts(count: int, seed: int = 26) -> list[str]:
    """Return texts, some of them made of two of the kinds."""
    draw = random.Random(seed)
    texts = []
    for _ in range(count):
        text = draw.choice(_KINDS)(draw)
        if draw.random() < 0.25:
            text += draw.choice(["\n", "\n\n", " "]) + draw.choice(_KINDS)(draw)
        texts.append(text)
    return texts
