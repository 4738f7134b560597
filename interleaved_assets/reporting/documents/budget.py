"""The size limit of a page of documents: smaller pictures, shorter texts and fewer rows keep the page small."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.reporting.documents.document import ShownDocument, ShownRow
from interleaved_assets.reporting.wording.prose import escaped_bytes
from interleaved_assets.scoring.images.thumbnail import SIDE, SMALL_SIDE, smaller_thumbnail

PAGE_BYTES: Final = 4_500_000
"""Most bytes of the documents on a page of up to :data:`FREE_DOCUMENTS`. More documents may have more in proportion."""
FREE_DOCUMENTS: Final = 200
SHORTEST_TEXT: Final = 300
"""Number of characters of a text that are always shown."""
_DOCUMENT_BYTES, _ROW_BYTES, _IMAGE_BYTES, _SCORE_BYTES, _DROP_BYTES, _BLOCK_BYTES = 1500, 120, 300, 170, 400, 10
"""Most bytes that the markup of each takes."""


def fit_documents(documents: Sequence[ShownDocument], page_bytes: int = PAGE_BYTES) -> list[ShownDocument]:
    """Return the documents, made smaller if a page of up to :data:`FREE_DOCUMENTS` would exceed ``page_bytes``.

    If smaller pictures are not enough, long texts are cut, the longest ones most. Then pictures become smaller: 128
    pixels, or else 64. In the end rows of the largest documents are left out, kept rows at the end first. Rows that do
    not fit even without pictures and texts are left out before that, since drawing a small picture takes 1 ms.
    """
    limit = page_bytes * max(1, len(documents) / FREE_DOCUMENTS)
    found = list(documents)
    if _total(found) <= limit:
        return found
    found = _with_fewer_rows(found, limit, _least_size)
    if _total(_with_smaller_pictures(found, SMALL_SIDE)) > limit:
        found = _with_shorter_texts(found, limit / 2)
    for side in (SIDE, SMALL_SIDE):
        if _total(found) > limit:
            found = _with_smaller_pictures(found, side)
    return _with_fewer_rows(found, limit)


def fair_cap(sizes: Sequence[float], room: float) -> float:
    """Return the largest cap for which the sizes, each cut to the cap, add up to at most ``room``."""
    for rank, size in enumerate(ordered := sorted(sizes)):
        left = len(ordered) - rank
        if size * left > room:
            return room / left
        room -= size
    return max(ordered, default=0)


def _total(documents: Sequence[ShownDocument]) -> float:
    return sum(map(_size, documents))


def _item_size(item: ShownRow) -> float:
    """Return an upper estimate of the bytes of HTML of a row."""
    size: float = _ROW_BYTES + _SCORE_BYTES * len(item.scores) + (_IMAGE_BYTES if item.modality == "image" else 0)
    size += item.text_bytes + _BLOCK_BYTES * (item.text or "").count("\n")
    size += len(item.picture or b"") * 4 / 3
    size += sum(escaped_bytes(said[:300]) for said in (item.name, item.error, item.nearest, *item.changes) if said)
    return size + (_DROP_BYTES + escaped_bytes(item.drop.detail[:300]) if item.drop else 0)


def _least_size(item: ShownRow) -> float:
    """Return the size of a row without its picture and its text."""
    return _item_size(replace(item, picture=None, text=None))


def _size(document: ShownDocument, item_size: Callable[[ShownRow], float] = _item_size) -> float:
    """Return an upper estimate of the bytes of HTML of a document."""
    own = 5 * len(document.sample_id) + escaped_bytes(document.fields_text) + len(document.scores) * _SCORE_BYTES
    own += escaped_bytes(document.measured_text)
    own += _DROP_BYTES if document.drop else 0
    return _DOCUMENT_BYTES + own + sum(map(item_size, document.items))


def _changed(documents: Sequence[ShownDocument], change: Callable[[ShownRow], ShownRow]) -> list[ShownDocument]:
    return [replace(document, items=tuple(map(change, document.items))) for document in documents]


def _with_smaller_pictures(documents: Sequence[ShownDocument], side: int) -> list[ShownDocument]:
    def smaller(item: ShownRow) -> ShownRow:
        return item if item.picture is None else replace(item, picture=smaller_thumbnail(item.picture, side))

    return _changed(documents, smaller)


def _with_shorter_texts(documents: Sequence[ShownDocument], limit: float) -> list[ShownDocument]:
    sizes = [item.text_bytes for document in documents for item in document.items if item.text]
    cap = fair_cap(sizes, limit)

    def shorter(item: ShownRow) -> ShownRow:
        if not item.text or item.text_bytes <= cap:
            return item
        length = max(SHORTEST_TEXT, int(len(item.text) * cap / item.text_bytes))
        return replace(item, text=item.text[:length], cut=len(item.text) if length < len(item.text) else 0)

    return _changed(documents, shorter)


def _with_fewer_rows(
    documents: Sequence[ShownDocument], limit: float, item_size: Callable[[ShownRow], float] = _item_size
) -> list[ShownDocument]:
    sizes = [_size(document, item_size) for document in documents]
    if sum(sizes) <= limit:
        return list(documents)
    room = fair_cap(sizes, limit)
    return [
        _cut(document, room, item_size) if size > room else document
        for document, size in zip(documents, sizes, strict=True)
    ]


def _cut(document: ShownDocument, room: float, item_size: Callable[[ShownRow], float]) -> ShownDocument:
    """Return ``document`` with the rows that fit: dropped rows stay before others, earlier rows before later ones."""
    room -= _size(replace(document, items=()))
    shown = set()
    for place in sorted(range(len(document.items)), key=lambda place: (document.items[place].drop is None, place)):
        room -= item_size(document.items[place])
        if room < 0:
            break
        shown.add(place)
    items = tuple(item for place, item in enumerate(document.items) if place in shown)
    return replace(document, items=items, left_out=document.left_out + len(document.items) - len(items))
