"""The stages: what each reads, the settings that change its output, what does its work; and their order."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from interleaved_assets.model.errors import InterleavedError
from interleaved_assets.pipeline.record import RAW_SHARDS
from interleaved_assets.pipeline.stage import ShardTask, Stage, Work
from interleaved_assets.pipeline.stages.names import (
    CLIP_SCORES,
    FILTERED,
    FINAL_TARS,
    IMAGE_EXPORT,
    IMAGE_SCORES,
    NORMALIZED,
)
from interleaved_assets.scoring.clip import identity
from interleaved_assets.scoring.registry import scoring_packages, scoring_version
from interleaved_assets.selection.settings import selection_version
from interleaved_assets.settings import Settings

WORK: Final = tuple(
    f"interleaved_assets.pipeline.stages.{name}"
    for name in ("normalize", "score_images", "score_clip", "select_rows", "write_tars", "export_images")
)
"""The modules with the work of the stages, which import it where it begins."""
StageDag = Mapping[str, Stage]
"""Stages by name, each after the stages whose outputs it reads."""


def stage_dag(settings: Settings) -> StageDag:
    """The stages under ``settings``: ``clip_scores`` only if ``clip.enabled`` is set, ``image_export`` only if
    ``export.enabled`` is."""
    scores = [
        Stage(
            IMAGE_SCORES,
            (NORMALIZED,),
            version=2,
            settings=_scoring_settings,
            run=_score_images,
            packages=lambda settings: scoring_packages(settings.scoring),
        )
    ]
    if settings.clip.enabled:
        reads = (NORMALIZED, IMAGE_SCORES) if settings.clip.prescreen.is_on else (NORMALIZED,)
        scores.append(
            Stage(
                CLIP_SCORES,
                reads,
                version=2,
                settings=_clip_settings,
                together=_score_clip,
                files=_clip_files,
                packages=lambda settings: identity.clip_packages(settings.clip),
            )
        )
    scored = [stage.name for stage in scores]
    stages = [
        Stage(NORMALIZED, (RAW_SHARDS,), version=3, settings=_reading_settings, run=_normalize),
        *scores,
        Stage(FILTERED, (NORMALIZED, *scored), version=3, settings=_selection_settings, run=_select_rows),
        Stage(FINAL_TARS, (FILTERED,), version=2, settings=_tar_settings, run=_write_tars),
    ]
    if settings.export.enabled:
        # it does not read the final tar, and runs after it: what failed there is not exported
        inputs = (FILTERED, *scored, FINAL_TARS)
        stages.append(
            Stage(
                IMAGE_EXPORT,
                inputs,
                version=2,
                settings=_export_settings,
                run=_export_images,
                packages=lambda settings: {"pillow"} if settings.export.reencode else set(),
            )
        )
    return {stage.name: stage for stage in stages}


def code_versions(stages: StageDag, settings: Settings) -> dict[str, str]:
    """By stage, a version that changes with its own code version and with those of all stages upstream.

    After a change of a threshold, all stages downstream are therefore shown as outdated. A run compares data versions:
    a stage whose inputs have not changed does nothing.
    """
    versions: dict[str, str] = {}
    for name, stage in stages.items():
        own = stage.code_version(settings)
        upstream = [versions[source] for source in stage.inputs if source in versions]
        versions[name] = f"{own}-{hashlib.sha256(' '.join(upstream).encode()).hexdigest()[:8]}" if upstream else own
    return versions


def downstream_of(name: str, stages: StageDag) -> frozenset[str]:
    """Names of the stages that read the output of ``name``, directly or through others."""
    found = {name}
    for stage in stages.values():
        if found & set(stage.inputs):
            found.add(stage.name)
    return frozenset(found - {name})


def is_last_of(name: str, selected: Iterable[str], stages: StageDag) -> bool:
    """Whether none of the ``selected`` stages comes after ``name``."""
    return not downstream_of(name, stages) & set(selected)


# The settings that change the output of each stage.


def _reading_settings(settings: Settings) -> dict[str, object]:
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


def _scoring_settings(settings: Settings) -> dict[str, object]:
    return dict(json.loads(scoring_version(settings.scoring)))


def _clip_settings(settings: Settings) -> dict[str, object]:
    """Those that change a score; not the device, which changes speed and rounding."""
    return {"clip": identity.version_settings(settings.clip)}


def _clip_files(settings: Settings) -> dict[str, str]:
    """The version of each file that the settings name: checkpoint, configuration, heads."""
    return identity.file_versions(settings.clip, settings.storage.options_by_scheme())


def _selection_settings(settings: Settings) -> dict[str, object]:
    """Those of selection, a changed threshold of which changes no score, and what else is left out."""
    unreferenced = {"unreferenced_images": settings.publish.unreferenced_images}
    return {**json.loads(selection_version(settings.selection)), "publish": unreferenced}


def _tar_settings(settings: Settings) -> dict[str, object]:
    """The policy for rows that have an error, and the bounds that are set.

    The limits change no tar: a sample over one of them fails it.
    """
    return {"on_materialize_error": settings.errors.on_materialize_error, **settings.final_tars.bounds()}


def _export_settings(settings: Settings) -> dict[str, object]:
    return settings.export.stage_version(settings.scoring.max_pixels)


# The work of each stage is imported where it begins.


def _normalize(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.normalize import normalize

    return normalize(shard)


def _score_images(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.score_images import score

    return score(shard)


def _score_clip(shards: Iterator[ShardTask], settings: Settings) -> Iterator[tuple[str, Work | InterleavedError]]:
    from interleaved_assets.pipeline.stages.score_clip import score_together

    return score_together(shards, settings)


def _select_rows(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.select_rows import select_rows

    return select_rows(shard)


def _write_tars(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.write_tars import write_tars

    return write_tars(shard)


def _export_images(shard: ShardTask) -> Work:
    from interleaved_assets.pipeline.stages.export_images import export_images

    return export_images(shard)
