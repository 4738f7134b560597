"""The stage ``document_scores``: the measurements of each document and of each text."""

import json
from collections.abc import Sequence
from typing import Final

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
    preparation,
    scored_from,
    work,
)
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES as NAME
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

PREPARE: Final = "interleaved_assets.pipeline.tasks.document_scores:prepare"
WORK: Final = "interleaved_assets.pipeline.tasks.document_scores:score"
OUTPUT: Final = StageOutput("document scores")


def declare(_: Settings, before: Sequence[Stage]) -> Stage:
    """Return the stage."""
    rows = last_with_rows(before)
    return Stage(
        NAME,
        (rows,),
        version=2,
        settings=lambda settings: dict(json.loads(scoring_version(settings.documents))),
        run=work(WORK),
        prepare=preparation(PREPARE),
        files=lambda settings: list_versions(score_files(settings.documents)),
        packages=lambda settings: scoring_packages(settings.documents),
        checks=(ROWS_WITHOUT_ERROR, EVERY_DOCUMENT_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
        columns=lambda settings: score_columns(settings.documents),
        ranges=lambda settings: score_ranges(settings.documents),
        made_from=lambda column, settings: _made_from(column, settings, rows),
        output=OUTPUT,
        display=StageDisplay(
            "One row per document (position -1) and one per text: words and the measures of the scorers in "
            "documents.scorers. No image is read. Measured once; thresholds are applied in filtered.",
            "score",
            frozenset({"parquet"}),
        ),
    )


def _made_from(column: str, settings: Settings, rows: str) -> tuple[SourceColumn, ...]:
    fields = [path.partition(".")[0] for path in document_fields_of(column, settings.documents)]
    return scored_from(rows, column, ERROR_COLUMN, "modality", *(fields or ["text_content"]))
