"""The stage ``document_scores``: the measurements of each document and of each text."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from interleaved_assets.io.parquet.reader import open_rows
from interleaved_assets.io.rows.batches import prefetch
from interleaved_assets.model.columns import METADATA_POSITION
from interleaved_assets.pipeline.checks.every_document_scored import EVERY_DOCUMENT_SCORED
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.checks.scores_in_range import SCORES_IN_RANGE
from interleaved_assets.pipeline.run.counts import RowCounter, write_scores
from interleaved_assets.pipeline.run.record import Counts
from interleaved_assets.pipeline.run.stage import (
    ShardTask,
    SourceColumn,
    Stage,
    StageDisplay,
    StageOutput,
    Work,
    last_with_rows,
    scored_from,
)
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES
from interleaved_assets.scoring.protocol.registry import (
    WORDS,
    document_fields,
    document_fields_of,
    prepare_scorers,
    score_columns,
    score_files,
    score_groups,
    score_ranges,
    scores_schema,
    scoring_packages,
    scoring_version,
)
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.scoring.protocol.texts import check_fields, score_documents, text_columns
from interleaved_assets.scoring.texts.lists import list_versions
from interleaved_assets.settings import Settings

_BATCH_BYTES: Final = 16 * 2**20
"""Bytes of a batch: smaller than a shard, so that texts are measured while others are read."""


def score(shard: ShardTask) -> Work:
    """Measure each text once, and write ``document_scores/<key>.parquet`` in the order of the rows."""
    settings = shard.settings.documents
    fields = document_fields(settings)
    seen = RowCounter()
    scored: list[pa.Table] = [scores_schema(settings).empty_table()]
    with open_rows(shard.paths.output(shard.rows_input), shard.options) as rows:
        columns = text_columns(rows.schema.names, fields)
        check_fields(rows.schema, settings, f"shard {shard.key}: ")
        for table in prefetch(rows.tables(columns, min(_BATCH_BYTES, shard.settings.run.max_batch_bytes))):
            seen.add(table)
            scored.append(score_documents(table, settings))
    scores = pa.concat_tables(scored)
    groups = {WORDS: score_groups(settings)[WORDS]}  # others are null where they have no meaning
    work = write_scores(scores, shard.paths.output(DOCUMENT_SCORES), shard.options, ERROR_COLUMN, groups)
    documents = pc.sum(pc.equal(scores["position"], METADATA_POSITION), min_count=0).as_py()
    made = Counts(rows=scores.num_rows, samples=documents, texts=scores.num_rows - documents)
    return work.model_copy(update={"counts_in": seen.counts, "counts_out": made})


def _connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
    rows = last_with_rows(before)

    def made_from(column: str, settings: Settings) -> tuple[SourceColumn, ...]:
        fields = [path.partition(".")[0] for path in document_fields_of(column, settings.documents)]
        return scored_from(rows, column, ERROR_COLUMN, "modality", *(fields or ["text_content"]))

    return replace(stage, inputs=(rows,), made_from=made_from)


STAGE: Final = Stage(
    DOCUMENT_SCORES,
    version=2,
    settings=lambda settings: dict(json.loads(scoring_version(settings.documents))),
    run=score,
    prepare=lambda settings: prepare_scorers(settings.documents),
    files=lambda settings: list_versions(score_files(settings.documents)),
    packages=lambda settings: scoring_packages(settings.documents),
    checks=(ROWS_WITHOUT_ERROR, EVERY_DOCUMENT_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
    columns=lambda settings: score_columns(settings.documents),
    ranges=lambda settings: score_ranges(settings.documents),
    connect=_connect,
    output=StageOutput("document scores"),
    display=StageDisplay(
        "One row per document (position -1) and one per text: words and the measures of the scorers in "
        "documents.scorers. No image is read. Measured once; thresholds are applied in filtered.",
        "score",
        frozenset({"parquet"}),
    ),
)
