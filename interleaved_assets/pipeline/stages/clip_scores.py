"""The stage ``clip_scores``: scores of each image from the CLIP model and its heads."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.every_image_scored import EVERY_IMAGE_SCORED
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
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, IMAGE_SCORES
from interleaved_assets.scoring.clip import identity
from interleaved_assets.scoring.clip.columns import clip_columns, clip_ranges
from interleaved_assets.scoring.scores.clip import CLIP, EMBEDDING
from interleaved_assets.settings import Settings


def _settings(settings: Settings) -> dict[str, object]:
    """Return the settings that change a score. The device is left out: it changes speed and rounding."""
    return {"clip": identity.version_settings(settings.clip)}


def _files(settings: Settings) -> dict[str, str]:
    """Return the version of each file that the settings name: checkpoint, configuration, heads."""
    return identity.file_versions(settings.clip, settings.storage.options_by_scheme())


def _connect(stage: Stage, settings: Settings, before: Sequence[Stage]) -> Stage | None:
    if not settings.clip.enabled:
        return None
    rows = last_with_rows(before)

    def made_from(column: str, settings: Settings) -> tuple[SourceColumn, ...]:
        of_image_alone = column in (EMBEDDING, *settings.clip.head_columns)
        return scored_from(rows, column, "clip_error", "binary_content", *([] if of_image_alone else ["text_content"]))

    inputs = (rows, *((IMAGE_SCORES,) if settings.clip.prescreen.is_on else ()))
    return replace(stage, inputs=inputs, made_from=made_from)


STAGE: Final = Stage(
    CLIP_SCORES,
    version=2,
    settings=_settings,
    together=imported("interleaved_assets.pipeline.tasks.clip_scores:score_together"),
    files=_files,
    packages=lambda _: CLIP.packages,
    checks=(ROWS_WITHOUT_ERROR, EVERY_IMAGE_SCORED, SCORES_IN_RANGE, SCHEMA_CANONICAL),
    columns=lambda settings: clip_columns(settings.clip),
    ranges=lambda settings: clip_ranges(settings.clip),
    connect=_connect,
    output=StageOutput("image scores"),
    display=StageDisplay(
        "One row per image: its best cosine similarity with a text of its sample, and the scores of the heads on "
        "its embedding. Runs on the GPU.",
        "score",
        frozenset({"parquet", "pytorch"}),
    ),
)
