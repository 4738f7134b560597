"""The stage ``filtered``: the rows that pass the thresholds, and the ledger of the others."""

import json
from typing import Final

from interleaved_assets.pipeline.checks.keep_rate import KEEP_RATE
from interleaved_assets.pipeline.checks.rows import KEYS_UNIQUE, ROWS_ACCOUNTED_FOR, ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schemas import ROW_SCHEMA
from interleaved_assets.pipeline.run.stage import Display, Stage, work
from interleaved_assets.pipeline.stages.names import FILTERED, NORMALIZED, score_stages
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.settings import Settings

WORK: Final = "interleaved_assets.pipeline.stages.select_rows:select_rows"


def declare(settings: Settings) -> Stage:
    """Return the stage."""
    return Stage(
        FILTERED,
        (NORMALIZED, *score_stages(settings)),
        version=3,
        settings=_settings,
        run=work(WORK),
        checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, ROW_SCHEMA, KEYS_UNIQUE, KEEP_RATE),
        display=Display(
            "The rows that pass the thresholds in interleaved.toml. The ledger lists the other rows with reason, "
            "measured value and threshold.",
            "select",
            frozenset({"parquet"}),
        ),
    )


def _settings(settings: Settings) -> dict[str, object]:
    """Return the settings of selection and for unreferenced images. Changing a threshold changes no score."""
    unreferenced = {"unreferenced_images": settings.publish.unreferenced_images}
    return {**json.loads(selection_version(settings.selection)), "publish": unreferenced}
