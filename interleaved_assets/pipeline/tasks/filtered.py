"""The work of filtered: decide on the rows from stored scores; all others go to the ledger."""

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import OpenRows, open_rows
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS
from interleaved_assets.io.tar.unreferenced import without_unreferenced_images
from interleaved_assets.model.columns import ROW_KEY
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.fields import absent_field, root_of
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.run.counts import (
    UNREFERENCED,
    UNREFERENCED_IMAGES,
    check_losses,
    column_facts,
    write_kept,
)
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import ShardTask, Work
from interleaved_assets.pipeline.stages.dag import rows_input
from interleaved_assets.pipeline.stages.names import FILTERED as NAME
from interleaved_assets.pipeline.stages.names import NORMALIZED, RATIO
from interleaved_assets.pipeline.stages.outputs import read_document_scores, read_scores
from interleaved_assets.scoring.protocol.filter import SampleFilter
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.other_bounds import judged_samples
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.selection.settings import SelectionSettings
from interleaved_assets.selection.texts import with_fields, with_words
from interleaved_assets.settings import PublishSettings
from interleaved_assets.settings.shard_paths import SAMPLES, ShardPaths

logger = logging.getLogger(__name__)


def select_rows(shard: ShardTask) -> Work:
    """Decide on every row from the scores alone, then copy the rows that are kept; no image is decoded.

    Images that no document names have no scores: they are left out unless ``publish.unreferenced_images`` is set.
    """
    source = rows_input(shard.read) or NORMALIZED
    with open_rows(shard.paths.output(source), shard.options) as stored:
        return _selected(shard, stored)


def _selected(shard: ShardTask, stored: OpenRows) -> Work:
    """Do the work of :func:`select_rows` on the rows of its input, which is opened once."""
    settings = shard.settings
    source, most_bytes = rows_input(shard.read) or NORMALIZED, settings.run.max_batch_bytes
    fields = settings.selection.fields()
    rows, scores, documents = _deciding_tables(stored, shard.paths, shard.read, fields, most_bytes)
    selection = select(rows, scores, settings.selection, documents=documents, stage=NAME, shard=shard.key)
    name = f"shard {shard.key}, {NAME}"
    check_balance(name, rows.num_rows, selection.keep.true_count, selection.ledger)
    check_losses(shard, NAME, pc.count_distinct(rows["sample_id"]).as_py(), selection.ledger)
    ratios = _sample_scores(rows, scores, settings.selection, documents)
    schema = stored.schema
    members = shard.read[source].counted
    only_images = UNREFERENCED in members and members[UNREFERENCED] == members[UNREFERENCED_IMAGES]
    if only_images and not settings.publish.unreferenced_images:
        # with the column in the table, final tars would have to declare it
        schema = pa.schema([field for field in schema if field.name != UNREFERENCED_MEMBERS], schema.metadata)
    done = dropped = left_out = 0

    def choose(table: pa.Table) -> tuple[pa.Table, pa.Table]:
        nonlocal done, dropped, left_out
        keep = selection.keep.slice(done, table.num_rows)
        kept, images = kept_rows(table, keep, settings.selection, settings.publish)
        ledger = selection.ledger.slice(dropped, len(keep) - keep.true_count)
        done, dropped, left_out = done + len(keep), dropped + ledger.num_rows, left_out + images
        return kept.select(schema.names), ledger

    with (
        parquet_shard(shard.paths.ledger(NAME), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.other(SAMPLES), ratios.schema, storage_options=shard.options) as samples_file,
        parquet_shard(shard.paths.output(NAME), schema, storage_options=shard.options) as rows_file,
    ):
        facts, ledger = write_kept(prefetch(stored.tables(max_batch_bytes=most_bytes)), choose, rows_file.write, name)
        ledger_file.write(ledger)
        samples_file.write(ratios)
    # a missing score counts as an error, whether the policy keeps or drops the image
    missing = Counter({reason: count for reason, count in facts.dropped.items() if reason in ROW_ERROR_CODES})
    return Work(
        outputs={
            "rows": OutputFile.of(rows_file),
            "ledger": OutputFile.of(ledger_file),
            SAMPLES: OutputFile.of(samples_file),
        },
        counts_in=facts.counts_in,
        counts_out=facts.counts_out,
        errors=dict(missing + Counter(selection.unscored)),
        dropped=facts.dropped,
        **column_facts(rows_file.schema),
        counted=facts.counted,
        notes={
            "filters": ", ".join(selection.filters),
            "filters_without_scores": ", ".join(selection.passed_over),
            "unreferenced_images_left_out": left_out,
        },
    )


def kept_rows(
    table: pa.Table, keep: pa.BooleanArray, selection: SelectionSettings, publish: PublishSettings
) -> tuple[pa.Table, int]:
    """Return the rows to ``keep``, at the positions that ``selection`` asks for, and the number of images left out.

    These are images that no document names: they have no scores, and stay if ``publish.unreferenced_images`` is set.
    """
    kept, left_out = filter_rows(table, keep), 0
    if not publish.unreferenced_images:
        kept, left_out = without_unreferenced_images(kept)
    return (reindex_positions(kept) if selection.reindex_positions else kept), left_out


class DecidingTables(NamedTuple):
    """Rows and scores as :func:`~interleaved_assets.selection.judge.select` takes them."""

    rows: pa.Table
    scores: pa.Table
    documents: pa.Table


def deciding_tables(
    paths: ShardPaths, inputs: Collection[str], fields: Sequence[str], max_batch_bytes: int
) -> DecidingTables:
    """Return what selection decides on for one shard; no text and no image is read.

    ``inputs`` are the stages that ``filtered`` reads, and ``fields`` those of the documents that filters compare.
    """
    with open_rows(paths.output(rows_input(inputs) or NORMALIZED), paths.options) as stored:
        return _deciding_tables(stored, paths, inputs, fields, max_batch_bytes)


def _deciding_tables(
    stored: OpenRows, paths: ShardPaths, inputs: Collection[str], fields: Sequence[str], max_batch_bytes: int
) -> DecidingTables:
    documents = read_document_scores(paths)
    rows = _rows(stored, fields, max_batch_bytes)
    documents = with_fields(documents, rows, fields)
    return DecidingTables(with_words(rows.select(ROW_KEY), documents), read_scores(paths, inputs), documents)


def _rows(stored: OpenRows, fields: Collection[str], max_batch_bytes: int) -> pa.Table:
    """Return ``sample_id``, ``position``, ``modality`` and the columns of ``fields`` of the rows."""
    schema = stored.schema
    for path in fields:
        if absent := absent_field(schema, path):
            logger.warning("%s: %s (selection.own)", stored.uri, absent)
    roots = (root_of(schema.names, path) for path in fields)
    columns = tuple(dict.fromkeys((*ROW_KEY, *(root for root in roots if root is not None))))
    found = [table.select(columns) for table in stored.tables(columns, max_batch_bytes)]
    return pa.concat_tables([pa.schema([schema.field(name) for name in columns]).empty_table(), *found])


def _sample_scores(rows: pa.Table, scores: pa.Table, selection: SelectionSettings, documents: pa.Table) -> pa.Table:
    """Return the values that filters of samples compare: of ``ratio``, and of those that have a bound.

    Numbers in fields of the documents that filters compare are among them, since no table of scores has them.
    """
    found = judged_samples(rows, scores, selection, RATIO, documents=documents)
    for name in selection.active_filters():
        of_field = name in selection.own and selection.own[name].field is not None and selection.own[name].has_numbers
        if name == RATIO or not (of_field or isinstance(selection.find(name), SampleFilter)):
            continue
        judged = judged_samples(rows, scores, selection, name, documents=documents)
        found = found.join(judged, "sample_id", join_type="full outer").sort_by("sample_id")
    return found
