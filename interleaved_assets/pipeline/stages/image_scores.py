"""image_scores: the scores of each image of a shard, measured once and stored."""

import json
from typing import Final

from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.registry import scoring_version
from interleaved_assets.settings import Settings

NAME: Final = IMAGE_SCORES


def version_settings(settings: Settings) -> dict[str, object]:
    return dict(json.loads(scoring_version(settings.scoring)))


def _score(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.score_images import score  # the work begins here

    return score(shard)


STAGE: Final = Stage(NAME, inputs=(NORMALIZED,), version=2, settings=version_settings, run=_score)
