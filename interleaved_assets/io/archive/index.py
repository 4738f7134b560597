"""Tar as bytes: which members a tar has and where they lie, and the headers of one that is written.

The index is made from the headers alone, 512 bytes each, so that a member's bytes can be mapped or fetched as a range.
Format after POSIX.1-2017 (pax) and the GNU tar manual, "Basic Tar Format".
"""

import posixpath
import tarfile
from collections.abc import Callable
from typing import Final, NamedTuple

from interleaved_assets.model.errors import ShardError

BLOCK: Final = 512
RECORD: Final = 20 * BLOCK
"""Tars are padded to a multiple of this at their end."""

_SYMBOLIC_LINK, _SPARSE = ord("2"), ord("S")
_LONG_NAME, _LONG_LINK, _PAX_GLOBAL = ord("L"), ord("K"), ord("g")
_LINKS: Final = frozenset(b"12")
_EXTENSIONS: Final = frozenset(b"LKxXg")
# devices, folders and pipes; what their headers give as a size is not there
_WITHOUT_DATA: Final = frozenset(b"3456")
# GNU's notes about dumps, volumes and what goes on from the volume before
_NOT_A_FILE: Final = frozenset(b"DVM")

# What a header may say about the next one is short; more is damage, or an attack.
MAX_HEADER_BYTES: Final = 2**20
"""How long an extension header may be."""
MAX_NAME_BYTES: Final = MAX_HEADER_BYTES - 2**10
"""How long a member's name may be that is written; a pax header has it, and up to two lengths of 20 digits."""

# A member lies within 63 bits, which is what columns, locators and files have room for.
_MAX_END: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 200
_RECORDS: Final = frozenset((b"path", b"linkpath", b"size"))
_SPARSE_RECORD: Final = "GNU.sparse"
_LENGTH_DIGITS: Final = 7
_USTAR_NAME_BYTES: Final = 100
_USTAR_SIZE: Final = 8**11

ReadAt = Callable[[int, int], bytes]
"""``read(offset, size)``: that range of the tar, shorter only at its end."""


class TarMember(NamedTuple):
    """A file in a tar: its name, where its bytes begin and how many its header promises."""

    name: str
    offset: int
    size: int


class TarIndex(NamedTuple):
    """The files in a tar in their order.

    ``damage`` says in words where and why reading had to end early, None where it did not. ``is_complete`` is False for
    a tar without its end mark, too. ``notes`` are oddities that lose nothing of the members listed.
    """

    members: list[TarMember]
    damage: str | None
    is_complete: bool
    notes: list[str]


class _Header(NamedTuple):
    """A header, with what extension headers in front of it said about it; ``data`` is where its content begins.

    ``size`` is None where the header gives none that is a number.
    """

    name: str
    link: str
    size: int | None
    kind: int
    data: int


class _Damage(Exception):
    """The tar cannot be read beyond here."""


def index_tar(read: ReadAt, size: int, uri: str) -> TarIndex:
    """The members of the tar of ``size`` bytes that ``read`` gives; links stand for the member they lead to.

    A tar that is cut or damaged gives the members up to there, the cut one included (its bytes go beyond ``size``).

    Raises:
        ShardError: it does not begin as a tar does, or holds a sparse file.
    """
    if size == 0:
        raise ShardError(f"{uri} is empty: not even the end mark of a tar is there. Fetch or write it anew.")
    if any(block := read(0, BLOCK)) and _parse_header(block, 0) is None:
        raise ShardError(f"{uri} is not a tar: its first {BLOCK} bytes are no tar header")
    members: dict[str, TarMember] = {}  # the last of each name, for links
    found: list[TarMember] = []
    notes: list[str] = []
    known: dict[str, str] = {}  # what pax says about all members to come
    offset = 0
    try:
        while (header := _next_header(read, offset, size, known)) is not None:
            member, offset = _member(header, members, uri)
            if member is None:
                if header.link:
                    link = f"{shown(header.name)!r} is a link to {shown(header.link)!r}"
                    notes.append(f"{link}, which is not in front of it")
                continue
            found.append(member)
            members[member.name] = member
            if member.offset + member.size > size:
                raise _Damage(f"the tar is cut at byte {size}, in member {shown(member.name)!r}")
    except _Damage as damage:
        return TarIndex(found, str(damage), False, notes)
    return TarIndex(found, None, offset < size, notes + _notes_at_end(read, offset, size))


def _next_header(read: ReadAt, offset: int, size: int, known: dict[str, str]) -> _Header | None:
    """The header at ``offset``, extension headers in front of it worked in; None at the end. Adds to ``known``."""
    said: dict[str, str] = {}
    begin = offset
    while True:
        block = read(offset, BLOCK)
        if not any(block) and offset == begin:
            return None
        header = _parse_header(block, offset + BLOCK)
        if header is None:
            what = "is cut" if len(block) < BLOCK else "has a damaged header"
            raise _Damage(f"the tar {what} at byte {offset} of {size}")
        if header.kind not in _EXTENSIONS:
            break
        length = header.size
        if length is None or length > MAX_HEADER_BYTES or header.data + length > size:
            raise _Damage(f"the tar has a damaged header at byte {offset} of {size}")
        text = read(header.data, length)
        offset = _end(header.data, length)
        if header.kind == _LONG_NAME:
            said["path"] = _text(text)
        elif header.kind == _LONG_LINK:
            said["linkpath"] = _text(text)
        elif header.kind == _PAX_GLOBAL:
            known |= _pax_records(text)
        else:
            said |= _pax_records(text)
    # a record without a value takes back what was said before
    said = {key: value for key, value in (known | said).items() if value}
    return header._replace(
        name=said.get("path", header.name),
        link=said.get("linkpath", header.link),
        size=_decimal(said["size"]) if "size" in said else header.size,
        kind=_SPARSE if _SPARSE_RECORD in said else header.kind,
    )


def _member(header: _Header, members: dict[str, TarMember], uri: str) -> tuple[TarMember | None, int]:
    """The member that ``header`` stands for, if any, and where the next header is."""
    if header.kind == _SPARSE:
        raise ShardError(f"{uri}: member {shown(header.name)!r} is stored sparse; pack the tar anew without --sparse")
    if header.kind in _WITHOUT_DATA:
        return None, header.data
    if header.kind in _LINKS:
        target = header.link
        if header.kind == _SYMBOLIC_LINK:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(header.name), target))
        member = members.get(target)
        return member and member._replace(name=header.name), header.data
    size = header.size
    if size is None or header.data + size > _MAX_END - BLOCK:
        stated = "no number" if size is None else f"{size:.1e} bytes"
        raise _Damage(f"the tar has a damaged header: the size of member {shown(header.name)!r} is {stated}")
    if header.kind in _NOT_A_FILE or header.name.endswith("/"):
        return None, _end(header.data, size)
    return TarMember(header.name, header.data, size), _end(header.data, size)


def shown(name: str) -> str:
    """A member's name for messages, cut where it is long: a tar may have names of a megabyte."""
    if len(name) <= _SHOWN_CHARACTERS:
        return name
    return f"{name[:_SHOWN_CHARACTERS]}… ({len(name)} characters)"


def _end(data: int, size: int) -> int:
    return data + -(-size // BLOCK) * BLOCK


def _notes_at_end(read: ReadAt, offset: int, size: int) -> list[str]:
    """Whether the end mark at ``offset`` is there, and followed by nothing but padding."""
    if offset >= size:
        return ["it has no end mark, so members may be missing"]
    rest = read(offset, min(size - offset, 2**20))
    return [f"what follows its end mark at byte {offset} is not read"] if any(rest) else []


def _parse_header(block: bytes, data: int) -> _Header | None:
    """The header in ``block``; None where it is none, which its checksum tells."""
    if len(block) < BLOCK:
        return None
    checksum, size = _octal(block[148:156]), _octal(block[124:136])
    # the checksum counts its own place as spaces
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    if checksum != total and checksum != total - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
        return None  # the second sum is that of tars whose bytes had signs
    kind = block[156]
    name = _text(block[:100])
    # GNU tar keeps times where POSIX has the front of a long path
    if block[257:263] == b"ustar\0" and block[345]:
        name = f"{_text(block[345:500])}/{name}"
    return _Header(name, _text(block[157:257]) if kind in _LINKS else "", size, kind, data)


def _octal(field: bytes) -> int | None:
    """A number in octal digits, or binary where its first bit is set; None where it is neither, or negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip() or b"0"
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _decimal(digits: str) -> int | None:
    """A number in decimal digits; None where it is none, or too long for any size."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _text(field: bytes) -> str:
    # Arrow takes UTF-8 only; a name in another encoding stays readable, and different from others
    return field.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _pax_records(data: bytes) -> dict[str, str]:
    """The records ``<length> <key>=<value>\\n`` of a pax header that count here, as far as they are sound."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + _LENGTH_DIGITS + 1)
        digits = data[at : max(at, space)]
        if not digits.isdigit():
            break
        end = at + int(digits)
        key, equals, value = data[space + 1 : end].removesuffix(b"\n").partition(b"=")
        if not equals:
            break
        if key.startswith(b"GNU.sparse"):
            records[_SPARSE_RECORD] = "1"
        elif key in _RECORDS:
            records[key.decode()] = value.decode("utf-8", "backslashreplace")
        at = end
    return records


_HEADER_HEAD: Final = b"0000644\0" + 2 * b"0000000\0"
_HEADER_TAIL: Final = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64 + 16 + 155 + 12)
_TIME: Final = b"00000000000\0"


def member_header(name: str, size: int) -> bytes:
    """The header of a regular file, the same each day and for every user: mode 0644, owner 0, time 0.

    Plain ustar; a pax header goes in front where the name is long or not ASCII, or the size is 8 GiB or more.
    """
    if len(name) > _USTAR_NAME_BYTES or size >= _USTAR_SIZE or not name.isascii():
        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT)
    front = name.encode().ljust(100, b"\0") + _HEADER_HEAD + b"%011o\0" % size + _TIME
    checksum = sum(front) + 8 * ord(" ") + sum(_HEADER_TAIL)
    return front + b"%06o\0 " % checksum + _HEADER_TAIL


def padding(size: int, multiple: int = BLOCK) -> bytes:
    """The zeros that bring ``size`` bytes to a multiple of ``multiple``."""
    return bytes(-size % multiple)
