"""Scoring of the documents and texts of a table, in batches on threads; NumPy releases the GIL in most of the work."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import split_samples
from interleaved_assets.io.rows.processors import thread_count
from interleaved_assets.io.rows.workers import Workers
from interleaved_assets.model.errors import InterleavedError, OptionError, row_error
from interleaved_assets.model.fields import absent_field, root_of
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.scoring.protocol.long_texts import parts_of, text_bytes
from interleaved_assets.scoring.protocol.registry import (
    PreparedScorer,
    document_fields,
    needed_fields,
    prepare_scorers,
    scores_schema,
)
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.texts.batch import TextBatch

_TEXT_ERROR: Final = "materialize_error"
TEXT_COLUMNS: Final = ("sample_id", "position", "modality", "text_content", _TEXT_ERROR)
"""The columns that the scorers of texts read; the last, with the reason why a text is null, need not be there."""
_BATCH_BYTES: Final = 3 * 2**18
"""Bytes of text measured at once by a thread. With less, most calls of NumPy end before another thread has woken up to
run Python meanwhile, and with more, the arrays leave a processor's cache. A larger document is a batch."""
MOST_DOCUMENT_BYTES: Final = 4 * 2**20
"""Bytes of text that scorers other than those of the whole measure at once, which bounds their memory."""


def score_documents(
    rows: pa.Table, settings: DocumentSettings | None = None, *, threads: int | None = None
) -> pa.Table:
    """Measure every document and every text row.

    A scorer that fails on a batch leaves null in its columns, and ``scorer_failed`` in ``score_error``. A text that is
    null because of an error (``materialize_error``) has null in all columns, and that error. Of a document, and of a
    text, with more than 4 MiB, all scorers but ``words`` and ``identity`` measure the first 4 MiB.

    Args:
        rows: rows of whole samples: ``sample_id``, ``position``, ``modality``, ``text_content``, and the fields of the
            documents that scorers read, such as ``url``. Image bytes are not read.
        settings: the scorers and their options; by default only words are counted.
        threads: batches measured in parallel; by default one per processor that this process may use. The result does
            not depend on it.

    Returns:
        For each sample a row with position -1, followed by a row for each of its texts, with the columns of
        :func:`.scores_schema`: ``sample_id``, ``position``, those of the scorers, ``score_error``. A column that has no
        meaning for a text is null on rows of texts.

    Raises:
        MissingDependency, OptionError: a package, a list of words, a column or a field of the documents is missing;
            before any text is read.
    """
    check_rows(rows, ("text_content",), "score_documents")
    settings = settings or DocumentSettings()
    check_fields(rows.schema, settings)
    schema = scores_schema(settings)
    scorers = prepare_scorers(settings)
    fields = document_fields(settings)
    rows = rows.select(text_columns(rows.column_names, fields))
    # a view of a string has no length that Arrow counts
    texts = rows["text_content"].cast(pa.large_string())
    rows = rows.set_column(rows.column_names.index("text_content"), "text_content", texts)
    batches = list(split_samples(rows, _BATCH_BYTES, text_bytes(rows)))
    threads = min(thread_count(threads), len(batches))
    # not in the main thread, where SystemExit may be a signal that ends the process, and no error of a scorer
    with Workers(threads, "texts") as pool:
        tasks = [pool.submit(_scored, batch, fields, scorers, schema) for batch in batches]
        tables = [task.result() for task in tasks]
    return pa.concat_tables([schema.empty_table(), *tables])


def check_fields(schema: pa.Schema, settings: DocumentSettings, where: str = "") -> None:
    """Raise OptionError if documents of this schema lack a field that a scorer needs; ``where`` is told with it."""
    for name, path in needed_fields(settings).items():
        if absent := absent_field(schema, path):
            raise OptionError(f"{name}: {where}{absent}")


def text_columns(names: Sequence[str], fields: Sequence[str]) -> tuple[str, ...]:
    """Return the columns among ``names`` that the scorers of texts read: those of texts, and those of ``fields``."""
    roots = (root_of(names, path) for path in fields)
    own = (name for name in TEXT_COLUMNS if name != _TEXT_ERROR or name in names)
    return tuple(dict.fromkeys((*own, *(root for root in roots if root is not None))))


def _scored(rows: pa.Table, fields: Sequence[str], scorers: Sequence[PreparedScorer], schema: pa.Schema) -> pa.Table:
    batch = TextBatch(rows, fields)
    errors: list[str] = []
    if text_bytes(rows).sum() <= MOST_DOCUMENT_BYTES:
        columns = _measured(batch, scorers, errors)
    else:  # a batch of more bytes is one document
        columns = _measured(batch, [one for one in scorers if one.scorer.of_whole], errors)
        others = [one for one in scorers if not one.scorer.of_whole]
        columns.update(_measured_in_parts(rows, fields, others, schema, errors))
    reasons = pa.array(["; ".join(dict.fromkeys(errors)) or None] * batch.keys.num_rows, pa.string())
    unread = _unread(rows, batch)
    if unread.null_count < len(unread):
        columns = {name: pc.if_else(unread.is_null(), values, None) for name, values in columns.items()}
        reasons = pc.coalesce(unread, reasons)
    measured = [columns[name] for name in schema.names if name in columns]
    return pa.table([*batch.keys.columns, *measured, reasons], schema=schema)


def _measured(batch: TextBatch, scorers: Sequence[PreparedScorer], errors: list[str]) -> dict[str, pa.Array]:
    """Return the columns of these scorers; the errors of those that fail are appended to ``errors``."""
    columns: dict[str, pa.Array] = {}
    for one in scorers:
        scorer, rows = one.scorer, batch.keys.num_rows
        try:
            found = [_as_array(values, dtype) for values, dtype in one.of_columns(one.measure(batch))]
            if odd := [len(values) for values in found if len(values) != rows]:
                raise ValueError(f"it returned an array of {odd[0]:,} values for {rows:,} rows")
        except InterleavedError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a scorer of a plugin raises exceptions of any type
            reason = str(error).strip().partition("\n")[0]
            errors.append(row_error("scorer_failed", f"{scorer.name}: {type(error).__name__}: {reason}"))
            found = [pa.nulls(rows, dtype) for dtype in one.types]
        columns.update(zip(scorer.columns, found, strict=True))
    return columns


def _measured_in_parts(
    rows: pa.Table,
    fields: Sequence[str],
    scorers: Sequence[PreparedScorer],
    schema: pa.Schema,
    errors: list[str],
) -> dict[str, pa.Array]:
    """Return the columns for one document: its own values from its beginning, those of its texts part by part."""
    found: dict[str, list[pa.Array]] = {name: [] for one in scorers for name in one.scorer.columns}
    of_texts = [one for one in scorers if not {*one.scorer.columns} <= {*one.scorer.of_documents}]
    for part in parts_of(rows, MOST_DOCUMENT_BYTES):
        batch = TextBatch(part.rows, fields)
        columns = _measured(batch, scorers if part.has_document else of_texts, errors)
        for name, pieces in found.items():
            values = columns.get(name)
            whole = pa.nulls(batch.keys.num_rows, schema.field(name).type) if values is None else values
            pieces.append(whole.slice(0, 1 + part.texts) if part.has_document else whole.slice(1, part.texts))
    return {name: pa.concat_arrays(pieces) for name, pieces in found.items()}


def _unread(rows: pa.Table, batch: TextBatch) -> pa.Array:
    """Return for each row of scores the error because of which its text is null, null without one."""
    found: list[str | None] = [None] * batch.keys.num_rows
    if _TEXT_ERROR in rows.column_names and rows[_TEXT_ERROR].null_count < rows.num_rows:
        texts = rows.filter(pc.equal(rows["modality"], "text"))
        unread = pc.if_else(texts["text_content"].is_null(), texts[_TEXT_ERROR], None).to_pylist()
        for row, error in zip(batch.row_of_text.tolist(), unread, strict=True):
            found[row] = error
    return pa.array(found, pa.string())


def _as_array(values: np.ndarray | pa.Array | pa.ChunkedArray, dtype: pa.DataType) -> pa.Array:
    found = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return found if found.type == dtype else found.cast(dtype)
