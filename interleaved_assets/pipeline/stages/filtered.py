"""filtered: the rows that pass the thresholds, decided from stored scores; all other rows are in the ledger."""

import json
from collections.abc import Sequence
from typing import Final

from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import FILTERED, NORMALIZED
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.settings import Settings

NAME: Final = FILTERED


def version_settings(settings: Settings) -> dict[str, object]:
    """The settings of selection, a changed threshold of which changes no score, and what else is left out."""
    unreferenced = {"unreferenced_images": settings.publish.unreferenced_images}
    return {**json.loads(selection_version(settings.selection)), "publish": unreferenced}


def _select_rows(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.select_rows import select_rows  # the work begins here

    return select_rows(shard)


def stage(reads: Sequence[str]) -> Stage:
    """The stage; ``reads`` are the names of the stages with score tables."""
    return Stage(NAME, inputs=(NORMALIZED, *reads), version=3, settings=version_settings, run=_select_rows)
