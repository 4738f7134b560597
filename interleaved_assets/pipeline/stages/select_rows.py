"""The work of filtered: decide on the rows from stored scores; all others go to the ledger."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import parquet_shard_schema, read_parquet_shard
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.storage import StorageOptions
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS
from interleaved_assets.io.tar.unreferenced import without_unreferenced_images
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance, drop_reasons
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.run.counted import UNREFERENCED, UNREFERENCED_IMAGES
from interleaved_assets.pipeline.run.counts import RowCounter, UniqueKeys, column_facts
from interleaved_assets.pipeline.run.publishable import check_losses
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.names import FILTERED as NAME
from interleaved_assets.pipeline.stages.names import NORMALIZED, RATIO
from interleaved_assets.pipeline.stages.outputs import read_scores
from interleaved_assets.selection.batch import selection_rows
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.other_bounds import judged_samples
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.settings.shard_paths import ShardPaths

_DECIDING_COLUMNS: Final = ("sample_id", "position", "modality", "text_content")


def select_rows(shard: ShardTask) -> Work:
    """Decide on every row from the scores alone, then copy the rows that are kept; no image is decoded.

    Images that no document names have no scores: they are left out unless ``publish.unreferenced_images`` is set.
    """
    settings = shard.settings
    rows_uri = shard.paths.output(NORMALIZED)
    rows, scores = deciding_tables(shard.paths, shard.read, settings.run.max_batch_bytes)
    selection = select(rows, scores, settings.selection, stage=NAME, shard=shard.key)
    check_balance(f"shard {shard.key}, {NAME}", rows.num_rows, selection.keep.true_count, selection.ledger)
    check_losses(shard, NAME, pc.count_distinct(rows["sample_id"]).as_py(), selection.ledger)
    ratios = judged_samples(rows, scores, settings.selection, RATIO)
    schema = parquet_shard_schema(rows_uri, storage_options=shard.options)
    members = shard.read[NORMALIZED].counted
    only_images = UNREFERENCED in members and members[UNREFERENCED] == members[UNREFERENCED_IMAGES]
    if only_images and not settings.publish.unreferenced_images:
        # with the column in the table, final tars would have to declare it
        schema = pa.schema([field for field in schema if field.name != UNREFERENCED_MEMBERS], schema.metadata)
    seen, written, keys = RowCounter(), RowCounter(), UniqueKeys()
    left_out = 0
    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.sample_scores(), ratios.schema, storage_options=shard.options) as samples_file,
        parquet_shard(shard.paths.output(NAME), schema, storage_options=shard.options) as rows_file,
    ):
        for table, keep in _with_decisions(shard, selection.keep):
            kept = filter_rows(table, keep)
            if not settings.publish.unreferenced_images:
                kept, images = without_unreferenced_images(kept)
                left_out += images
            kept = kept.select(schema.names)
            seen.add(table)
            written.add(kept)
            placed = reindex_positions(kept) if settings.selection.reindex_positions else kept
            keys.add(placed)
            rows_file.write(placed)
        ledger_file.write(selection.ledger)
        samples_file.write(ratios)
        check_balance(f"shard {shard.key}, {NAME}", seen.counts.rows, written.counts.rows, selection.ledger)
    dropped = drop_reasons(selection.ledger)
    # a missing score counts as an error, whether the policy keeps or drops the image
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
            "unreferenced_images_left_out": left_out,
        },
    )


def deciding_rows(uri: str, options: StorageOptions, max_batch_bytes: int | None = None) -> pa.Table:
    """Return ``sample_id``, ``position``, ``modality`` and ``words`` (number of words of a text) of a shard.

    The shard is the output of ``normalized`` at ``uri``.
    """
    tables = read_parquet_shard(
        uri, columns=_DECIDING_COLUMNS, max_batch_bytes=max_batch_bytes, storage_options=options
    )
    if parts := [selection_rows(table) for table in tables]:
        return pa.concat_tables(parts)
    schema = parquet_shard_schema(uri, storage_options=options)
    return selection_rows(pa.schema([schema.field(name) for name in _DECIDING_COLUMNS]).empty_table())


def deciding_tables(paths: ShardPaths, inputs: Collection[str], max_batch_bytes: int) -> tuple[pa.Table, pa.Table]:
    """Return rows and scores of one shard, as :func:`~interleaved_assets.selection.judge.select` takes them.

    ``inputs`` are the stages that ``filtered`` reads.
    """
    rows = deciding_rows(paths.output(NORMALIZED), paths.options, max_batch_bytes)
    return rows, read_scores(paths, inputs)


def _with_decisions(shard: ShardTask, keep: pa.BooleanArray) -> Iterator[tuple[pa.Table, pa.BooleanArray]]:
    """Yield the shard's batches, each with its part of ``keep``, which is in the order of the rows in the file."""
    done = 0
    for table in prefetch(shard.rows_of(NORMALIZED)):
        yield table, keep.slice(done, table.num_rows)
        done += table.num_rows
