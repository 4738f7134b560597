"""filtered: the rows that pass the thresholds, decided from stored scores; what does not is in the ledger."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from interleaved_assets.io.batches import filter_rows, prefetch
from interleaved_assets.io.parquet.reader import parquet_shard_schema, read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons
from interleaved_assets.pipeline.counts import RowCounter, UniqueKeys, column_facts
from interleaved_assets.pipeline.execute import ShardTask, Stage, Work
from interleaved_assets.pipeline.record import OutputFile, ShardPaths
from interleaved_assets.pipeline.stages import normalized
from interleaved_assets.pipeline.stages.outputs import read_scores
from interleaved_assets.scoring.text_ratio import count_words
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.selection.select import select
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.selection.what_if import judged_values
from interleaved_assets.settings import Settings

NAME: Final = "filtered"
RATIO: Final = "ratio"
"""The filter of samples whose values are kept for the reports, and the column they are kept in."""
_DECIDING_COLUMNS: Final = ("sample_id", "position", "modality", "text_content")


def select_rows(shard: ShardTask) -> Work:
    """Decide on every row from the scores alone, then copy what stays; no image is decoded.

    Raises:
        LedgerError: a row was neither kept nor entered in the ledger; nothing is written then.
        ScoreError: a score is missing and ``selection.on_score_error`` is ``error``.
    """
    settings = shard.settings
    rows_uri = shard.paths.output(normalized.NAME)
    rows, scores = deciding_tables(shard.key, settings)
    selection = select(rows, scores, settings.selection, stage=NAME, shard=shard.key)
    check_balance(f"shard {shard.key}, {NAME}", rows.num_rows, selection.keep.true_count, selection.ledger)
    ratios = pa.table({RATIO: judged_values(rows, scores, settings.selection, RATIO)})
    schema = parquet_shard_schema(rows_uri, storage_options=shard.options)
    seen, written, keys = RowCounter(), RowCounter(), UniqueKeys()
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.sample_scores(), ratios.schema, storage_options=shard.options) as samples_file,
        parquet_shard(shard.paths.output(NAME), schema, storage_options=shard.options) as rows_file,
    ):
        for table, keep in _with_decisions(shard, rows_uri, selection.keep):
            kept = filter_rows(table, keep)
            seen.add(table)
            written.add(kept)
            placed = reindex_positions(kept) if settings.selection.reindex_positions else kept
            keys.add(placed)
            rows_file.write(placed)
        ledger_file.write(selection.ledger)
        samples_file.write(ratios)
        check_balance(f"shard {shard.key}, {NAME}", seen.counts.rows, written.counts.rows, selection.ledger)
    dropped = drop_reasons(selection.ledger)
    # a score that is missing is an error whether the policy keeps the image or drops it
    missing = Counter({reason: count for reason, count in dropped.items() if reason in ROW_ERROR_CODES})
    return Work(
        outputs={
            "rows": OutputFile.of(rows_file),
            "ledger": OutputFile.of(ledger_file),
            "samples": OutputFile.of(samples_file),
        },
        counts_in=seen.counts,
        counts_out=written.counts,
        errors=dict(missing + Counter(selection.unscored)),
        dropped=dropped,
        **column_facts(rows_file.schema),
        counted=keys.counted,
        notes={
            "filters": ", ".join(selection.filters),
            "filters_without_scores": ", ".join(selection.passed_over),
        },
    )


def deciding_rows(uri: str, options: StorageOptions, max_batch_bytes: int | None = None) -> pa.Table:
    """What selection needs of a normalized shard: ``sample_id``, ``position``, ``modality``, ``words``; no images.

    Texts are read for their words, at most ``max_batch_bytes`` of them at a time.
    """
    parts = [
        table.select(_DECIDING_COLUMNS[:3]).append_column("words", count_words(table["text_content"]))
        for table in read_parquet_shard(
            uri, columns=_DECIDING_COLUMNS, max_batch_bytes=max_batch_bytes, storage_options=options
        )
    ]
    if not parts:
        schema = parquet_shard_schema(uri, storage_options=options)
        empty = pa.schema([schema.field(name) for name in _DECIDING_COLUMNS[:3]]).empty_table()
        return empty.append_column("words", pa.array([], pa.int64()))
    return pa.concat_tables(parts)


def deciding_tables(key: str, settings: Settings) -> tuple[pa.Table, pa.Table]:
    """Rows and scores of one shard, as :func:`~interleaved_assets.selection.select.select` takes them."""
    paths = ShardPaths(output_root=settings.storage.output_root, key=key)
    rows = deciding_rows(paths.output(normalized.NAME), settings.storage.options, settings.run.max_batch_bytes)
    return rows, read_scores(paths, settings)


def _with_decisions(shard: ShardTask, uri: str, keep: pa.BooleanArray) -> Iterator[tuple[pa.Table, pa.BooleanArray]]:
    """The shard's batches, each with its part of the decision, which is in the order of the file."""
    done = 0
    for table in prefetch(
        read_parquet_shard(uri, max_batch_bytes=shard.settings.run.max_batch_bytes, storage_options=shard.options)
    ):
        yield table, keep.slice(done, table.num_rows)
        done += table.num_rows


def version_settings(settings: Settings) -> dict[str, object]:
    """Only the selection's own settings: a changed threshold leaves every score as it is."""
    return dict(json.loads(selection_version(settings.selection)))


def stage(reads: Sequence[str]) -> Stage:
    """The stage, for the score tables that there are."""
    return Stage(NAME, inputs=(normalized.NAME, *reads), version=2, settings=version_settings, run=select_rows)
