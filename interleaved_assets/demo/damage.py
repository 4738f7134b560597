"""The damaged shard of the demo: each kind of damage of a crawl once, among sound documents."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from interleaved_assets.demo.documents import DemoDocument, DemoMember, Item, encode, file_members, tiff_members
from interleaved_assets.demo.pictures import sharp
from interleaved_assets.demo.prose import heading, paragraph, pick_topic

_SIZE: Final = (360, 270)


def damaged_members(rng: np.random.Generator) -> Iterator[DemoMember]:
    """Yield the members of the shard: six sound documents, and between them one document per fault.

    The faults: a picture that is not in the tar, an HTML page saved as a picture, a picture whose header is
    overwritten, JSON cut in the middle, a repeated key, a file that no document names, a TIFF with too few frames.
    """
    for number, fault in enumerate(_FAULTS):
        if number < 6:
            yield from file_members(_document(rng, f"sound-{number:03d}", "nothing wrong"), ("jpg",))
        yield from fault(rng)


def _missing_picture(rng: np.random.Generator) -> list[DemoMember]:
    document = _document(rng, "missing-picture", "its second picture is not in the tar")
    return [member for member in file_members(document, ("jpg",)) if member.name != "missing-picture.1.jpg"]


def _html_for_picture(rng: np.random.Generator) -> list[DemoMember]:
    document = _document(rng, "html-for-picture", "its first picture is an HTML error page")
    page = b"<!DOCTYPE html><html><head><title>403 Forbidden</title></head><body>Hotlinking denied.</body></html>\n"
    return _with_data(file_members(document, ("jpg",)), "html-for-picture.0.jpg", page)


def _broken_header(rng: np.random.Generator) -> list[DemoMember]:
    document = _document(rng, "broken-header", "the header of its second picture is overwritten with zeros")
    data = encode(document.pictures[1], "png")
    return _with_data(file_members(document, ("png",)), "broken-header.1.png", bytes(64) + data[64:])


def _cut_json(rng: np.random.Generator) -> list[DemoMember]:
    members = file_members(_document(rng, "cut-json", "its JSON ends in the middle"), ("jpg",))
    return _with_data(members, "cut-json.json", members[0].data[: len(members[0].data) // 2])


def _repeated_key(rng: np.random.Generator) -> list[DemoMember]:
    first = file_members(_document(rng, "repeated-key", "the first of two documents with this key"), ("jpg",))
    topic = pick_topic(rng)
    texts: list[Item] = [heading(rng, topic), paragraph(rng, topic, 60)]
    return first + file_members(
        DemoDocument("repeated-key", texts, {}, "the second of two documents with this key"), ()
    )


def _unreferenced_file(rng: np.random.Generator) -> list[DemoMember]:
    members = file_members(_document(rng, "unreferenced-file", "a file beside it is named by no document"), ("jpg",))
    return [*members, DemoMember("unreferenced-file.thumbnail.jpg", encode(sharp(rng, 120, 90), "jpg"))]


def _short_tiff(rng: np.random.Generator) -> list[DemoMember]:
    document = _document(rng, "short-tiff", "its TIFF has one frame, its JSON refers to two")
    short = replace(document, items=document.pictures[:1])
    [described, _], [_, frames] = tiff_members(document, "jpeg"), tiff_members(short, "jpeg")
    return [described, frames]


_FAULTS: Final[tuple[Callable[[np.random.Generator], list[DemoMember]], ...]] = (
    _missing_picture,
    _html_for_picture,
    _broken_header,
    _cut_json,
    _repeated_key,
    _unreferenced_file,
    _short_tiff,
)


def _document(rng: np.random.Generator, key: str, note: str) -> DemoDocument:
    topic = pick_topic(rng)
    items: list[Item] = [heading(rng, topic)]
    for _ in range(2):
        picture = sharp(rng, *_SIZE)
        items += [paragraph(rng, topic, 40), picture.caption, picture]
    return DemoDocument(key, items, {"url": f"https://example.org/crawl-2/{key}"}, note)


def _with_data(members: list[DemoMember], name: str, data: bytes) -> list[DemoMember]:
    return [member._replace(data=data) if member.name == name else member for member in members]
