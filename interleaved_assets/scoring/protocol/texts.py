"""Scoring of the documents and texts of a table, in batches on threads; NumPy releases the GIL in most of the work."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.rows.batches import sample_starts
from interleaved_assets.io.rows.workers import processors
from interleaved_assets.model.errors import InterleavedError, row_error
from interleaved_assets.model.fields import root_of
from interleaved_assets.scoring.protocol.registry import (
    ERROR_COLUMN,
    WORDS,
    MeasureTexts,
    Scorer,
    chosen_scorers,
    document_fields,
)
from interleaved_assets.scoring.protocol.schema import scores_schema
from interleaved_assets.scoring.protocol.settings import DocumentSettings
from interleaved_assets.scoring.texts.batch import TextBatch

TEXT_COLUMNS: Final = ("sample_id", "position", "modality", "text_content")
"""The columns that the scorers of texts read."""
_BATCH_BYTES: Final = 2**19
"""Bytes of text measured at once by a thread. With less, threads wait for each other more often, and with more, the
arrays leave a processor's cache. A larger document is a batch."""
MOST_DOCUMENT_BYTES: Final = 4 * 2**20
"""Bytes of text of a document that scorers other than ``words`` measure."""


class PreparedTextScorer(NamedTuple):
    """A scorer of texts with its settings applied, its lists read and its model loaded."""

    scorer: Scorer
    measure: MeasureTexts


def prepare_text_scorers(settings: DocumentSettings) -> tuple[PreparedTextScorer, ...]:
    """Return the scorers of texts that ``settings`` turns on.

    Raises:
        MissingDependency, SettingsError: a package, or a list of words, is missing.
    """
    return tuple(PreparedTextScorer(one, one.prepare(settings)) for one in chosen_scorers(settings) if one.prepare)


def score_documents(
    rows: pa.Table, settings: DocumentSettings | None = None, *, threads: int | None = None
) -> pa.Table:
    """Measure every document and every text row.

    A scorer that fails on a batch leaves null in its columns, and ``scorer_failed`` in ``score_error``. Of a document
    with more than 4 MiB of text, all scorers but ``words`` measure the first 4 MiB.

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
        MissingDependency, OptionError: a package or a list of words is missing; before any text is read.
    """
    settings = settings or DocumentSettings()
    schema = scores_schema(settings)
    scorers = prepare_text_scorers(settings)
    fields = document_fields(settings)
    rows = rows.select(text_columns(rows.column_names, fields))
    # a view of a string has no length that Arrow counts
    texts = rows["text_content"].cast(pa.large_string())
    batches = list(_batches(rows.set_column(rows.column_names.index("text_content"), "text_content", texts)))
    threads = min(threads or processors(), len(batches))
    if threads <= 1:
        tables = [_scored(batch, fields, scorers, schema) for batch in batches]
    else:
        with ThreadPoolExecutor(threads, thread_name_prefix="texts") as pool:
            tables = list(pool.map(lambda batch: _scored(batch, fields, scorers, schema), batches))
    return pa.concat_tables([schema.empty_table(), *tables])


def text_columns(names: Sequence[str], fields: Sequence[str]) -> tuple[str, ...]:
    """Return the columns among ``names`` that the scorers of texts read: those of texts, and those of ``fields``."""
    roots = (root_of(names, path) for path in fields)
    return tuple(dict.fromkeys((*TEXT_COLUMNS, *(root for root in roots if root is not None))))


def _batches(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of whole samples, in tables of about :data:`_BATCH_BYTES` of text."""
    starts = sample_starts(rows["sample_id"])
    sizes = pc.fill_null(pc.binary_length(rows["text_content"]), 0).to_numpy().astype(np.int64)
    before = np.append(0, np.cumsum(sizes))
    ends = np.append(starts[1:], rows.num_rows)
    first = 0
    while first < len(starts):
        # the samples that end within a batch of the full size, and at least one
        last = int(np.searchsorted(before[ends], before[starts[first]] + _BATCH_BYTES, side="right"))
        last = max(last, first + 1)
        yield rows.slice(int(starts[first]), int(ends[last - 1] - starts[first]))
        first = last


def _scored(
    rows: pa.Table, fields: Sequence[str], scorers: Sequence[PreparedTextScorer], schema: pa.Schema
) -> pa.Table:
    whole = TextBatch(rows, fields)
    cut = _cut(rows)
    batch = whole if cut is rows else TextBatch(cut, fields)
    columns: list[pa.Array | pa.ChunkedArray] = [batch.keys[name] for name in batch.keys.column_names]
    errors: list[str] = []
    count = batch.keys.num_rows
    for scorer, measure in scorers:
        types = [schema.field(name).type for name in scorer.columns]
        measured = whole if scorer.name == WORDS else batch
        try:
            found = [_as_array(values, dtype) for values, dtype in zip(measure(measured), types, strict=True)]
        except InterleavedError:
            raise
        except Exception as error:  # noqa: BLE001  a scorer of a plugin raises exceptions of any type
            reason = str(error).strip().partition("\n")[0]
            errors.append(row_error("scorer_failed", f"{scorer.name}: {type(error).__name__}: {reason}"))
            found = [pa.nulls(count, dtype) for dtype in types]
        columns += found
    columns.append(pa.array(["; ".join(errors) or None] * count, schema.field(ERROR_COLUMN).type))
    return pa.table(columns, schema=schema)


def _cut(rows: pa.Table) -> pa.Table:
    """Return the rows with the first :data:`MOST_DOCUMENT_BYTES` of their texts, which bounds time and memory."""
    ends = np.cumsum(pc.fill_null(pc.binary_length(rows["text_content"]), 0).to_numpy())
    if not len(ends) or ends[-1] <= MOST_DOCUMENT_BYTES:
        return rows
    last = int(np.searchsorted(ends, MOST_DOCUMENT_BYTES, side="right"))
    texts = rows["text_content"].cast(pa.large_binary())
    begun = int(ends[last - 1]) if last else 0
    cut = texts[last].as_buffer()[: MOST_DOCUMENT_BYTES - begun].to_pybytes().decode("utf-8", "ignore")
    rest = pa.array([cut] + [""] * (rows.num_rows - last - 1), pa.large_string())
    kept = pa.chunked_array([*rows["text_content"].slice(0, last).chunks, rest])
    return rows.set_column(rows.column_names.index("text_content"), "text_content", kept)


def _as_array(values: np.ndarray | pa.Array, dtype: pa.DataType) -> pa.Array:
    return values.cast(dtype) if isinstance(values, pa.Array) else pa.array(values).cast(dtype)
