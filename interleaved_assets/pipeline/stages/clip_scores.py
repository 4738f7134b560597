"""clip_scores: similarity of each image to the texts of its sample, and the scores of the heads for its embedding."""

from collections.abc import Iterator
from typing import Final

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import CLIP_SCORES, IMAGE_SCORES, NORMALIZED
from interleaved_assets.scoring.clip import identity
from interleaved_assets.scoring.clip.settings import ClipSettings
from interleaved_assets.settings import Settings

NAME: Final = CLIP_SCORES


def version_settings(settings: Settings) -> dict[str, object]:
    """The settings that change a score; not the device, which changes speed and rounding."""
    return {"clip": identity.version_settings(settings.clip)}


def files(settings: Settings) -> dict[str, str]:
    """The version of each file that the settings name: checkpoint, configuration, heads."""
    return identity.file_versions(settings.clip, settings.storage.options_by_scheme())


def _score_together(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
    from interleaved_assets.pipeline.stages.score_clip import score_together  # the work begins here

    return score_together(shards, settings)


def stage(clip: ClipSettings) -> Stage:
    """The stage; it reads the image scores only if ``clip.prescreen`` has bounds on them."""
    reads = (NORMALIZED, IMAGE_SCORES) if clip.prescreen.is_on else (NORMALIZED,)
    return Stage(NAME, inputs=reads, version=2, settings=version_settings, together=_score_together, files=files)
