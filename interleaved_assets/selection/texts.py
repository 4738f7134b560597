"""Filters on scores of documents and texts, and on fields of the documents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from interleaved_assets.model.columns import IMAGE_KEY, METADATA_POSITION
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.fields import field_values
from interleaved_assets.scoring.protocol.filter import TextFilter
from interleaved_assets.scoring.protocol.values import Values
from interleaved_assets.selection.positions import match_scores
from interleaved_assets.selection.row_state import Rows, RowState
from interleaved_assets.selection.settings import TextBounds, field_column

_TABLE = "document scores"


class Judged(NamedTuple):
    """The rows that a filter of texts judges, one for each document or text that is left, and their stored values."""

    rows: Rows
    """The row of each text; for a document, its first row."""
    stored: Rows
    """Its row in the document scores, -1 without one."""


def judged_rows(judge: TextFilter, state: RowState, documents: pa.Table | None) -> Judged:
    """Return the documents or texts that are left, with their places in the document scores.

    Documents without content are not judged. Raises OptionError if there are no document scores with the column.
    """
    if documents is None or judge.column not in documents.column_names:
        raise OptionError(f"filter {judge.name!r} needs document scores with the column {judge.column}")
    if judge.of == "text":
        rows = np.flatnonzero(state.alive & state.is_text)
        keys = state.keys_of(rows)
    else:
        rows = state.first_rows()[state.with_content()]
        keys = state.keys_of(rows)
        keys = keys.set_column(1, "position", pa.array(np.full(len(rows), METADATA_POSITION), pa.int32()))
    return Judged(rows, match_scores(keys, documents, name=_TABLE))


def numbers(judge: TextFilter, documents: pa.Table, stored: Rows) -> Values:
    """Return the values of a column of numbers, NaN for a missing one; an integer too long for a float is rounded."""
    values = pc.fill_null(_column(judge, documents, pa.float64()), np.nan).to_numpy()
    return np.append(values, np.nan)[stored]


def strings(judge: TextFilter, documents: pa.Table, stored: Rows) -> pa.Array:
    """Return the values of a column of strings, null for a missing one."""
    taken = _column(judge, documents, pa.string()).take(pa.array(stored, mask=stored < 0))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _column(judge: TextFilter, documents: pa.Table, dtype: pa.DataType) -> pa.ChunkedArray:
    """Return the column that the filter compares, as ``dtype``."""
    column = documents[judge.column]
    try:
        return column.cast(dtype, safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # its message may repeat a value
        wanted = (
            "numbers, which min and max compare" if dtype == pa.float64() else "strings, which in and not_in compare"
        )
        raise OptionError(
            f"filter {judge.name!r}: the {judge.column} is {column.type}, and not all of its values are {wanted}"
        ) from None


def failed_strings(values: pa.Array, bounds: TextBounds) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which values are not in the list of those kept, and which are in the list of those dropped."""
    kept = values if bounds.kept is None else pa.array(bounds.kept, pa.string())
    dropped = pa.array(bounds.not_in or (), pa.string())
    is_other = pc.and_(values.is_valid(), pc.invert(pc.is_in(values, value_set=kept)))
    return np.asarray(is_other, dtype=bool), np.asarray(pc.is_in(values, value_set=dropped), dtype=bool)


def with_fields(documents: pa.Table, rows: pa.Table, fields: Sequence[str]) -> pa.Table:
    """Return document scores with the values of fields of the documents, in columns that filters on them read.

    ``rows`` has ``sample_id``, ``position``, ``modality`` and the columns that the fields are in. A field that the
    table lacks has no values.
    """
    if not fields:
        return documents
    described = rows.take(np.flatnonzero(pc.equal(rows["modality"], "metadata").to_numpy()))
    keys = documents.select(list(IMAGE_KEY))
    matched = match_scores(keys, described.select(list(IMAGE_KEY)), name="rows of documents")
    at = pa.array(matched, mask=matched < 0)
    for path in fields:
        values = field_values(described, path)
        found = pa.nulls(len(at), pa.string()) if values is None else values.take(at)
        documents = documents.append_column(field_column(path), found)
    return documents


def with_words(rows: pa.Table, documents: pa.Table) -> pa.Table:
    """Return ``rows`` with the column ``words`` from scores of documents; null for rows that are no texts.

    ``documents`` is a table of :func:`~interleaved_assets.scoring.protocol.texts.score_documents`.
    """
    matched = match_scores(rows.select(["sample_id", "position"]), documents, name="document scores")
    no_words = (matched < 0) | pc.not_equal(rows["modality"], "text").to_numpy()
    return rows.append_column("words", documents["words"].take(pa.array(matched, mask=no_words)))
