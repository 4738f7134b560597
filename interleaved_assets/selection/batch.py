"""Selection of whole batches: what a script without Dagster puts between a reader and a writer."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from interleaved_assets.io.materialize import materialize
from interleaved_assets.io.storage.roots import folders_of
from interleaved_assets.model.batch import InterleavedBatch, Mask
from interleaved_assets.model.errors import OptionError
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.scoring.score import score_images
from interleaved_assets.scoring.settings import ScoringSettings
from interleaved_assets.scoring.text_ratio import count_words
from interleaved_assets.selection.positions import join_scores, reindex_positions
from interleaved_assets.selection.row_state import RowState
from interleaved_assets.selection.select import select
from interleaved_assets.selection.settings import SelectionSettings


def selection_rows(table: pa.Table) -> pa.Table:
    """What ``select`` reads of rows of the row model: ``sample_id``, ``position``, ``modality``, ``words``."""
    return table.select(["sample_id", "position", "modality"]).append_column(
        "words", count_words(table["text_content"])
    )


def drop_rows(
    batch: InterleavedBatch,
    mask: Mask,
    reason: str,
    *,
    stage: str = "filtered",
    measured: Sequence[float | None] | pa.Array | None = None,
    threshold: float | None = None,
) -> tuple[InterleavedBatch, pa.Table]:
    """Take rows out of a batch, whatever their modality, and account for them: for filters over texts, tables, audio.

    A sample that loses its last content by it (rows that are not metadata) goes with its metadata row, whose reason is
    ``sample_dropped``; one that had none before stays. Order and positions stay, and image bytes are not copied.

    Args:
        batch: rows of whole samples.
        mask: one bool for each row, True drops it.
        reason: what the ledger says of the rows, such as ``too_short_below``; letters, digits and ``_``.
        stage: name of the stage in the ledger.
        measured: what was measured of each row, float64; None or NaN where nothing was.
        threshold: what that was compared with.

    Returns:
        The batch with the rows that stay, and the ledger of the others, with ``model.LEDGER_SCHEMA``, in row order.

    Raises:
        OptionError: ``mask`` or ``measured`` has not one value for each row, or ``reason`` is not a name.
    """
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
    clip: Callable[[pa.Table], pa.Table] | None = None,
    threads: int | None = None,
    storage_options: dict[str, Any] | None = None,
    allowed_roots: Sequence[str] | None = None,
) -> tuple[InterleavedBatch, pa.Table]:
    """Score the images of a batch and keep what the filters keep.

    Images without bytes are fetched first, once for scoring and for whoever writes the batch.

    Args:
        batch: rows of whole samples.
        settings: filters, thresholds and policies.
        scoring: what is measured.
        clip: gives the CLIP scores of the rows, as a table with ``sample_id``, ``position``, ``clip_score`` and the
            like; without it the CLIP filter is passed over.
        threads: images worked on at once; by default one for each processor.
        storage_options: what fsspec needs for remote files.
        allowed_roots: folders and URLs that a ``source_ref`` may point below; by default those of the source files.

    Returns:
        The batch with the rows that stay, and the ledger of the others.

    Raises:
        MissingDependency: a scorer's package or library is absent.
        ScoreError: an image has no score that a filter needs, and ``on_score_error`` is ``error``.
        StorageError: the storage could not be reached.
    """
    settings = settings or SelectionSettings()
    roots = folders_of(batch.source_files) if allowed_roots is None else allowed_roots
    table = materialize(batch.to_pyarrow(), storage_options=storage_options, allowed_roots=roots)
    scores = score_images(table, scoring, threads=threads)
    if clip is not None:
        scores = join_scores(scores, clip(table))
    shard = ", ".join(batch.source_files) or "batch"
    selection = select(selection_rows(table), scores, settings, shard=shard)
    kept = filter_rows(table, selection.keep)
    return batch.with_table(reindex_positions(kept) if settings.reindex_positions else kept), selection.ledger
