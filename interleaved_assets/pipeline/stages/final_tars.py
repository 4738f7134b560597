"""The stage ``final_tars``: the training tars."""

from typing import Final

from interleaved_assets.model.imported import imported
from interleaved_assets.pipeline.checks.reads_back import READS_BACK
from interleaved_assets.pipeline.checks.rows_accounted_for import ROWS_ACCOUNTED_FOR
from interleaved_assets.pipeline.checks.rows_without_error import ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.run.stage import Stage, StageDisplay, StageOutput
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.settings import Settings


def _settings(settings: Settings) -> dict[str, object]:
    """Return the policy for rows that have an error, and the bounds that are set.

    The limits change no tar: a sample that exceeds one of them fails it.
    """
    return {"on_materialize_error": settings.errors.on_materialize_error, **settings.final_tars.bounds()}


STAGE: Final = Stage(
    FINAL_TARS,
    (FILTERED,),
    version=2,
    settings=_settings,
    run=imported("interleaved_assets.pipeline.tasks.final_tars:write_tars"),
    checks=(ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, READS_BACK),
    output=StageOutput("tars"),
    display=StageDisplay(
        "Training tars: `<key>.json` and the images of each sample, readable as plain MINT-1T.",
        "publish",
        frozenset({"webdataset"}),
    ),
)
