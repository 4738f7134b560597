"""The stage ``normalized``: the raw shard as Parquet in the row model."""

from typing import Final

from interleaved_assets.pipeline.checks.layout import LAYOUT
from interleaved_assets.pipeline.checks.rows import KEYS_UNIQUE, ROWS_ACCOUNTED_FOR, ROWS_WITHOUT_ERROR
from interleaved_assets.pipeline.checks.schemas import ROW_SCHEMA
from interleaved_assets.pipeline.run.record import RAW_SHARDS
from interleaved_assets.pipeline.run.stage import Display, Stage, work
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.settings import Settings

WORK: Final = "interleaved_assets.pipeline.stages.normalize:normalize"


def declare(_: Settings) -> Stage:
    """Return the stage."""
    return Stage(
        NORMALIZED,
        (RAW_SHARDS,),
        version=3,
        settings=_settings,
        run=work(WORK),
        checks=(LAYOUT, ROWS_WITHOUT_ERROR, ROWS_ACCOUNTED_FOR, ROW_SCHEMA, KEYS_UNIQUE),
        display=Display(
            "The shard as Parquet in the row model, with image bytes: one row per text and image in document order, "
            "and one row per document for its other fields.",
            "ingest",
            frozenset({"parquet"}),
        ),
    )


def _settings(settings: Settings) -> dict[str, object]:
    """Return the layout, the policy and the limits beyond which rows get errors.

    The size of batches changes no output. Neither do ``max_unpacked_bytes`` and the bounds of ``[publish]``: a shard
    that exceeds one of them fails.
    """
    # the default layout is left out, so that records from before the setting existed stay valid
    by_default = {"layout"} if settings.reading.layout == "interleaved" else None
    by_reference = {"image_bytes": "referenced"} if settings.storage.image_bytes == "referenced" else {}
    return {
        **by_reference,
        "reading": settings.reading.model_dump(mode="json", exclude=by_default),
        "on_materialize_error": settings.errors.on_materialize_error,
        "limits": settings.limits.model_dump(mode="json", exclude={"max_unpacked_bytes"}),
    }
