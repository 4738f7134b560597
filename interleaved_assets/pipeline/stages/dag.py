"""The stages in order, and what follows from their inputs."""

import hashlib
from collections.abc import Iterable, Mapping

from interleaved_assets.pipeline.execute import Stage
from interleaved_assets.pipeline.stages import clip_scores, filtered, final_tars, image_scores, normalized
from interleaved_assets.settings import Settings

StageDag = Mapping[str, Stage]
"""Stages by name, each behind the stages it reads."""


def stage_dag(settings: Settings) -> StageDag:
    """The stages under ``settings``: ``clip_scores`` is one of them where ``clip.enabled`` is set."""
    scores = [image_scores.STAGE, *([clip_scores.stage(settings)] if settings.clip.enabled else [])]
    selection = filtered.stage(reads=[stage.name for stage in scores])
    return {stage.name: stage for stage in (normalized.STAGE, *scores, selection, final_tars.STAGE)}


def code_versions(stages: StageDag, settings: Settings) -> dict[str, str]:
    """For each stage a version that changes with its own code version and with those of all it builds on.

    A changed threshold thus shows at once on everything that follows from it. What is then really redone goes by data:
    a stage whose inputs come out as before has nothing to do.
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
