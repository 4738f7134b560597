"""The DAG of the stages: their order, code versions and dependents."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from interleaved_assets.pipeline.stage import Stage
from interleaved_assets.pipeline.stages import clip_scores, filtered, final_tars, image_export, image_scores, normalized
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
    scores = [image_scores.STAGE, *([clip_scores.stage(settings.clip)] if settings.clip.enabled else [])]
    reads = [stage.name for stage in scores]
    export = [image_export.stage(reads)] if settings.export.enabled else []
    return {
        stage.name: stage for stage in (normalized.STAGE, *scores, filtered.stage(reads), final_tars.STAGE, *export)
    }


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
