"""The stage ``filtered``: the rows that pass the thresholds, and the ledger of the others."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import OpenRows, open_rows
from interleaved_assets.io.parquet.writer import parquet_shard
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.io.tar.layout import UNREFERENCED_MEMBERS
from interleaved_assets.io.tar.unreferenced import without_unreferenced_images
from interleaved_assets.model.columns import INTERLEAVED_COLUMNS, ROW_KEY
from interleaved_assets.model.errors import ROW_ERROR_CODES
from interleaved_assets.model.fields import absent_field, root_of
from interleaved_assets.model.ledger import LEDGER_SCHEMA, check_balance
from interleaved_assets.model.rows import filter_rows
from interleaved_assets.pipeline.checks.keep_rate_within_bounds import KEEP_RATE
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.run.counts import (
    UNREFERENCED,
    UNREFERENCED_IMAGES,
    check_losses,
    column_facts,
    write_kept,
)
from interleaved_assets.pipeline.run.record import OutputFile
from interleaved_assets.pipeline.run.stage import (
    ShardTask,
    SourceColumn,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    columns_of,
    last_with_rows,
    with_image_scores,
)
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES, FILTERED, RATIO
from interleaved_assets.pipeline.stages.outputs import read_document_scores, read_scores
from interleaved_assets.scoring.protocol.filter import ImageFilter, SampleFilter, TextFilter
from interleaved_assets.selection.judge import select
from interleaved_assets.selection.other_bounds import judged_samples
from interleaved_assets.selection.positions import reindex_positions
from interleaved_assets.selection.settings import SelectionSettings, selection_version
from interleaved_assets.selection.texts import with_fields, with_words
from interleaved_assets.settings import PublishSettings, Settings
from interleaved_assets.settings.shard_paths import SAMPLES, ShardPaths

logger = logging.getLogger(__name__)


def select_rows(shard: ShardTask) -> Work:
    """Decide on every row from the scores alone, then copy the rows that are kept; no image is decoded.

    Images that no document names have no scores: they are left out unless ``publish.unreferenced_images`` is set.
    """
    with open_rows(shard.paths.output(shard.rows_input), shard.options) as stored:
        return _selected(shard, stored)


def _selected(shard: ShardTask, stored: OpenRows) -> Work:
    settings = shard.settings
    fields, most_bytes = settings.selection.fields(), settings.run.max_batch_bytes
    rows, scores, documents = deciding_tables(stored, shard.paths, shard.score_inputs, fields, most_bytes)
    selection = select(rows, scores, settings.selection, documents=documents, stage=FILTERED, shard=shard.key)
    name = f"shard {shard.key}, {FILTERED}"
    check_balance(name, rows.num_rows, selection.keep.true_count, selection.ledger)
    check_losses(shard, FILTERED, pc.count_distinct(rows["sample_id"]).as_py(), selection.ledger)
    ratios = _sample_scores(rows, scores, settings.selection, documents)
    schema = stored.schema
    members = shard.read[shard.rows_input].counted
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
        parquet_shard(shard.paths.ledger(FILTERED), LEDGER_SCHEMA, storage_options=shard.options) as ledger_file,
        parquet_shard(shard.paths.other(SAMPLES), ratios.schema, storage_options=shard.options) as samples_file,
        parquet_shard(shard.paths.output(FILTERED), schema, storage_options=shard.options) as rows_file,
    ):
        facts, ledger = write_kept(prefetch(stored.tables(max_batch_bytes=most_bytes)), choose, rows_file.write, name)
        ledger_file.write(ledger)
        samples_file.write(ratios)
    # a missing score counts as an error, whether the policy keeps or drops the image
    missing = Counter({reason: count for reason, count in facts.dropped.items() if reason in ROW_ERROR_CODES})
    return Work(
        outputs={
            "rows": OutputFile.of(rows_file.output),
            "ledger": OutputFile.of(ledger_file.output),
            SAMPLES: OutputFile.of(samples_file.output),
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
    stored: OpenRows, paths: ShardPaths, scored: Collection[str], fields: Sequence[str], max_batch_bytes: int
) -> DecidingTables:
    """Return what selection decides on for one shard, from its ``stored`` rows; no text and no image is read.

    ``scored`` are the stages that scored its images, and ``fields`` are those of the documents that filters compare.
    """
    documents = read_document_scores(paths)
    rows = _rows(stored, fields, max_batch_bytes)
    documents = with_fields(documents, rows, fields)
    return DecidingTables(with_words(rows.select(ROW_KEY), documents), read_scores(paths, scored), documents)


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


def _settings(settings: Settings) -> dict[str, object]:
    """Return the settings of selection and for unreferenced images. Changing a threshold changes no score."""
    unreferenced = {"unreferenced_images": settings.publish.unreferenced_images}
    return {**json.loads(selection_version(settings.selection)), "publish": unreferenced}


def _connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
    rows, scored = last_with_rows(before), with_image_scores(before)
    names = tuple(one.name for one in scored)
    return replace(
        stage,
        inputs=(rows, *names, DOCUMENT_SCORES),
        score_inputs=names,
        made_from=lambda column, _: columns_of(rows, column),
        decided_by=lambda settings: _decided_by(settings, rows, scored),
    )


def _decided_by(settings: Settings, rows: str, scored: Sequence[Stage]) -> tuple[SourceColumn, ...]:
    """Return the columns that the filters compare with bounds, by filter."""
    found: list[SourceColumn] = []
    measured = {column.name: stage.name for stage in scored for column in stage.columns(settings)}
    for name in settings.selection.active_filters():
        judge = settings.selection.find(name)
        if isinstance(judge, TextFilter):
            own = settings.selection.own.get(name)
            field = own.field if own else None
            found += columns_of(DOCUMENT_SCORES, judge.column) if field is None else columns_of(rows, field)
            continue
        if not isinstance(judge, ImageFilter):
            found += (*columns_of(rows, "modality"), *columns_of(DOCUMENT_SCORES, "words"))
            continue
        for column in judge.columns:
            # a filter is not applied if its scores come from a stage that is turned off
            found += columns_of(measured[column], column) if column in measured else ()
    return tuple(dict.fromkeys(found))


STAGE: Final = Stage(
    FILTERED,
    version=4,
    settings=_settings,
    run=select_rows,
    checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, SCHEMA_CANONICAL, KEYS_UNIQUE, KEEP_RATE),
    columns=lambda _: INTERLEAVED_COLUMNS,
    connect=_connect,
    output=StageOutput("rows", (SAMPLES,)),
    display=StageDisplay(
        "The rows that pass the thresholds in interleaved.toml. The ledger lists the other rows with reason, "
        "measured value and threshold.",
        "select",
        frozenset({"parquet"}),
    ),
)
