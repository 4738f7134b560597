"""TIFFs whose tags, links between directories and bytes are mutated."""

import random
import struct
from typing import Final

from benchmarks.fuzz.mutate import perhaps

_POINTERS: Final = (34665, 34853, 330, 40965, 347)
"""Tags whose value is the offset of another directory, or of tables."""


def odd_tiff(dice: random.Random) -> bytes:
    """A TIFF of a few to 5,000 frames of 8 x 6 pixels; classic or BigTIFF, either byte order."""
    order, big = dice.choice("<>"), dice.random() < 0.4
    link, entry = (order + "Q", order + "HHQQ") if big else (order + "I", order + "HHII")
    out = bytearray(b"II" if order == "<" else b"MM")
    out += struct.pack(order + "HHHQ", 43, 8, 0, 0) if big else struct.pack(order + "HI", 42, 0)
    strip, link_at = len(out), 8 if big else 4
    pixels = dice.choice((144, 144, 100_000))
    out += dice.randbytes(144) + bytes(pixels - 144)
    odd = (0, 1, 2**16 - 1, 2**31, 2**32 - 1, len(out)) + ((2**63 - 1, 2**63, 2**64 - 1, 2**40) if big else ())
    first: int | None = None
    for _ in range(dice.choice((1, 2, 3, 3, 3)) if dice.random() < 0.97 else dice.choice((600, 600, 5000))):
        out += bytes(len(out) % 2)
        at = len(out)
        struct.pack_into(link, out, link_at, at)
        tags = {256: 8, 257: 6, 258: 8, 259: 1, 262: 2, 273: strip, 277: 3, 278: 6, 279: pixels, 284: 1}
        if dice.random() < 0.3:
            tags[dice.choice(_POINTERS)] = dice.choice((at if first is None else first, at, strip))
        first = at if first is None else first
        for _ in range(dice.choice((0, 0, 1, 3))):
            tag = dice.choice(list(tags))
            if dice.random() < 0.3:
                del tags[tag]
            else:
                tags[tag] = dice.choice(odd)
        out += struct.pack(order + ("Q" if big else "H"), len(tags))
        for tag in sorted(tags):
            kind, number = (16 if big else 4), 1
            if dice.random() < 0.03:
                kind = dice.choice((0, 1, 2, 3, 5, 12, 13, 18, 99))
                number = dice.choice((0, 1, 2, 1000, 2**31, 2**32 - 1))
            out += struct.pack(entry, tag, kind, number, tags[tag] % 2 ** (64 if big else 32))
        link_at = len(out)
        out += bytes(8 if big else 4)
    if first is not None and dice.random() < 0.1:
        # the last directory leads to the first
        struct.pack_into(link, out, link_at, first)
    return perhaps(dice, bytes(out), 0.3)
