"""Documents of the demo as tar members, in the two forms of existing data sets."""

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from PIL import Image

from interleaved_assets.demo.pictures import Picture
from interleaved_assets.io.archive.writer import MemberWriter

Item = str | Picture
FileFormat = Literal["jpg", "png", "webp"]

_PILLOW_FORMAT = {"jpg": "JPEG", "png": "PNG", "webp": "WEBP"}
_SAVE_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"quality": 88},
    "png": {"compress_level": 6},
    "webp": {"quality": 85, "method": 2},
}


class DemoMember(NamedTuple):
    """One file of a tar."""

    name: str
    data: bytes


@dataclass(frozen=True)
class DemoDocument:
    """A document: items in reading order, the other fields of its JSON, and its purpose in the demo."""

    key: str
    items: Sequence[Item]
    fields: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def pictures(self) -> list[Picture]:
        return [item for item in self.items if isinstance(item, Picture)]


def tiff_members(document: DemoDocument, compression: Literal["jpeg"] | None) -> list[DemoMember]:
    """Return the document in MINT-1T PDF form: ``<key>.json``, and ``<key>.tiff`` with a frame for each picture.

    A document without pictures has no TIFF. Tokens are ``page_P_image_X``, and ``image_metadata`` has an entry per
    picture, as PDF extraction leaves them.
    """
    pictures = document.pictures
    pages = [number // 2 for number in range(len(pictures))]
    xrefs = [85 + 7 * number for number in range(len(pictures))]
    metadata = [
        {
            "height": picture.height,
            "width": picture.width,
            "page": page,
            "xref": xref,
            # as in the original data set, the hash is of the picture before its conversion to TIFF
            "sha256": hashlib.sha256(picture.image.tobytes()).hexdigest(),
        }
        for picture, page, xref in zip(pictures, pages, xrefs, strict=True)
    ]
    tokens = [f"page_{page}_image_{xref}" for page, xref in zip(pages, xrefs, strict=True)]
    members = [_json_member(document, tokens, {"image_metadata": metadata})]
    members.append(DemoMember(f"{document.key}.tiff", _tiff(pictures, compression)))
    return members


def file_members(document: DemoDocument, formats: Sequence[FileFormat]) -> list[DemoMember]:
    """Return ``<key>.json`` and a file per picture, ``<key>.<number>.<ext>``; ``formats`` are used in turn."""
    names, files = [], []
    for number, picture in enumerate(document.pictures):
        extension = formats[number % len(formats)]
        names.append(f"{document.key}.{number}.{extension}")
        files.append(DemoMember(names[-1], encode(picture, extension)))
    return [_json_member(document, names, {}), *files]


def encode(picture: Picture, extension: FileFormat) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture.image).save(buffer, _PILLOW_FORMAT[extension], **_SAVE_OPTIONS[extension])
    return buffer.getvalue()


def pack_tar(members: Iterable[DemoMember]) -> bytes:
    """Return a tar of ``members`` in order. It has no time and no owner, so that its bytes are always the same."""
    buffer = io.BytesIO()
    tar = MemberWriter(buffer)
    for name, data in members:
        tar.put(name, data)
    tar.finish()
    return buffer.getvalue()


def _json_member(document: DemoDocument, tokens: Sequence[str], fields: dict[str, Any]) -> DemoMember:
    remaining = iter(tokens)
    texts = [item if isinstance(item, str) else None for item in document.items]
    images = [next(remaining) if isinstance(item, Picture) else None for item in document.items]
    body = {"texts": texts, "images": images, **fields, **document.fields, "demo_note": _note(document)}
    return DemoMember(f"{document.key}.json", json.dumps(body, ensure_ascii=False, allow_nan=False).encode())


def _note(document: DemoDocument) -> str:
    """Return ``demo_note``: the purpose of the document and of the picture at each position."""
    parts = [document.note] if document.note else []
    parts += [
        f"at {position}: {item.note}" for position, item in enumerate(document.items) if isinstance(item, Picture)
    ]
    return "; ".join(parts) or "text only"


def _tiff(pictures: Sequence[Picture], compression: Literal["jpeg"] | None) -> bytes:
    frames = [Image.fromarray(picture.image) for picture in pictures]
    options = {"compression": "jpeg", "quality": 85} if compression == "jpeg" else {}
    buffer = io.BytesIO()
    frames[0].save(buffer, "TIFF", save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()
