"""final_tars: the filtered rows as training tars in the MINT-1T format, of at most as many samples and bytes as set."""

from typing import Final

from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import FILTERED, FINAL_TARS
from interleaved_assets.settings import Settings

NAME: Final = FINAL_TARS


def version_settings(settings: Settings) -> dict[str, object]:
    """The policy for rows that have an error, and the bounds that are set.

    The limits change no tar: a sample over one of them fails it.
    """
    return {"on_materialize_error": settings.errors.on_materialize_error, **settings.final_tars.bounds()}


def _write_tars(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.write_tars import write_tars  # the work begins here

    return write_tars(shard)


STAGE: Final = Stage(NAME, inputs=(FILTERED,), version=2, settings=version_settings, run=_write_tars)
