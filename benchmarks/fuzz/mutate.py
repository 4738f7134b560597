"""Damage to bytes of any format."""

import random
import struct
from typing import Final

EXTREMES: Final = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    2**31 - 1,
    2**31,
    2**32 - 2,
    2**32 - 1,
    2**63,
    2**64 - 1,
)


def mutated(dice: random.Random, data: bytes, first: int = 0, last: int | None = None) -> bytes:
    """``data`` with one to four mutations that begin between the offsets ``first`` and ``last``."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        stop = min(len(changed), len(changed) if last is None else last)
        if stop <= first:
            break
        _mutate(dice, changed, dice.randrange(first, stop))
    return bytes(changed)


def perhaps(dice: random.Random, data: bytes, chance: float) -> bytes:
    """``data``, mutated with probability ``chance``."""
    return mutated(dice, data) if dice.random() < chance else data


def overwritten(dice: random.Random, data: bytes, first: int, last: int) -> bytes:
    """``data`` with changed bytes between the offsets ``first`` and ``last``; all others keep value and place."""
    changed = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(first, last)
        _overwrite(dice, changed, at, last)
    return bytes(changed)


def _mutate(dice: random.Random, data: bytearray, at: int) -> None:
    kind = dice.random()
    if kind < 0.6:
        _overwrite(dice, data, at, len(data))
    elif kind < 0.72:
        del data[at : at + dice.choice((1, 2, 4, 64, 512, 1000))]
    elif kind < 0.84:
        data[at:at] = data[at : at + dice.choice((1, 4, 100, 512))] * dice.choice((1, 1, 2, 50))
    elif kind < 0.92:
        data[at:at] = dice.choice((bytes(4), b"\xff" * 8, b"-1", b"1e999", dice.randbytes(16)))
    else:
        del data[at:]


def _overwrite(dice: random.Random, data: bytearray, at: int, last: int) -> None:
    kind = dice.random()
    if kind < 0.5:
        data[at] ^= 1 << dice.randrange(8)
    elif kind < 0.7:
        data[at] = dice.choice((0, 255, 128, 127, dice.randrange(256)))
    else:
        size = dice.choice((2, 4, 8))
        value = dice.choice(EXTREMES) % 2 ** (8 * size)
        packed = struct.pack(dice.choice("<>") + {2: "H", 4: "I", 8: "Q"}[size], value)
        data[at : at + size] = packed[: max(min(size, last - at), 0)]
