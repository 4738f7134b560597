"""Parsing of a JSON member: its lists, its other fields as passthrough columns, and its errors."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.compute as pc

from interleaved_assets.io.rows.content_types import seems_utf16
from interleaved_assets.io.storage.limits import LIMITS, TarLimits
from interleaved_assets.io.storage.ranges import Content
from interleaved_assets.io.tar.estimates import ROW_BYTES, document_bytes, parsed_bytes
from interleaved_assets.io.tar.exact import Exact, is_exact, read_exact
from interleaved_assets.io.tar.layout import (
    EMPTY_LISTS,
    EXACT_FIELD,
    LIST_LENGTH,
    NULL_FIELDS,
    ShardLayout,
    column_name,
    member_key,
)
from interleaved_assets.model.errors import row_error
from interleaved_assets.model.source_ref import is_unicode


@dataclass
class Document:
    """The content of a JSON member.

    Attributes:
        texts, images: the two lists as they are in the JSON, with entries of any type.
        fields: value of each passthrough column on the metadata row; None for an explicit null.
        per_image, per_text: values of the columns that are spread over the image rows and the text rows, one for each
            entry of the list that is not null.
        sizes: width and height in pixels of each image, None if the document does not give them.
        container: the member whose frames the tokens name, if the document gives one.
        own_id: the sample's id, if the document gives one.
        exact: the content of ``_interleaved``, which plain JSON cannot express.
        size: rough bytes of the document in memory, and of its rows without the bytes of images.
        error: error of the document as a whole, as a row error.
        uneven: fields that should be spread, but whose length is not the number of entries.
        columns: names of the passthrough columns that its fields would make, also of those that the layout leaves out.
    """

    texts: list[Any] = field(default_factory=list)
    images: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    per_image: dict[str, list[Any]] = field(default_factory=dict)
    per_text: dict[str, list[Any]] = field(default_factory=dict)
    sizes: list[tuple[int, int] | None] = field(default_factory=list)
    container: str | None = None
    own_id: str | None = None
    exact: Exact | None = None
    size: int = ROW_BYTES
    error: str | None = None
    uneven: list[str] = field(default_factory=list)
    columns: set[str] = field(default_factory=set)

    @property
    def is_blank(self) -> bool:
        """True if the document has no content at all."""
        return not (self.texts or self.images or self.fields or self.per_image or self.per_text or self.exact)

    @property
    def rows(self) -> int:
        """Number of its rows, including the metadata row."""
        if self.exact is not None and self.exact.rows is not None:
            return int(self.exact.rows.num_rows)
        return 1 + _entries(self.texts) + _entries(self.images)


def read_document(data: Content, layout: ShardLayout, key: str, limits: TarLimits = LIMITS) -> Document:
    """Parse ``data``, a JSON member whose name is ``key`` and an extension.

    No content of ``data`` raises an exception: :attr:`Document.error` reports it. A document over a limit has nothing
    but that error.
    """
    if len(data) > limits.max_document_bytes:
        return too_large_document(f"{len(data)} bytes of JSON, over max_document_bytes {limits.max_document_bytes}")
    encoded = bytes(data)
    if (size := parsed_bytes(encoded)) > limits.max_sample_bytes:
        return too_large_document(f"about {size} bytes when parsed, over max_sample_bytes {limits.max_sample_bytes}")
    document = _read(encoded, layout, key)
    # locators of texts contain the key, those of frames the container's name
    names = len(key) + len(document.container or "") + len(document.own_id or key)
    document.size = document_bytes(encoded, document.rows, names)
    if document.size > limits.max_sample_bytes:
        rows = f"{document.rows} rows of about {document.size} bytes"
        return too_large_document(f"{rows}, over max_sample_bytes {limits.max_sample_bytes}")
    return document


def add_contents(document: Document, texts: Sequence[bytes], images: int) -> None:
    """Add to ``document`` the texts and the number of images of a sample whose JSON does not list them.

    Images come first. The row of a text that is not UTF-8 gets an error.
    """
    # tokens only mark the places, since the members are known
    document.images = [""] * images + [None] * len(texts)
    # bytes, and a character that is not Unicode, make an error of the row
    document.texts = [None] * images + [
        text if seems_utf16(text) else text.decode("utf-8", "surrogateescape") for text in texts
    ]


def too_large_document(detail: str) -> Document:
    """Return the document that replaces one that is not read because of a limit."""
    return Document(error=row_error("document_too_large", detail))


def _read(encoded: bytes, layout: ShardLayout, key: str) -> Document:
    document = Document()
    try:
        body = _parse(encoded, document)
    except (ValueError, RecursionError) as error:
        # json.loads recurses into nested lists, and int() refuses numbers of thousands of digits
        document.error = row_error("invalid_json", str(error) or type(error).__name__)
        return document
    has_lists = layout.layout == "interleaved"
    if has_lists and is_exact(written := body.get(EXACT_FIELD)):
        try:
            document.exact = read_exact(written)
            del body[EXACT_FIELD]
        except ValueError as error:
            document.error = row_error("invalid_json", str(error))
    document.own_id = _own_id(body, layout, key, document.exact)
    if has_lists:
        document.texts = _list(body, layout.texts_field, "invalid_text", document)
        document.images = _list(body, layout.images_field, "invalid_token", document)
        document.sizes = _sizes(body.get("image_metadata"), _entries(document.images))
    if document.exact is not None and not _fits_lists(document.exact, document):
        document.exact = None
        document.error = document.error or row_error("invalid_json", "_interleaved does not fit texts and images")
    container = body.get(layout.image_member_field) if layout.image_member_field else None
    document.container = container if isinstance(container, str) and is_unicode(container) else None
    _take_fields(body, layout, document)
    return document


class _RepeatedField(ValueError):
    """An object has a field twice. JSON allows this, but parsers differ in the value that they take."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise _RepeatedField(f"field {twice!r} is there twice; the last one is taken")
    return found


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_object)  # made once: making one takes longer than a short text


def _parse(encoded: bytes, document: Document) -> dict[str, Any]:
    """Parse the object in ``encoded``.

    Raises:
        ValueError: it is not JSON, not an object, or has names that are not Unicode.
    """
    text = encoded.decode(json.detect_encoding(encoded))
    try:
        body = _STRICT.decode(text)
    except _RepeatedField as error:
        document.error = row_error("invalid_json", str(error))
        body = json.loads(text)
    if not isinstance(body, dict):
        raise ValueError(f"a document is a JSON object, this is a {type(body).__name__}")
    for name in body:
        if not is_unicode(name):
            raise ValueError(f"field {name!r} has a name that is not Unicode")
    return body


def _own_id(body: dict[str, Any], layout: ShardLayout, key: str, exact: Exact | None) -> str | None:
    if layout.sample_id_field not in (None, "sample_id"):
        value = body.get(layout.sample_id_field)
        if type(value) is int:
            return str(value)
        if isinstance(value, str) and is_unicode(value):
            return value
    if exact is not None and exact.sample_id is not None:
        return exact.sample_id
    value = body.get("sample_id")
    if layout.sample_id_field == "sample_id" and type(value) is int:
        return str(value)
    if not isinstance(value, str) or not is_unicode(value):
        return None
    if layout.layout == "images" and layout.sample_id_field is None:
        return None  # several images may state the id of the document that they come from
    # this package writes the sample's id here; the name of the member, which is made from the id, shows this
    return value if layout.sample_id_field == "sample_id" or member_key(value) == key else None


def _list(body: dict[str, Any], name: str, code: str, document: Document) -> list[Any]:
    """Take the list ``name`` out of ``body`` and return it; a value that is not a list stays there."""
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        document.error = document.error or row_error(code, f"{name} is a {type(value).__name__} and not a list")
        return []
    body.pop(name, None)
    return value or []


def _take_fields(body: dict[str, Any], layout: ShardLayout, document: Document) -> None:
    exact = document.exact
    names = exact.per_image if exact and exact.per_image is not None else layout.per_image_fields
    per_image = {name: (document.per_image, "image", _entries(document.images)) for name in names}
    names = exact.per_text if exact and exact.per_text is not None else layout.per_text_fields
    per_text = {name: (document.per_text, "text", _entries(document.texts)) for name in names}
    spread = per_image | per_text if layout.layout == "interleaved" else {}
    null_fields, empty_lists = [], []
    for name, value in body.items():
        column = column_name(name)
        document.columns.add(column)
        if layout.fields is not None and column not in layout.fields:
            continue
        if value is None:
            null_fields.append(column)
        elif name in spread and isinstance(value, list):
            target, kind, entries = spread[name]
            if len(value) == entries:
                target[column] = value
                if not any(item is not None for item in value):
                    empty_lists.append(f"{kind}:{column}")
                continue
            document.uneven.append(name)
        document.fields[column] = value
    length = max(len(document.texts), len(document.images))
    own = {NULL_FIELDS: null_fields, EMPTY_LISTS: empty_lists, LIST_LENGTH: length if length > _end(document) else None}
    for column, found in own.items():
        if found and (layout.fields is None or column in layout.fields):
            document.fields[column] = found


def _fits_lists(exact: Exact, document: Document) -> bool:
    """Return whether the rows that ``exact`` gives have as many entries as the lists."""
    if exact.rows is None:
        return True
    modalities = exact.rows["modality"].to_pylist()
    listed = [modality for row, modality in enumerate(modalities) if row not in exact.absent]
    return (listed.count("text"), listed.count("image")) == (_entries(document.texts), _entries(document.images))


def _sizes(metadata: Any, images: int) -> list[tuple[int, int] | None]:
    if not isinstance(metadata, list) or len(metadata) != images:
        return [None] * images
    return [_size(item) for item in metadata]


def _size(item: Any) -> tuple[int, int] | None:
    if not isinstance(item, dict):
        return None
    width, height = item.get("width"), item.get("height")
    return (width, height) if type(width) is int and type(height) is int else None


def _end(document: Document) -> int:
    """Return the position after the last row."""
    if document.exact is not None and document.exact.rows is not None:
        return int(pc.max(document.exact.rows["position"]).as_py()) + 1
    ends = [
        next((end for end in range(len(values), 0, -1) if values[end - 1] is not None), 0)
        for values in (document.texts, document.images)
    ]
    return max(ends)


def _entries(values: list[Any]) -> int:
    return len(values) - values.count(None)
