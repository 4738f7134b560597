"""Tars whose headers and pax records are mutated."""

import gzip
import random
import struct
from typing import Final

from benchmarks.fuzz.mutate import mutated, perhaps

_BLOCK: Final = 512


def header(
    name: bytes,
    size: int = 0,
    kind: bytes = b"0",
    *,
    link: bytes = b"",
    checksum: int | None = None,
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    size_field: bytes | None = None,
) -> bytes:
    """A tar header; ``size_field`` and ``checksum`` replace what would be right."""
    field = b"%011o\0" % size if size_field is None else size_field
    front = (
        name[:100].ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field[:12].ljust(12, b"\0") + b"00000000000\0"
    )
    back = kind[:1] + link[:100].ljust(100, b"\0") + magic[:8].ljust(8, b"\0") + bytes(80)
    back += prefix[:155].ljust(155, b"\0") + bytes(12)
    total = sum(front) + 8 * 32 + sum(back) if checksum is None else checksum
    return front + b"%06o\0 " % (total % 8**6) + back


def padded(data: bytes) -> bytes:
    """``data`` and zeros up to whole blocks."""
    return data + bytes(-len(data) % _BLOCK)


def record(key: bytes, value: bytes) -> bytes:
    """A pax record with its length."""
    body = b" " + key + b"=" + value + b"\n"
    length = len(body) + 1
    while length != len(str(length)) + len(body):
        length = len(str(length)) + len(body)
    return str(length).encode() + body


def pax(data: bytes, kind: bytes = b"x") -> bytes:
    """A pax header with these records."""
    return header(b"PaxHeader", len(data), kind) + padded(data)


def long_name(name: bytes, kind: bytes = b"L") -> bytes:
    """GNU's header of a name that has no place in its own."""
    return header(b"././@LongLink", len(name) + 1, kind) + padded(name + b"\0")


_NUMBERS: Final = (
    b"0", b"-1", b"abc", b"", b"1.5", b"1e9", b"9" * 19, b"9" * 20, b"9" * 5000, b"9223372036854775807",
    b"9223372036854775808", str(2**80).encode(), b" 5", b"5 ", b"+5", b"0x10", "٣".encode(), "²".encode(),
    b"00000000000000000000000000000012", b"\0", b"18446744073709551615",
)  # fmt: skip
NAMES: Final = (
    b"a.json", b"a.tiff", b"a.png", b"./a.json", b"././././a.json", b"../a.json", b"/a.json", b"a\0b.json",
    b"\xff\xfe.json", b"\xed\xa0\x80.json", b".json", b"..json", b"....", b"", b"/", b"./", b"a/", b"a//b.json",
    "grüße.json".encode(), "\U0001f600.json".encode(), b"a.JSON", b"a.b.c.json", b"%.json", b"a\n.json", b"'\".json",
    b"a" * 300 + b".json", b"." * 5000, b"./" * 5000, b"x/" * 5000 + b"a.json", b"." * 100_000, b"a.0.png", b"a.1.PNG",
)  # fmt: skip
_SIZES: Final = (
    b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\x80" + bytes(10) + b"\x05", b"\x80\0\0\0\x7f" + b"\xff" * 7,
    b"-0000000001\0", b"00000000008\0", b"           \0", b"0000000zz00\0", bytes(12), b"77777777777\0",
    b"777777777777",    b"\x80\0\0\0\0\0\0\x20\0\0\0\0", b"\0 7        \0", b"1_000\0", b"0o7\0",
)  # fmt: skip
_KEYS: Final = (
    b"path", b"size", b"linkpath", b"GNU.sparse.map", b"GNU.sparse.size", b"GNU.sparse.major", b"GNU.sparse.minor",
    b"GNU.sparse.name", b"GNU.sparse.realsize", b"hdrcharset", b"mtime", b"uid", b"comment", b"SCHILY.xattr.x", b"\xff",
    b"",
)  # fmt: skip


def pax_block(dice: random.Random) -> bytes:
    """A pax header: odd keys and values, very many records, damaged lengths, very long names."""
    kind = dice.random()
    if kind < 0.6:
        values = (*_NUMBERS, *NAMES, b"abc,def", b"0,10", b"BINARY")
        data = b"".join(record(dice.choice(_KEYS), dice.choice(values)) for _ in range(dice.randint(1, 5)))
    elif kind < 0.75:
        data = b"".join(record(b"k%d" % n, b"v") for n in range(dice.choice((10, 1000, 50_000))))
    elif kind < 0.85:
        data = record(b"path", dice.choice(NAMES))[dice.randint(1, 4) :] + b"garbage"
    elif kind < 0.9:
        data = dice.choice((b"5", b" ", b"\n")) * dice.choice((5, 2**20 - 5))
    else:
        data = record(b"path", dice.choice((b".", b"./", b"/", b"a.")) * dice.choice((1000, 500_000)))
    return pax(perhaps(dice, data, 0.2), dice.choice((b"x", b"g", b"X")))


def extension(dice: random.Random) -> bytes:
    """A header that says something about the next member."""
    kind = dice.random()
    if kind < 0.5:
        return pax_block(dice)
    if kind < 0.8:
        return long_name(dice.choice(NAMES), dice.choice((b"L", b"K")))
    return pax(dice.choice((b"", record(b"size", dice.choice(_NUMBERS)))))


def odd_member(dice: random.Random, name: bytes, content: bytes) -> bytes:
    """A member one field of whose header is not as it should be."""
    field = dice.choice(("size", "checksum", "kind", "magic", "prefix", "link"))
    if field == "size":
        head = header(name, len(content), size_field=dice.choice(_SIZES))
    elif field == "checksum":
        head = header(name, len(content), checksum=dice.randrange(8**6))
    elif field == "kind":
        kind = bytes([dice.choice(b"1234567SDVMNxgLK\0\xff")])
        head = header(name, len(content), kind, link=dice.choice((b"a.png", b"a.tiff", b"../a.png", b"a.json")))
    elif field == "magic":
        head = header(name, len(content), magic=b"ustar  \0")
    elif field == "prefix":
        head = header(name, len(content), prefix=b"p" * 155)
    else:
        head = header(name, len(content), link=dice.choice(NAMES))
    return head + padded(content)


def plain_member(name: bytes, content: bytes) -> bytes:
    """A member as every tar writer writes it."""
    before = long_name(name) if len(name) > 100 else b""
    return before + header(name, len(content)) + padded(content)


def damaged_gzip(dice: random.Random, tar: bytes) -> bytes:
    """The tar as gzip: several members, flags, bytes that follow, damage."""
    cut = dice.randrange(len(tar) + 1)
    packed = dice.choice(
        (
            lambda: gzip.compress(tar, 1, mtime=0),
            lambda: gzip.compress(tar[:cut], 1, mtime=0) + gzip.compress(tar[cut:], 9, mtime=0),
            lambda: gzip.compress(tar, 1, mtime=0) + dice.choice((bytes(100), b"rest", b"\x1f\x8b")),
            lambda: _with_flags(dice, gzip.compress(tar, 1, mtime=0)),
        )
    )()
    if dice.random() < 0.3:
        return packed[: dice.randrange(len(packed) + 1)]
    if dice.random() < 0.3:
        # checksum and length of what was packed
        return packed[:-8] + mutated(dice, packed[-8:])
    return perhaps(dice, packed, 0.6)


def _with_flags(dice: random.Random, packed: bytes) -> bytes:
    flags = dice.choice((2, 4, 8, 16, 28, 32, 255))
    fields = b""
    if flags & 4:
        length = dice.choice((0, 4, 65535))
        fields += struct.pack("<H", length) + bytes(min(length, 4))
    fields += b"name\0" * bool(flags & 8) + b"comment\0" * bool(flags & 16) + b"\0\0" * bool(flags & 2)
    return packed[:3] + bytes([flags]) + packed[4:10] + fields + packed[10:]
