"""The texts of rows, as the built-in functions change them: text rows only, column by column."""

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc


def is_text(rows: pa.Table) -> pa.ChunkedArray:
    """Return which rows are texts; a row without a content, because it could not be read, is none."""
    return pc.and_(pc.equal(rows["modality"], "text"), pc.is_valid(rows["text_content"]))


def with_texts(rows: pa.Table, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return ``rows`` with these texts in place of theirs."""
    place = rows.column_names.index("text_content")
    return rows.set_column(place, rows.schema.field(place), texts)


def map_texts(
    rows: pa.Table, concerned: Callable[[pa.Array], pa.Array], change: Callable[[pa.Array], pa.Array]
) -> pa.Table:
    """Return ``rows`` with ``change`` applied to those text rows that are ``concerned``; nulls are not."""
    texts = rows["text_content"].combine_chunks()
    mask = pc.and_(is_text(rows).combine_chunks(), pc.fill_null(concerned(texts), False))
    if not mask.true_count:
        return rows
    return with_texts(rows, pc.replace_with_mask(texts, mask, change(texts.filter(mask))))
