"""JSON documents of samples: odd values, odd lists, very many or very deep ones, damaged text."""

import json
import random
from typing import Any, Final

from benchmarks.fuzz.mutate import perhaps

_PLAIN: Final = (
    None, True, 0, -1, 1.5, 2**53 + 1, 2**63, 10**400, 1e308, "", "text", "\0", "\ud800", "\U0001f600",
    "page_0_image_1", "a.tiff", "a.png", "x" * 1000,
)  # fmt: skip
_NAMES: Final = (
    "url", "texts", "images", "sample_id", "source_ref", "_null_fields", "_list_length", "_interleaved",
    "image_metadata", "", "position_", "modality", "binary_content",
)  # fmt: skip
_RAW: Final = (
    b"[" * 100_000, b'{"a":' * 50_000, b'{"a":' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"texts":[' + b"[" * 900 + b"]" * 900 + b"]}", b'{"n":' + b"9" * 4300 + b"}", b'{"n":1e99999}', b'{"n":NaN}',
    b'{"n":-Infinity,"m":Infinity}', b"\xff\xfe{\0}\0", b"\xef\xbb\xbf{}", b'{"\\ud800":1}', b"null", b"",
    b"{}garbage", b'{"a":1,"a":2}', b'{"images":"a","texts":{}}', b'{"texts":[' + b'"",' * 200_000 + b'""]}',
    b'{"images":[' + b'"a.png",' * 3000 + b'"a.png"]}', b'{"images":[' + b'"x",' * 50_000 + b"null]}",
    b'{"a":[' + b"[]," * 300_000 + b"1]}", b'{"a":[' + b"{}," * 200_000 + b"1]}",
    b"{" + b",".join(b'"k%d":1' % n for n in range(40_000)) + b',"k0":2}',
    b"{" + b",".join(b'"k%d":1' % n for n in range(3_000)) + b"}",
    b'{"a":{' + b",".join(b'"k%d":1' % n for n in range(20_000)) + b"}}",
    b'{"_interleaved":{"version":1,"rows":"AAAA","absent":[0]}}', b'{"_interleaved":{"version":2}}',
    b'{"_interleaved":{"version":1,"schema":"////"}}',
)  # fmt: skip


def value(dice: random.Random, depth: int = 0) -> Any:
    """Any JSON value, at most four levels deep."""
    if depth < 4 and dice.random() < 0.35:
        if dice.random() < 0.5:
            return [value(dice, depth + 1) for _ in range(dice.randint(0, 4))]
        return {str(value(dice, 9))[:20]: value(dice, depth + 1) for _ in range(dice.randint(0, 4))}
    return dice.choice(_PLAIN)


def sound_document(dice: random.Random, images: list[str]) -> bytes:
    """A document as MINT-1T has them, texts and ``images`` in turn."""
    texts: list[str | None] = []
    tokens: list[str | None] = []
    for image in images:
        texts += [f"words {dice.randrange(100)}", None]
        tokens += [None, image]
    return json.dumps({"texts": texts, "images": tokens, "url": f"https://example.org/{dice.randrange(9)}"}).encode()


def odd_document(dice: random.Random) -> bytes:
    """A document with odd entries, odd fields, or one that is no document."""
    if dice.random() < 0.06:
        return dice.choice(_RAW)
    count = dice.randint(0, 5)
    tokens = [
        dice.choice((None, "a.png", "a.tiff", "b.tiff", f"page_0_image_{n}", "./a.png", "x/../a.png", 5, "\ud800", ""))
        for n in range(count)
    ]
    body: dict[str, Any] = {"texts": [value(dice, 2) for _ in range(count)], "images": tokens}
    if dice.random() < 0.4:
        metadata = [{"width": dice.choice((8, 2**70, -1, "8", None)), "height": 6} for token in tokens if token]
        body["image_metadata"] = metadata
    for _ in range(dice.randint(0, 3)):
        body[dice.choice(_NAMES)] = value(dice)
    text = json.dumps(body, ensure_ascii=dice.random() < 0.5 or "\\ud800" in json.dumps(body))
    return perhaps(dice, text.encode(), 0.25)
