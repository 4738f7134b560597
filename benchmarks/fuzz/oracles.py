"""What independent readers find in the same bytes, and whether a read agrees with them.

A disagreement is a :class:`~benchmarks.fuzz.child.WrongRead`.
"""

import io
import json
import tarfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from PIL import Image

from benchmarks.fuzz.child import WrongRead

# Python's tarfile takes minutes for some pax headers, and for very many members.
_LARGEST_FILE: Final = 2**20
_LARGEST_MEMBER: Final = 2**24
_TARFILE_ERRORS: Final = (
    tarfile.TarError,
    ValueError,
    OverflowError,
    EOFError,
    OSError,
    RecursionError,
    zlib.error,
    IndexError,
)
_GNU_TYPES: Final = (b"D", b"M", b"V")
"""A folder's list of files, the rest of a file that an earlier volume begins, and the name of a volume."""
_LONG_NAME: Final = b"././@LongLink\0"
"""What the header of a member's name is called in a tar of GNU's format."""
_FRAMES_COMPARED: Final = 4


def check_rows_equal(expected: pa.Table, found: pa.Table, where: str) -> None:
    """The two have the same columns, types and values; ``source_ref`` names the place and differs.

    Raises:
        WrongRead: they have not.
    """
    if set(expected.column_names) != set(found.column_names):
        raise WrongRead(f"{where}: columns {set(expected.column_names) ^ set(found.column_names)}")
    for name in expected.column_names:
        left, right = expected[name].combine_chunks(), found[name].combine_chunks()
        if name == "source_ref" or (left.type == right.type and left.equals(right)):
            continue
        if left.type != right.type or len(left) != len(right):
            raise WrongRead(f"{where}: {name} was {left.type} x {len(left)}, is {right.type} x {len(right)}")
        # NaN is not equal to itself
        pairs = zip(left.to_pylist(), right.to_pylist(), strict=True)
        for at, (old, new) in enumerate(pairs):
            if repr(old) != repr(new):
                raise WrongRead(f"{where}: {name}[{at}] was {str(old)[:200]!r}, is {str(new)[:200]!r}")


def tarfile_members(path: Path) -> dict[str, list[bytes]] | None:
    """Contents by name of the regular files that Python's tarfile finds; None where it fails, or would take long."""
    if path.stat().st_size > _LARGEST_FILE or _has_two_long_names(path.read_bytes()):
        return None
    found: dict[str, list[bytes]] = {}
    try:
        with tarfile.open(path) as tar:
            for info in tar:
                # tarfile takes an empty size in a pax header for 0, POSIX and GNU tar for none, as we do
                if info.size > _LARGEST_MEMBER or info.pax_headers.get("size") == "":
                    return None
                # a type that is unknown stands for a regular file, but GNU tar has three that are none
                is_file = info.isreg() or info.type not in (*tarfile.SUPPORTED_TYPES, *_GNU_TYPES)
                if is_file and (opened := tar.extractfile(info)):
                    found.setdefault(info.name, []).append(opened.read())
            # tarfile ends without an error at a damaged pax header; GNU tar goes on, as we do
            tar.fileobj.seek(tar.offset)
            if any(tar.fileobj.read(tarfile.BLOCKSIZE)):
                return None
    except _TARFILE_ERRORS:
        return None
    return found


def _has_two_long_names(content: bytes) -> bool:
    """Whether a GNU header with a name comes after another of the same member: tarfile takes the first, we the last.

    GNU tar takes the last one too. Headers of other extensions may stand between the two.
    """
    at = -1
    while (at := content.find(_LONG_NAME, at + 1)) >= 0:
        following = _after(content, at)
        while content[following + 156 : following + 157] in (b"x", b"X"):
            following = _after(content, following)
        if content.startswith(_LONG_NAME, following):
            return True
    return False


def _after(content: bytes, at: int) -> int:
    """The place of the block after the header at ``at`` and its data."""
    digits = content[at + 124 : at + 136].strip(b"\0 ")
    size = int(digits, 8) if digits and not digits.strip(b"01234567") else 0
    return at + tarfile.BLOCKSIZE + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def check_against_tarfile(table: pa.Table, path: Path, *, plain_layout: bool) -> None:
    """Images are bytes of a member, or a frame with the member's pixels; texts are those of the documents.

    Args:
        table: rows with bytes.
        path: the tar.
        plain_layout: whether it was read with MINT-1T's names, so that texts are where the format has them.

    Raises:
        WrongRead: an image's bytes are none of tarfile's, or a text of a sound document is missing.
    """
    members = tarfile_members(path)
    if members is None:
        return
    contents = {content for found in members.values() for content in found}
    columns = ("modality", "binary_content", "source_ref", "materialize_error", "text_content")
    rows = table.select(columns).to_pylist()
    frames = 0
    for row in rows:
        if row["modality"] != "image" or row["binary_content"] is None or row["materialize_error"]:
            continue
        locator = json.loads(row["source_ref"])
        if locator.get("frame_index") is None:
            if row["binary_content"] not in contents:
                raise WrongRead(f"bytes of {locator} are of no member; tarfile has {sorted(members)[:20]}")
        elif frames < _FRAMES_COMPARED:
            frames += 1
            check_frame(row["binary_content"], members.get(locator["member"], []), locator["frame_index"])
    if plain_layout and not any(row["materialize_error"] for row in rows):
        check_texts(Counter(row["text_content"] for row in rows if row["modality"] == "text"), members)


def check_texts(found: "Counter[str | None]", members: dict[str, list[bytes]]) -> None:
    """Every text of every document that ``json`` reads is among those found.

    Raises:
        WrongRead: one is not.
    """
    expected: Counter[str | None] = Counter()
    for name, contents in members.items():
        if not name.endswith(".json"):
            continue
        for content in contents:
            try:
                body = json.loads(content)
            except (ValueError, RecursionError):
                continue
            if isinstance(body, dict) and isinstance(texts := body.get("texts"), list):
                expected.update(text for text in texts if isinstance(text, str) and _is_unicode(text))
    if missing := expected - found:
        raise WrongRead(f"texts are missing: {str(dict(missing))[:300]}")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def check_frame(frame: bytes, tiffs: list[bytes], index: int) -> None:
    """A frame that was cut out has the pixels that Pillow finds in one of ``tiffs`` at ``index``.

    Raises:
        WrongRead: Pillow decodes the frame where it lay, and to something else where it is now.
    """
    there = [pixels for tiff in tiffs if (pixels := pillow_pixels(tiff, index)) is not None]
    if len(there) < len(tiffs) or not there:
        return
    here = pillow_pixels(frame, 0)
    # Pillow reads beyond a strip that is said to be too short, and a frame that was cut out has nothing there
    if here is not None and not any(np.array_equal(here, pixels, equal_nan=here.dtype.kind == "f") for pixels in there):
        raise WrongRead(f"frame {index} has other pixels once it is cut out")


def pillow_pixels(data: bytes, index: int = 0) -> np.ndarray | None:
    """Pixels that Pillow decodes, not turned; None where it fails."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            image.seek(index)
            if image.width * image.height > _LARGEST_MEMBER:
                return None
            return np.array(image)
    except Exception:  # noqa: BLE001  Pillow raises whatever its formats raise
        return None


def check_png(data: bytes, bgr: np.ndarray) -> None:
    """An 8-bit RGB PNG has the pixels that Pillow finds: the format has checksums and nothing to round.

    Raises:
        WrongRead: Pillow decodes it to something else.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.mode != "RGB" or image.getexif().get(0x0112, 1) != 1 or getattr(image, "n_frames", 1) > 1:
                return
            pixels = np.asarray(image)
    except Exception:  # noqa: BLE001  Pillow raises whatever its formats raise
        return
    if not np.array_equal(pixels[:, :, ::-1], bgr):
        raise WrongRead("the PNG has other pixels to Pillow")
