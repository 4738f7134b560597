"""normalized: a raw tar as Parquet with the image bytes; the error policy is applied to rows that cannot be read."""

from typing import Final

from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import NORMALIZED
from interleaved_assets.settings import Settings

NAME: Final = NORMALIZED


def version_settings(settings: Settings) -> dict[str, object]:
    """The layout, the policy and the limits beyond which rows get errors.

    The size of batches changes no output, nor do ``max_unpacked_bytes`` and the bounds of ``[publish]``: a shard over
    one of them fails.
    """
    # records of shards that were made before there was a choice of layouts stay valid
    by_default = {"layout"} if settings.reading.layout == "interleaved" else None
    return {
        "reading": settings.reading.model_dump(mode="json", exclude=by_default),
        "on_materialize_error": settings.errors.on_materialize_error,
        "limits": settings.limits.model_dump(mode="json", exclude={"max_unpacked_bytes"}),
    }


def _normalize(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.normalize import normalize  # the work begins here

    return normalize(shard)


STAGE: Final = Stage(NAME, inputs=(RAW_SHARDS,), version=3, settings=version_settings, run=_normalize)
