"""Selection of rows of a batch, for scripts that put a filter between a reader and a writer, without Dagster."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from interleaved_assets.io.rows.fetch import Access
from interleaved_assets.io.rows.fill import fetched_parts, unpacks_a_tar
from interleaved_assets.io.storage.roots import folders_of
from interleaved_assets.model.batch import InterleavedBatch, Mask, check_batch
from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.row_checks import check_rows
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.scoring.protocol.filter import TextFilter
from interleaved_assets.scoring.protocol.registry import document_columns
from interleaved_assets.scoring.protocol.score import score_batches
from interleaved_assets.scoring.protocol.settings import DocumentSettings, ScoringSettings
from interleaved_assets.scoring.protocol.texts import score_documents
from interleaved_assets.scoring.scores.ratio import count_words
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.positions import join_scores, reindex_positions
from interleaved_assets.selection.row_state import RowState
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.texts import with_fields

_PART_BYTES: Final = 16 * 2**20
"""Bytes of images that are fetched while others are scored."""


def selection_rows(table: pa.Table) -> pa.Table:
    """Return the columns that ``select`` reads from a batch: ``sample_id``, ``position``, ``modality``, ``words``."""
    check_rows(table, (), "selection_rows")
    texts = table["text_content"] if "text_content" in table.column_names else pa.nulls(table.num_rows)
    return table.select(ROW_KEY).append_column("words", count_words(texts))


def document_scores(
    table: pa.Table, settings: SelectionSettings, documents: DocumentSettings | None = None
) -> pa.Table | None:
    """Return the scores of documents and texts that bounds in ``settings`` need; None if there is no such bound.

    Fields of the documents that are compared are among their columns.
    """
    scorers = scoring_of_texts(settings, documents or DocumentSettings())
    return None if scorers is None else with_fields(score_documents(table, scorers), table, settings.fields())


def scoring_of_texts(settings: SelectionSettings, documents: DocumentSettings) -> DocumentSettings | None:
    """Return ``documents`` with the scorers that bounds in ``settings`` need; None if no bound is of texts."""
    judges = [judge for name in settings.active_filters() if isinstance(judge := settings.find(name), TextFilter)]
    if not judges:
        return None
    known = document_columns()
    needed = tuple(dict.fromkeys(known[judge.column].name for judge in judges if judge.column in known))
    return documents.model_copy(update={"scorers": needed})


def drop_rows(
    batch: InterleavedBatch,
    mask: Mask,
    reason: str,
    *,
    stage: str = "filtered",
    measured: Sequence[float | None] | pa.Array | None = None,
    threshold: float | None = None,
) -> tuple[InterleavedBatch, pa.Table]:
    """Drop rows of any modality from a batch and list them in a ledger: for filters over texts, tables, audio.

    A sample that loses its last content row (any row that is not metadata) is dropped with its metadata row, for the
    reason ``sample_dropped``; a sample that had no content stays. Order and positions stay, image bytes are not copied.

    Args:
        batch: rows of whole samples.
        mask: one bool for each row, True drops it.
        reason: the reason in the ledger, such as ``too_short_below``; letters, digits and ``_``.
        stage: name of the stage in the ledger.
        measured: the value measured for each row, float64; None or NaN if there is none.
        threshold: the threshold that the values were compared with.

    Returns:
        The batch with the rows that stay, and the ledger of the others, with ``model.LEDGER_SCHEMA``, in row order.

    Raises:
        OptionError: ``mask`` or ``measured`` does not have one value per row, or ``reason`` is not a name.
    """
    check_batch(batch, "drop_rows")
    if not re.fullmatch(r"\w+", reason):
        raise OptionError(f"drop_rows: reason is a name of letters, digits and _, got {reason!r}")
    kept = batch.delete_rows(mask)
    table = batch.to_pyarrow()
    if measured is not None and len(measured) != table.num_rows:
        raise OptionError(f"drop_rows: measured has {len(measured)} values for {table.num_rows} rows")
    state = RowState(table)
    dropped = np.flatnonzero(np.asarray(mask, dtype=bool))
    values = None if measured is None else np.asarray(pa.array(measured, pa.float64()).to_numpy(zero_copy_only=False))
    state.drop(dropped, reason, None if values is None else values[dropped], threshold)
    state.drop_emptied(dropped, kind="row")
    if state.alive.sum() < kept.count():
        kept = batch.with_table(filter_rows(table, pa.array(state.alive)))
    return kept, state.ledger(stage)


def filter_batch(
    batch: InterleavedBatch,
    settings: SelectionSettings | None = None,
    scoring: ScoringSettings | None = None,
    *,
    documents: DocumentSettings | None = None,
    clip: Callable[[pa.Table], pa.Table] | None = None,
    threads: int | None = None,
    storage_options: dict[str, Any] | None = None,
    allowed_roots: Sequence[str] | None = None,
) -> tuple[InterleavedBatch, pa.Table]:
    """Score the images of a batch and drop the rows that the filters reject.

    Missing image bytes are fetched first, and stay in the returned batch, so that a writer need not fetch them again.

    Args:
        batch: rows of whole samples.
        settings: filters, thresholds and policies.
        scoring: the scorers and their options.
        documents: the options of the scorers of texts; those that the bounds need are turned on.
        clip: returns the CLIP scores of the rows, as a table with ``sample_id``, ``position``, ``clip_score`` and other
            CLIP columns; without it the CLIP filter is skipped.
        threads: images scored in parallel; by default one per processor.
        storage_options: fsspec options for remote files.
        allowed_roots: folders and URLs that a ``source_ref`` may point below; by default those of the source files.

    Returns:
        The batch with the rows that stay, and the ledger of the others.

    Raises:
        MissingDependency: a scorer's package or library is absent.
        OptionError: a required column is missing or null.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
        StorageError: the storage cannot be reached.
    """
    check_batch(batch, "filter_batch")
    settings = settings or SelectionSettings()
    roots = folders_of(batch.source_files) if allowed_roots is None else allowed_roots
    rows = batch.to_pyarrow()
    check_rows(rows, (), "filter_batch")
    parts: list[pa.Table] = []

    def filled() -> Iterator[pa.Table]:
        most_bytes = sys.maxsize if unpacks_a_tar(rows) else _PART_BYTES
        for part in fetched_parts(rows, most_bytes, Access(storage_options, roots)):
            parts.append(part)
            yield part

    # images of one part are scored while those of the next are fetched
    scores = pa.concat_tables(score_batches(filled(), scoring, threads=threads))
    table = pa.concat_tables(parts)
    if clip is not None:
        scores = join_scores(scores, clip(table))
    shard = ", ".join(batch.source_files) or "batch"
    of_texts = document_scores(table, settings, documents)
    selection = select(selection_rows(table), scores, settings, documents=of_texts, shard=shard)
    kept = filter_rows(table, selection.keep)
    return batch.with_table(reindex_positions(kept) if settings.reindex_positions else kept), selection.ledger
