"""The stage ``filtered``: the rows that pass the thresholds, and the ledger of the others."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.columns import INTERLEAVED_COLUMNS
from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.keep_rate_within_bounds import KEEP_RATE
from interleaved_assets.pipeline.checks.keys_unique import KEYS_UNIQUE
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schema_canonical import SCHEMA_CANONICAL
from interleaved_assets.pipeline.run.stage import (
    SourceColumn,
    Stage,
    StageDisplay,
    StageOutput,
    columns_of,
    last_with_rows,
    with_image_scores,
)
from interleaved_assets.pipeline.stages.names import DOCUMENT_SCORES, FILTERED
from interleaved_assets.scoring.protocol.filter import ImageFilter, TextFilter
from interleaved_assets.selection.settings import OwnBounds, selection_version
from interleaved_assets.settings import Settings
from interleaved_assets.settings.shard_paths import SAMPLES


def _settings(settings: Settings) -> dict[str, object]:
    """Return the settings of selection and for unreferenced images. Changing a threshold changes no score."""
    unreferenced = {"unreferenced_images": settings.publish.unreferenced_images}
    return {**json.loads(selection_version(settings.selection)), "publish": unreferenced}


def _connect(stage: Stage, _: Settings, before: Sequence[Stage]) -> Stage:
    rows, scored = last_with_rows(before), with_image_scores(before)
    return replace(
        stage,
        inputs=(rows, *(one.name for one in scored), DOCUMENT_SCORES),
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
            found += _read_of_texts(judge, rows, settings.selection.own.get(name))
            continue
        if not isinstance(judge, ImageFilter):
            found += (*columns_of(rows, "modality"), *columns_of(DOCUMENT_SCORES, "words"))
            continue
        for column in judge.columns:
            # a filter is not applied if its scores come from a stage that is turned off
            found += columns_of(measured[column], column) if column in measured else ()
    return tuple(dict.fromkeys(found))


def _read_of_texts(judge: TextFilter, rows: str, own: OwnBounds | None) -> tuple[SourceColumn, ...]:
    """Return the column of the document scores, or the field of the documents, that the filter compares."""
    if own is not None and own.field is not None:
        return columns_of(rows, own.field)
    return columns_of(DOCUMENT_SCORES, judge.column)


STAGE: Final = Stage(
    FILTERED,
    version=4,
    settings=_settings,
    run=imported("interleaved_assets.pipeline.tasks.filtered:select_rows"),
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
