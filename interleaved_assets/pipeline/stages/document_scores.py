"""The stage ``document_scores``: the measurements of each document and of each text."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.every_document_scored import EVERY_DOCUMENT_SCORED
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.checks.scores_in_range import SCORES_IN_RANGE
from interleaved_assets.pipeline.run.stage import (
    SourceColumn,
    Stage,
    StageDisplay,
    StageOutput,
    last_with_rows,
    scored_from,
)
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES
from interleaved_assets.scoring.protocol.registry import (
    document_fields_of,
    score_columns,
    score_files,
    score_ranges,
    scoring_packages,
    scoring_version,
)
from interleaved_assets.scoring.protocol.scorer import ERROR_COLUMN
from interleaved_assets.scoring.texts.lists import list_versions
from interleaved_assets.settings import Settings


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
    run=imported("interleaved_assets.pipeline.tasks.document_scores:score"),
    prepare=imported("interleaved_assets.pipeline.tasks.document_scores:prepare"),
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
