"""Cells of passthrough columns in a plain JSON document: the cells that it can hold, and their places."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.io.tar.json_columns import is_json, is_plain_type, is_plain_value, json_text
from interleaved_assets.io.tar.layout import EMPTY_LISTS, EXACT_FIELD, ID_COLUMN, NULL_FIELDS, ShardLayout, json_field

LISTS: Final = ("texts", "images")
"""Fields with the lists of texts and image tokens in documents that this package writes."""

_SPREAD_BY_DEFAULT: Final = ShardLayout().per_image_fields


@dataclass
class PlainSample:
    """A sample's document while it is put together.

    Attributes:
        sample_id: its id.
        metadata: number of its metadata row, None without one.
        texts: numbers of the text rows that have an entry in the list of texts.
        images: numbers of the image rows that have a token.
        fields: the document's fields, except the lists and the id.
        per_image, per_text: names of the fields that are lists with an entry for each of ``images`` or ``texts``.
        placed: numbers of the rows whose cell is in ``fields``, by column.
    """

    sample_id: str
    metadata: int | None
    texts: list[int]
    images: list[int]
    fields: dict[str, Any] = field(default_factory=dict)
    per_image: list[str] = field(default_factory=list)
    per_text: list[str] = field(default_factory=list)
    placed: dict[str, list[int]] = field(default_factory=dict)

    @property
    def has_unexpected_lists(self) -> bool:
        """Return whether a reader would take other fields for lists with an entry per image or text."""
        expected = {name for name in _SPREAD_BY_DEFAULT if isinstance(self.fields.get(name), list)}
        return set(self.per_image) != expected or bool(self.per_text)


class PlainColumn:
    """A passthrough column, its cells as JSON values.

    Attributes:
        name: name of the column.
        field: JSON field that leads to this column; None if no field does.
        is_valid: for each row, whether its cell is not null.
        values: for each row its JSON value; None if the cell is null, or JSON cannot express it.
    """

    def __init__(self, name: str, cells: pa.ChunkedArray, is_content: np.ndarray) -> None:
        self.name = name
        self.field = None if (found := json_field(name)) in (*LISTS, EXACT_FIELD) else found
        self.is_valid = np.asarray(cells.is_valid(), dtype=bool)
        self._is_on_content = bool((self.is_valid & is_content).any())
        self.values: list[Any] = [None] * len(cells)
        to_json = _reader_of(cells.type)
        if to_json is not None:
            rows = np.flatnonzero(self.is_valid)
            known = cells if len(rows) == len(cells) else cells.take(pa.array(rows))
            for row, value in zip(rows.tolist(), known.to_pylist(), strict=True):
                self.values[row] = to_json(value)

    def place(self, sample: PlainSample) -> None:
        """Put the cells of ``sample`` into its document, as far as it has a place for them."""
        if self.field is None:
            return
        at = sample.metadata
        if at is not None and self.is_valid[at]:
            value = self.values[at]
            # a field sample_id that equals the sample's id does not become a column
            if value is not None and not (self.name == ID_COLUMN and value == sample.sample_id):
                sample.fields[self.field] = value
                sample.placed[self.name] = [at]
        elif self._is_on_content:
            for_images = [self.values[row] for row in sample.images]
            for_texts = [self.values[row] for row in sample.texts]
            has_images, has_texts = (any(value is not None for value in found) for found in (for_images, for_texts))
            if has_images != has_texts:
                rows, values = (sample.images, for_images) if has_images else (sample.texts, for_texts)
                (sample.per_image if has_images else sample.per_text).append(self.field)
                sample.fields[self.field] = values
                sample.placed[self.name] = [row for row, value in zip(rows, values, strict=True) if value is not None]


def place_nulls(sample: PlainSample, columns: Mapping[str, PlainColumn]) -> None:
    """Put the fields that are null, or lists of nulls, into the document of ``sample``.

    The columns ``_null_fields`` and ``_empty_lists`` name these fields; a reader derives both from the document.
    """
    at = sample.metadata
    if at is None:
        return
    empty_lists = _names(columns.get(EMPTY_LISTS), at)
    split = [name.partition(":") for name in empty_lists]
    if all(kind in ("image", "text") for kind, _, _ in split) and (
        fields := _free_fields([column for _, _, column in split], sample, columns)
    ):
        for (kind, _, _), name in zip(split, fields, strict=True):
            rows, spread = (sample.images, sample.per_image) if kind == "image" else (sample.texts, sample.per_text)
            sample.fields[name] = [None] * len(rows)
            spread.append(name)
        sample.placed[EMPTY_LISTS] = [at]
    if fields := _free_fields(_names(columns.get(NULL_FIELDS), at), sample, columns):
        sample.fields.update(dict.fromkeys(fields))
        sample.placed[NULL_FIELDS] = [at]


def _names(column: PlainColumn | None, row: int) -> list[str]:
    """Return the names in one cell of ``column``; empty if it is not a list of strings."""
    value = None if column is None else column.values[row]
    return value if isinstance(value, list) and all(isinstance(name, str) for name in value) else []


def _free_fields(names: list[str], sample: PlainSample, columns: Mapping[str, PlainColumn]) -> list[str]:
    """Return the fields of the columns with those ``names``; empty unless each exists, once, and is free to be null."""
    fields = []
    for name in names:
        column = columns.get(name)
        if column is None or column.field is None or column.field in sample.fields or column.field in fields:
            return []
        if sample.metadata is not None and column.is_valid[sample.metadata]:
            return []
        fields.append(column.field)
    return fields


def _reader_of(dtype: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that turns a cell of ``dtype`` into a JSON value; None if JSON can express no cell of it.

    The function returns None for a cell that JSON cannot express.
    """
    if is_json(dtype):
        return _plain_json
    return (lambda value: value if is_plain_value(value) else None) if is_plain_type(dtype) else None


def _plain_json(text: str) -> Any:
    """Return the value of a cell of JSON text; None unless a reader would make exactly the same text of it."""
    try:
        value = json.loads(text)
        return value if is_plain_value(value) and json_text(value) == text else None
    except (ValueError, RecursionError):
        return None
