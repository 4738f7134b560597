"""Index of the members of a tar with their byte positions, and headers for writing.

Only the headers are read, 512 bytes each, so that a member's bytes can be read or fetched as a byte range. The format
follows POSIX.1-2017 (pax) and the GNU tar manual, "Basic Tar Format".
"""

import posixpath
import tarfile
from collections.abc import Callable
from typing import Final, NamedTuple

from interleaved_assets.io.archive.foreign import foreign_format
from interleaved_assets.model.errors import ShardError

BLOCK: Final = 512
RECORD: Final = 20 * BLOCK
"""Tars are padded to a multiple of this size."""

_SYMBOLIC_LINK, _SPARSE = ord("2"), ord("S")
_LONG_NAME, _LONG_LINK, _PAX_GLOBAL = ord("L"), ord("K"), ord("g")
_LINKS: Final = frozenset(b"12")
_EXTENSIONS: Final = frozenset(b"LKxXg")
# devices, folders and pipes: they have no data, also if their header states a size
_WITHOUT_DATA: Final = frozenset(b"3456")
# GNU entries for dumps, volume labels and continuations of an earlier volume
_NOT_A_FILE: Final = frozenset(b"DVM")
_CONTINUATION: Final = ord("M")

# Extension headers are short; a longer one is damage or an attack.
MAX_HEADER_BYTES: Final = 2**20
"""Maximum size of an extension header."""
MAX_NAME_BYTES: Final = MAX_HEADER_BYTES - 2**10
"""Maximum size of a member's name in writing; its pax header also holds up to two lengths of 20 digits."""

# Offsets have at most 63 bits, the limit of columns, locators and files.
_MAX_END: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 200
_RECORDS: Final = frozenset((b"path", b"linkpath", b"size"))
_SPARSE_RECORD: Final = "GNU.sparse"
_SPARSE_NAME: Final = "GNU.sparse.name"
_LENGTH_DIGITS: Final = 7
_USTAR_NAME_BYTES: Final = 100
_USTAR_SIZE: Final = 8**11

ReadAt = Callable[[int, int], bytes]
"""``read(offset, size)`` returns that byte range of the tar, shorter only at its end."""


class TarMember(NamedTuple):
    """A file in a tar: its name, the offset of its bytes and their number as stated in its header."""

    name: str
    offset: int
    size: int


class TarIndex(NamedTuple):
    """The files in a tar in their order.

    ``damage`` describes where and why reading ended early; it is None if reading reached the end. ``is_complete`` is
    False for damage and for a tar without end mark. ``notes`` describe irregularities that do not affect the listed
    members. ``odd_end`` is one of them: the end mark is missing, or followed by bytes that are not padding.
    """

    members: list[TarMember]
    damage: str | None
    is_complete: bool
    notes: list[str]
    odd_end: str | None = None

    @property
    def shortfall(self) -> str | None:
        """The reason why members may be missing from the list; None for a whole tar."""
        return self.damage or self.odd_end


class _Header(NamedTuple):
    """A header with the values of its extension headers; ``data`` is the offset of its content.

    ``size`` is None if the header's size is not a number.
    """

    name: str
    link: str
    size: int | None
    kind: int
    data: int


class _Damage(Exception):
    """The tar cannot be read beyond this position."""


def index_tar(read: ReadAt, size: int, uri: str) -> TarIndex:
    """Index a tar of ``size`` bytes; links are listed with the bytes of the member they point to.

    For a truncated or damaged tar, the index has the members before the damage, and the truncated one (its bytes exceed
    ``size``).

    Raises:
        ShardError: it does not start with a tar header, or holds a sparse file.
    """
    check_size(size, uri)
    if any(block := read(0, BLOCK)) and _parse_header(block, 0) is None:
        what = foreign_format(block)
        advice = "" if what is None else f"; it is {what}"
        raise ShardError(f"{uri} is not a tar: its first {BLOCK} bytes are not a tar header{advice}")
    members: dict[str, TarMember] = {}  # the last member with each name, for links
    found: list[TarMember | None] = []  # None for a link to a later member, until all members are known
    ahead: dict[int, _Header] = {}  # the links to later members, by their number in ``found``
    notes: list[str] = []
    known: dict[str, str] = {}  # global pax records, which apply to all following members
    offset = names = 0
    try:
        while (header := _next_header(read, offset, size, known)) is not None:
            names += len(header.name) + len(header.link)
            # the record of a global header may give a name of 1 MiB to each member; of a byte, four characters are made
            if names > 4 * size:
                raise _Damage(f"the tar has longer names than bytes before byte {offset} of {size}")
            member, offset = _member(header, members, uri)
            if member is None:
                if header.kind == _CONTINUATION:
                    rest = "is the rest of a file in an earlier volume, and is left out"
                    notes.append(f"{shortened(header.name)!r} {rest}")
                elif header.kind == _SYMBOLIC_LINK:
                    ahead[len(found)] = header
                    found.append(None)
                elif header.link:
                    notes.append(_dangling(header, "a member before it"))
                continue
            found.append(member)
            members[_place(member.name)] = member
            if member.offset + member.size > size:
                raise _Damage(f"the tar is cut at byte {size}, in member {shortened(member.name)!r}")
    except _Damage as damage:
        return TarIndex(_with_links(found, ahead, members, notes), str(damage), False, notes)
    listed = _with_links(found, ahead, members, notes)
    odd_end = _odd_end(read, offset, size)
    return TarIndex(listed, None, offset < size, [*notes, *filter(None, [odd_end])], odd_end)


def check_size(size: int, uri: str) -> None:
    """Refuse a tar without any bytes with a :class:`ShardError`."""
    if size == 0:
        raise ShardError(f"{uri} is empty: it lacks even the end mark of a tar. Fetch or write it again.")


def _next_header(read: ReadAt, offset: int, size: int, known: dict[str, str]) -> _Header | None:
    """Return the header at ``offset`` with its extension headers applied, None at the end; add to ``known``."""
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
    # an empty record removes an earlier value
    said = {key: value for key, value in (known | said).items() if value}
    return header._replace(
        name=said.get(_SPARSE_NAME) or said.get("path", header.name),
        link=said.get("linkpath", header.link),
        size=_decimal(said["size"]) if "size" in said else header.size,
        kind=_SPARSE if _SPARSE_RECORD in said else header.kind,
    )


def _member(header: _Header, members: dict[str, TarMember], uri: str) -> tuple[TarMember | None, int]:
    """Return the member of ``header``, None if it is not a file, and the offset of the next header."""
    if header.kind == _SPARSE:
        raise ShardError(
            f"{uri}: member {shortened(header.name)!r} is stored sparse; pack the tar again without --sparse"
        )
    if header.kind in _WITHOUT_DATA:
        return None, header.data
    if header.kind in _LINKS:
        member = members.get(_target(header))
        return member and member._replace(name=header.name), header.data
    size = header.size
    if size is None or header.data + size > _MAX_END - BLOCK:
        stated = "no number" if size is None else f"{size:.1e} bytes"
        raise _Damage(f"the tar has a damaged header: the size of member {shortened(header.name)!r} is {stated}")
    if header.kind in _NOT_A_FILE or header.name.endswith("/"):
        return None, _end(header.data, size)
    return TarMember(header.name, header.data, size), _end(header.data, size)


def _place(name: str) -> str:
    """Return a member's name in the form of link targets: ``./a`` becomes ``a``."""
    return posixpath.normpath(name) if "./" in name or "//" in name else name


def _target(link: _Header) -> str:
    """Return the name that a link leads to; the target of a hard link is relative to the top of the tar."""
    if link.kind == _SYMBOLIC_LINK:
        return posixpath.normpath(posixpath.join(posixpath.dirname(link.name), link.link))
    return _place(link.link)


def _with_links(
    found: list[TarMember | None], ahead: dict[int, _Header], members: dict[str, TarMember], notes: list[str]
) -> list[TarMember]:
    """Return ``found`` with the links ``ahead`` resolved to their members; add links to no member to ``notes``."""
    waiting = {_place(header.name): header for header in ahead.values()}
    for number, header in ahead.items():
        walked: list[str] = []
        target = _target(header)
        # a link may lead to a link; each is removed from ``waiting``, so none is followed twice, nor in a circle
        while target not in members and (following := waiting.pop(target, None)) is not None:
            walked.append(target)
            target = _target(following)
        if (member := members.get(target)) is None:
            notes.append(_dangling(header, "a member of the tar"))
            continue
        members.update(dict.fromkeys(walked, member))
        found[number] = member._replace(name=header.name)
    return [member for member in found if member is not None]


def _dangling(link: _Header, wanted: str) -> str:
    return f"{shortened(link.name)!r} is a link to {shortened(link.link)!r}, which is not {wanted}"


def shortened(name: str) -> str:
    """Return a member's name for messages, truncated if long: a tar may have names of a megabyte."""
    if len(name) <= _SHOWN_CHARACTERS:
        return name
    return f"{name[:_SHOWN_CHARACTERS]}… ({len(name)} characters)"


def _end(data: int, size: int) -> int:
    return data + -(-size // BLOCK) * BLOCK


def _odd_end(read: ReadAt, offset: int, size: int) -> str | None:
    """Describe an end mark at ``offset`` that is missing or followed by more than padding; None for a usual end."""
    if offset >= size:
        return "it has no end mark, so members may be missing"
    rest = read(offset, min(size - offset, 2**20))
    return f"data after its end mark at byte {offset} are not read" if any(rest) else None


def _parse_header(block: bytes, data: int) -> _Header | None:
    """Return the header in ``block``; None if its checksum is wrong."""
    if len(block) < BLOCK:
        return None
    checksum, size = _octal(block[148:156]), _octal(block[124:136])
    # in the checksum, its own field counts as spaces
    total = sum(block[:148]) + 8 * ord(" ") + sum(block[156:])
    if checksum != total and checksum != total - 256 * sum(byte > 127 for byte in block[:148] + block[156:]):
        return None  # some writers sum signed bytes, which gives the second sum
    kind = block[156]
    name = _text(block[:100])
    # GNU tar stores times where POSIX stores the prefix of a long path
    if block[257:263] == b"ustar\0" and block[345]:
        name = f"{_text(block[345:500])}/{name}"
    return _Header(name, _text(block[157:257]) if kind in _LINKS else "", size, kind, data)


def _octal(field: bytes) -> int | None:
    """Parse a number in octal digits, or binary if its first byte is 0x80; None if it is neither, or negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip() or b"0"
    return int(digits, 8) if digits.isdigit() and not digits.strip(b"01234567") else None


def _decimal(digits: str) -> int | None:
    """Parse a number in decimal digits; None if it is not one, or too long for a size."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def _text(field: bytes) -> str:
    # Arrow needs UTF-8; names in other encodings are escaped, so that they stay readable and distinct
    return field.partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _pax_records(data: bytes) -> dict[str, str]:
    """Parse the records ``<length> <key>=<value>\\n`` of a pax header that are used here, up to an invalid one."""
    records: dict[str, str] = {}
    at = 0
    while at < len(data):
        space = data.find(b" ", at, at + _LENGTH_DIGITS + 1)
        digits = data[at : max(at, space)]
        if not digits.isdigit():
            break
        end = at + int(digits)
        record = data[space + 1 : end]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not equals or not record.endswith(b"\n"):
            break
        if key.startswith(b"GNU.sparse"):
            records[_SPARSE_RECORD] = "1"
            if key == b"GNU.sparse.name":  # "path" is a name in a folder of its own
                records[_SPARSE_NAME] = value.decode("utf-8", "backslashreplace")
        elif key in _RECORDS:
            records[key.decode()] = value.decode("utf-8", "backslashreplace")
        at = end
    return records


_HEADER_HEAD: Final = b"0000644\0" + 2 * b"0000000\0"
_HEADER_TAIL: Final = b"0" + bytes(100) + b"ustar\0" + b"00" + bytes(64 + 16 + 155 + 12)
_TIME: Final = b"00000000000\0"


def member_header(name: str, size: int) -> bytes:
    """Return the header of a regular file, independent of time and user: mode 0644, owner 0, time 0.

    It is plain ustar, preceded by a pax header if the name is long or not ASCII, or the size is 8 GiB or more.
    """
    if len(name) > _USTAR_NAME_BYTES or size >= _USTAR_SIZE or not name.isascii():
        info = tarfile.TarInfo(name)
        info.size = size
        return info.tobuf(tarfile.PAX_FORMAT)
    front = name.encode().ljust(100, b"\0") + _HEADER_HEAD + b"%011o\0" % size + _TIME
    checksum = sum(front) + 8 * ord(" ") + sum(_HEADER_TAIL)
    return front + b"%06o\0 " % checksum + _HEADER_TAIL


def padding(size: int, multiple: int = BLOCK) -> bytes:
    """Return the zeros that pad ``size`` bytes to a multiple of ``multiple``."""
    return bytes(-size % multiple)
